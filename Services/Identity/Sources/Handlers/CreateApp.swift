internal import Core
internal import ServiceKit
internal import Storage
internal import Wire

extension IdentityService {
    func createApp(
        _ request: WireCreateApp, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireCreateAppReply {
        let app = try EntitlementRule.app(request.app)
        let store = AppStore(transaction: transaction)
        guard try store.app(app.id) == nil else {
            throw CloudError(.alreadyExists, "An app with this id exists.")
        }
        try store.insert(app)
        try DirectoryEvents.publish([.app(app)], operation: context.id, in: transaction)
        var reply = WireCreateAppReply()
        reply.app = WireApp(app)
        return reply
    }
}
