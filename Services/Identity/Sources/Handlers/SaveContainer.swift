internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// What containers are. Every service hears of it as of what apps may use; what follows from it is the service's that has
// the container.
extension IdentityService {
    private static let containersPerPage = 256

    func saveContainer(
        _ request: WireSaveContainer, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireSaveContainerReply {
        let store = ContainerStore(transaction: transaction)
        let container = ItemName(request.definition.containerID)
        let former = try store.definition(of: container)
        // What was read and is changed in part keeps the rest: so it has to be what is there.
        let isThis = request.definition.version == 0 || request.definition.version == former?.version
        guard isThis, former == nil || !request.isFirst else {
            throw CloudError(
                .serverRecordChanged,
                "Somebody else has changed the container meanwhile. List it, and change it again.",
                details: ["container": container.rawValue])
        }
        var definition = try EntitlementRule.definition(request.definition, version: (former?.version ?? 0) + 1)
        if let writer = definition.writer { _ = try requireApp(writer.rawValue, transaction) }
        if let owner = definition.owner { _ = try requireApp(owner.rawValue, transaction) }
        definition.owner = definition.owner ?? former?.owner
        definition.administrators = former?.administrators ?? []
        if request.hasAdministrators {
            guard request.administrators.accountNames.count <= EntitlementRule.administratorsMax else {
                throw CloudError(
                    .limitExceeded, "A container has fewer administrators.",
                    details: ["maximum": "\(EntitlementRule.administratorsMax)"])
            }
            definition.administrators = try request.administrators.accountNames.map {
                try requireAccount(named: $0, transaction).id
            }
        }
        guard try former != nil || store.count() < EntitlementRule.definitionsMax else {
            throw CloudError(
                .limitExceeded, "The deployment has as many containers of which something is said as it may.",
                details: ["containers_max": "\(EntitlementRule.definitionsMax)"])
        }
        try store.save(definition, of: container)
        try DirectoryEvents.publish([.container(container, definition)], operation: context.id, in: transaction)
        var reply = WireSaveContainerReply()
        reply.definition = try told(definition, of: container, transaction)
        return reply
    }

    func listContainers(
        _ request: WireListContainers, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListContainersReply {
        let found = try ContainerStore(transaction: transaction).list(
            after: request.after, limit: Self.containersPerPage + 1)
        var reply = WireListContainersReply()
        reply.definitions = try found.prefix(Self.containersPerPage).map {
            try told($0.definition, of: $0.container, transaction)
        }
        reply.more = found.count > Self.containersPerPage
        return reply
    }

    /// As the operator gets it: with names of accounts.
    private func told(
        _ definition: ContainerDefinition, of container: ItemName, _ transaction: any HandlerTransaction
    ) throws -> WireContainerDefinition {
        var wire = WireContainerDefinition(definition, of: container)
        let accounts = AccountStore(transaction: transaction)
        wire.administratorNames = try definition.administrators.compactMap { try accounts.account($0)?.name }
        return wire
    }

    /// A service tells what identity has said and forgotten: the newer of the two counts.
    func hear(
        _ told: WireContainerState, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws {
        let store = ContainerStore(transaction: transaction)
        let container = ItemName(told.definition.containerID)
        let definition = ContainerDefinition(told.definition)
        guard definition.containerClass != nil,
            try definition.version > store.definition(of: container)?.version ?? 0
        else { return }
        try store.save(definition, of: container)
        try DirectoryEvents.publish([.container(container, definition)], operation: context.id, in: transaction)
    }
}
