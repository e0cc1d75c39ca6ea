internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

// Identity's database has come back from an old copy, and a service tells what
// it knows from identity. An ending stays an ending, and what an app was given
// later it keeps; what was undone by the copy alone (an account unlocked since)
// stays undone, here and there. Only what carries identity's own seal counts.
extension IdentityService {
    /// Items in one request.
    private static let reportedMax = 256

    func reportDirectory(
        _ request: WireReportDirectory, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireReportDirectoryReply {
        guard request.items.count <= Self.reportedMax else {
            throw CloudError(
                .limitExceeded, "The report has too many items. Split it.",
                details: ["items_max": "\(Self.reportedMax)"])
        }
        for item in request.items where try DirectoryEvents.isOwn(item.item, [UInt8](item.body), in: transaction) {
            try hear(item, context, transaction)
        }
        return WireReportDirectoryReply()
    }

    private func hear(
        _ item: WireChange, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws {
        switch item.item.prefix(while: { $0 != "/" }) {
        case "device":
            let told = try WireDeviceState(serializedBytes: item.body)
            guard told.revoked, var device = try DeviceStore(transaction: transaction).device(DeviceID(told.deviceID)),
                device.state == .active
            else { return }
            if told.endedAt > 0 { device.ended = Timestamp(milliseconds: told.endedAt) }
            device.endedBy = told.endedBy
            let ended = try end(device, as: told.signedOut ? .signedOut : told.copied ? .copied : .revoked, transaction)
            try AuditJournal(transaction: transaction).record(
                .deviceRevoked, of: device.account, by: .administrator, at: context.now,
                details: [
                    "device": device.name, "device_id": device.id.rawValue, "reason": "told again after a restore",
                ])
            try DirectoryEvents.publish([.device(ended)], operation: context.id, in: transaction)
        case "account":
            let told = try WireAccountState(serializedBytes: item.body)
            guard told.state != .active,
                var account = try AccountStore(transaction: transaction).account(AccountID(told.accountID))
            else { return }
            guard told.state != .closed else { return try close(account.id, context, transaction) }
            // What is known here is newer: the teller was away when it was unlocked.
            guard told.version > account.standingVersion else { return }
            account.standingVersion = told.version
            try AccountStore(transaction: transaction).save(account)
            var lock = WireLockAccount()
            lock.accountName = account.name
            lock.locked = true
            _ = try lockAccount(lock, context, transaction)
        case "app":
            let told = try WireAppState(serializedBytes: item.body)
            let apps = AppStore(transaction: transaction)
            let known = try apps.record(AppID(told.app.appID))
            guard told.app.version > known?.entitlements.version ?? 0 else { return }
            var app = AppRecord(
                id: AppID(told.app.appID), name: told.app.name, entitlements: Entitlements(told.app),
                isRemoved: told.removed)
            if let known { app.plan = known.plan }
            try apps.save(app)
            try DirectoryEvents.publish([.app(app)], operation: context.id, in: transaction)
        case "container": try hear(try WireContainerState(serializedBytes: item.body), context, transaction)
        case "app-token":
            let told = try WireAppTokenState(serializedBytes: item.body)
            guard told.revoked, try AppTokenStore(transaction: transaction).token(told.tokenID) != nil else { return }
            try revokeAppToken(told.tokenID, context, transaction)
        case "token-key":
            try hear(try WireTokenKeyState(serializedBytes: item.body), item.item, context, transaction)
        default: break
        }
    }

    private func hear(
        _ told: WireTokenKeyState, _ name: String, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws {
        switch try signingKeys(transaction).standing(of: told.keyID, in: transaction) {
        case .unknown:
            // It was made after the copy, and is lost: it ends with the last tokens that it can have signed.
            guard told.retiresAt == 0, try transaction.item(directoryScope, ItemName(name)) == nil else { return }
            try DirectoryEvents.publish(
                [
                    .tokenKey(
                        id: told.keyID, publicKey: [UInt8](told.publicKey),
                        retires: context.now.advanced(by: configuration.accessTokenLifetime))
                ], operation: context.id, in: transaction)
        case .valid:
            // It was replaced after the copy was made: it is replaced again.
            guard told.retiresAt != 0 else { return }
            _ = try rotateSigningKey(WireRotateSigningKey(), context, transaction)
        case .retired: break
        }
    }
}
