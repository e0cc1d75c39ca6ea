public import NephosServiceKit
internal import NephosWire

// The table: message -> handler.
extension IdentityService {
    public func register(on router: inout Router) {
        // Anyone.
        router.read(WireGetDirectory.self, access: .anyone, getDirectory)
        router.prepared(
            WireSignIn.self, access: .anyone, bytesMax: 16 << 10, remembersReply: false, idsAge: false, makesRoom: true,
            begin: beginSignIn, work: Self.verifyPassword, finish: finishSignIn)
        router.write(
            WireRefreshToken.self, access: .anyone, bytesMax: 4 << 10, remembersReply: false, idsAge: false,
            makesRoom: true,
            refreshToken)
        router.read(WireIssuePublicToken.self, access: .anyone, bytesMax: 4 << 10, issuePublicToken)

        // Signed-in devices.
        router.read(WireIssueToken.self, issueToken)
        router.read(WireWhoAmI.self, whoAmI)
        router.write(WireSignOut.self, makesRoom: true, signOut)

        // A device for its own account, or the operator for a named one.
        router.write(WireAllowSignIn.self, access: .account, remembersReply: false, allowSignIn)
        router.read(WireListDevices.self, access: .account, listDevices)
        router.write(WireRenameDevice.self, access: .account, renameDevice)
        router.write(WireRevokeDevice.self, access: .account, makesRoom: true, revokeDevice)
        router.prepared(
            WireChangePassword.self, access: .account, bytesMax: 16 << 10, makesRoom: true,
            begin: beginChangePassword, work: Self.checkAndHash, finish: finishChangePassword)
        router.write(WireCreateAppPassword.self, access: .account, remembersReply: false, createAppPassword)
        router.read(WireListAppPasswords.self, access: .account, listAppPasswords)
        router.write(WireRevokeAppPassword.self, access: .account, makesRoom: true, revokeAppPassword)
        router.prepared(
            WireCloseAccount.self, access: .account, bytesMax: 16 << 10, makesRoom: true,
            begin: beginCloseAccount, work: Self.checkForClosure, finish: finishCloseAccount)
        router.read(WireListAudit.self, access: .account, listAudit)
        router.read(WireReadStorage.self, access: .account, readStorage)

        // The operator.
        router.prepared(
            WireCreateAccount.self, access: .operatorOnly, bytesMax: 16 << 10,
            begin: beginCreateAccount, work: Self.hashPassword, finish: finishCreateAccount)
        router.read(WireListAccounts.self, access: .operatorOnly, listAccounts)
        router.write(WireLockAccount.self, access: .operatorOnly, makesRoom: true, lockAccount)
        router.read(WireReadClosure.self, access: .operatorOnly, readClosure)
        router.write(WireCreateApp.self, access: .operatorOnly, createApp)
        router.write(WireUpdateApp.self, access: .operatorOnly, updateApp)
        router.write(WireRemoveApp.self, access: .operatorOnly, removeApp)
        router.read(WireListApps.self, access: .operatorOnly, listApps)
        router.write(WireSaveContainer.self, access: .operatorOnly, saveContainer)
        router.read(WireListContainers.self, access: .operatorOnly, listContainers)
        router.write(WireCreateAppToken.self, access: .operatorOnly, remembersReply: false, createAppToken)
        router.read(WireListAppTokens.self, access: .operatorOnly, listAppTokens)
        router.write(WireRevokeAppToken.self, access: .operatorOnly, makesRoom: true, revokeAppToken)
        router.write(WireSavePlan.self, access: .operatorOnly, savePlan)
        router.read(WireListPlans.self, access: .operatorOnly, listPlans)
        router.write(WireSetPlan.self, access: .operatorOnly, setPlan)
        router.write(WireRotateSigningKey.self, access: .operatorOnly, rotateSigningKey)

        // The other services.
        router.write(WireReportDirectory.self, access: .service, reportDirectory)
        router.write(WireReportClosure.self, access: .service, makesRoom: true, reportClosure)
        router.write(
            WireSettleAllotment.self, access: .service, remembersReply: false, idsAge: false, makesRoom: true,
            settleAllotment)
    }
}
