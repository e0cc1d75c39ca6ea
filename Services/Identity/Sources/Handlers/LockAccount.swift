internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// Withholds an account, or gives it back. Nothing of it changes but that its
// devices are refused, at every service, until it is unlocked.
extension IdentityService {
    func lockAccount(
        _ request: WireLockAccount, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireLockAccountReply {
        var account = try requireAccount(named: request.accountName, transaction)
        if account.isLocked != request.locked {
            account.isLocked = request.locked
            account.standingVersion += 1
            try AccountStore(transaction: transaction).save(account)
            try AuditJournal(transaction: transaction).record(
                request.locked ? .accountLocked : .accountUnlocked, of: account.id, by: .administrator, at: context.now)
            try DirectoryEvents.publish(
                [.account(account.id, request.locked ? .locked : .active, version: account.standingVersion)],
                operation: context.id, in: transaction)
        }
        let devices = try DeviceStore(transaction: transaction).devices(of: account.id)
        var reply = WireLockAccountReply()
        reply.account = WireAccount(account, devices: devices.count { $0.state == .active })
        return reply
    }
}
