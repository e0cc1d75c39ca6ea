internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension IdentityService {
    private static let appsPerPage = 256

    func listApps(
        _ request: WireListApps, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListAppsReply {
        var reply = WireListAppsReply()
        let apps = try AppStore(transaction: transaction).list(after: request.after, limit: Self.appsPerPage + 1)
        reply.apps = apps.prefix(Self.appsPerPage).map(WireApp.init)
        reply.more = apps.count > Self.appsPerPage
        return reply
    }
}
