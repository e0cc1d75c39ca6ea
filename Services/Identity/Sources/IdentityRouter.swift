public import ServiceKit
internal import Wire

// The table: message -> handler.
extension IdentityService {
    public func register(on router: inout Router) {
        // Anyone.
        router.read(WireGetDirectory.self, access: .anyone, getDirectory)
        router.prepared(
            WireSignIn.self, access: .anyone, bytesMax: 16 << 10, remembersReply: false,
            begin: beginSignIn, work: Self.verifyPassword, finish: finishSignIn)
        router.write(
            WireRefreshToken.self, access: .anyone, bytesMax: 4 << 10, remembersReply: false, refreshToken)

        // Signed-in devices.
        router.read(WireIssueToken.self, issueToken)
        router.read(WireWhoAmI.self, whoAmI)
        router.read(WireListDevices.self, listDevices)
        router.write(WireSignOut.self, signOut)
        router.write(WireRevokeDevice.self, revokeDevice)

        // The operator.
        router.prepared(
            WireCreateAccount.self, access: .operatorOnly, bytesMax: 16 << 10,
            begin: beginCreateAccount, work: Self.hashPassword, finish: finishCreateAccount)
        router.read(WireListAccounts.self, access: .operatorOnly, listAccounts)
        router.write(WireCreateApp.self, access: .operatorOnly, createApp)
        router.read(WireListApps.self, access: .operatorOnly, listApps)
    }
}
