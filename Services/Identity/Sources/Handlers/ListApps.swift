internal import ServiceKit
internal import Storage
internal import Wire

extension IdentityService {
    func listApps(
        _ request: WireListApps, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListAppsReply {
        var reply = WireListAppsReply()
        reply.apps = try AppStore(transaction: transaction).list().map(WireApp.init)
        return reply
    }
}
