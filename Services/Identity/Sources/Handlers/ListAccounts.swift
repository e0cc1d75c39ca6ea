internal import Core
internal import ServiceKit
internal import Storage
internal import Wire

extension IdentityService {
    func listAccounts(
        _ request: WireListAccounts, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListAccountsReply {
        var reply = WireListAccountsReply()
        reply.accounts = try AccountStore(transaction: transaction).list().map { account in
            var wire = WireAccount()
            wire.accountID = account.id.rawValue
            wire.accountName = account.name
            wire.createdAt = account.created.milliseconds
            wire.deviceCount = UInt32(clamping: account.devices)
            wire.locked = account.isLocked
            wire.planID = account.plan.rawValue
            return wire
        }
        return reply
    }
}
