internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// What an app may use is in each access token and in each service's copy of the
// directory, and the newer of the two counts: so a change is heeded at once.
extension IdentityService {
    func updateApp(
        _ request: WireUpdateApp, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireUpdateAppReply {
        let former = try requireChangeableApp(request.appID, transaction)
        // What it has, with what is named in its place: an update widens nothing by leaving something out.
        var wire = WireApp(former)
        if request.hasName { wire.name = request.name }
        if request.hasStoreID { wire.storeID = request.storeID }
        if request.hasContainers { wire.containerIds = request.containers.ids }
        if request.hasCapabilities { wire.capabilities = request.capabilities.values }
        guard !wire.capabilities.isEmpty else {
            throw CloudError(
                .invalidArguments, "An app has at least one capability. To take all from it: nephos app remove",
                details: ["argument": "capabilities"])
        }
        var reply = WireUpdateAppReply()
        reply.app = try save(wire, replacing: former, context, transaction)
        return reply
    }

    func removeApp(
        _ request: WireRemoveApp, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRemoveAppReply {
        var app = try requireChangeableApp(request.appID, transaction)
        app.isRemoved = true
        app.entitlements.version += 1
        try AppStore(transaction: transaction).save(app)
        try DirectoryEvents.publish([.app(app)], operation: context.id, in: transaction)
        return WireRemoveAppReply()
    }

    private func requireChangeableApp(_ id: String, _ transaction: any HandlerTransaction) throws -> AppRecord {
        guard AppID(id) != Self.defaultApp.id else {
            throw CloudError(.constraintViolation, "The default app stays as it is. Register an app of your own.")
        }
        guard let app = try AppStore(transaction: transaction).app(AppID(id)) else {
            throw CloudError(.unknownItem, "This deployment has no such app. See: nephos app list")
        }
        return app
    }
}
