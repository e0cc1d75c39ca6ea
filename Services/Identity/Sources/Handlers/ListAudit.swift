internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension IdentityService {
    func listAudit(
        _ request: WireListAudit, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListAuditReply {
        let account = try requireSubject(request.accountName, context, transaction).account
        let limit = min(request.limit == 0 ? 100 : Int(request.limit), AuditJournal.entriesMax)
        var reply = WireListAuditReply()
        let entries = try AuditJournal(transaction: transaction)
            .entries(of: account.id, before: request.before, limit: limit + 1)
        reply.entries = Array(entries.prefix(limit))
        reply.more = entries.count > limit
        return reply
    }
}
