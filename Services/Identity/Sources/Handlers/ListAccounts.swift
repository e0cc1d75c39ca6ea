internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension IdentityService {
    private static let accountsPerPage = 1000

    func listAccounts(
        _ request: WireListAccounts, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListAccountsReply {
        var reply = WireListAccountsReply()
        let accounts = try AccountStore(transaction: transaction)
            .list(after: request.after, limit: Self.accountsPerPage + 1)
        reply.more = accounts.count > Self.accountsPerPage
        reply.accounts = accounts.prefix(Self.accountsPerPage).map { account in
            var wire = WireAccount()
            wire.accountID = account.id.rawValue
            wire.accountName = account.name
            wire.createdAt = account.created.milliseconds
            wire.deviceCount = UInt32(clamping: account.devices)
            wire.locked = account.isLocked
            wire.planID = account.plan.rawValue
            wire.usedBytes = account.used
            wire.lastSeenAt = account.lastSeen?.milliseconds ?? 0
            return wire
        }
        return reply
    }
}
