internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension IdentityService {
    func createApp(
        _ request: WireCreateApp, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireCreateAppReply {
        let store = AppStore(transaction: transaction)
        let former = try store.record(AppID(request.app.appID))
        guard former?.isRemoved != false else {
            throw CloudError(.alreadyExists, "An app with this id exists. Change it with: nephos app update")
        }
        guard try former != nil || store.count() < EntitlementRule.appsMax else {
            throw CloudError(
                .limitExceeded, "The deployment has as many apps as it may. Give a removed app's id to the new one.",
                details: ["apps_max": "\(EntitlementRule.appsMax)"])
        }
        var reply = WireCreateAppReply()
        reply.app = try save(request.app, replacing: former, context, transaction)
        return reply
    }

    /// Stores the app as it is to be, and tells the services.
    func save(
        _ wire: WireApp, replacing former: AppRecord?, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> WireApp {
        var app = try EntitlementRule.app(wire, version: (former?.entitlements.version ?? 0) + 1)
        if let former {
            app.plan = former.plan
            var same = app.entitlements
            same.version = former.entitlements.version
            if !former.isRemoved, same == former.entitlements {
                // Another name only: no service has to hear of it, and no subscription to end.
                app.entitlements = same
                try AppStore(transaction: transaction).save(app)
                return WireApp(app)
            }
        }
        try AppStore(transaction: transaction).save(app)
        try DirectoryEvents.publish([.app(app)], operation: context.id, in: transaction)
        try recordOwner(app, operation: context.id, transaction)
        return WireApp(app)
    }

    /// The first app that lists a container is the one whose its public databases are, until the operator says another.
    func recordOwner(_ app: AppRecord, operation: OperationID?, _ transaction: any HandlerTransaction) throws {
        let store = ContainerStore(transaction: transaction)
        var states: [DirectoryEvents.State] = []
        for container in app.entitlements.containers {
            let former = try store.definition(of: container)
            guard former?.owner == nil else { continue }
            var definition = former ?? .standard
            definition.owner = app.id
            definition.version += 1
            try store.save(definition, of: container)
            states.append(.container(container, definition))
        }
        try DirectoryEvents.publish(states, operation: operation, in: transaction)
    }
}
