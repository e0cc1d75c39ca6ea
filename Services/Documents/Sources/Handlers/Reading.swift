internal import Foundation
internal import NephosBulk
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What devices ask about besides changes.
extension DocumentsService {
    func findMissing(
        _ request: WireFindMissing, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireFindMissingReply {
        let caller = try context.requireCaller()
        let container = try openContainer(request.container, caller, transaction)
        let ids = try Self.chunks(request.ids, max: DocumentLimits.missingMax)
        let upload = try Self.upload(request.transferID)
        let source = try sourceContainer(request.sourceContainer, of: container, caller, transaction)
        // Looking for what is not there is work too.
        transaction.charge(rows: ((upload == nil ? 2 : 4) + (source == nil ? 0 : 1)) * Set(ids).count)
        let found = try contentUses(container, caller, context.now).missing(ids, in: upload, besides: source)
        var reply = WireFindMissingReply()
        reply.missing = found.missing.map { UInt32($0) }
        reply.held = found.held.map { UInt32($0) }
        reply.storedBytes = found.storedBytes
        reply.damaged = found.damaged.map { UInt32($0) }
        transaction.charge(rows: found.nodeBytes / Self.nodeBytesPerRow)
        return reply
    }

    /// Bytes of nodes that are read and hashed in the time of a row.
    private static let nodeBytesPerRow = 4096

    /// Another container, whose chunks count as there.
    ///
    /// - Parameter name: Empty, or the container's own: none.
    /// - Throws: ``CloudError`` `.missingEntitlement`, as ``openContainer(_:_:_:)`` does: of what an app may not read
    ///   it does not learn either whether it exists.
    func sourceContainer(
        _ name: String, of container: Container, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> ItemName? {
        guard !name.isEmpty else { return nil }
        let source = try openContainer(name, caller, transaction).scope
        guard source != container.scope else { return nil }
        guard source.owner == container.scope.owner, source.partition == container.scope.partition else {
            throw CloudError(.internalError, "What an account has lies in one partition.")
        }
        return source.path
    }

    /// Nil: none is meant.
    static func upload(_ id: Data) throws(CloudError) -> ReservationID? {
        guard !id.isEmpty else { return nil }
        guard let id = ReservationID(bytes: id) else {
            throw CloudError(
                .invalidArguments, "A transfer's id has 16 bytes.", details: ["argument": "transfer_id"])
        }
        return id
    }

    /// - Throws: ``CloudError`` `.unknownItem`: the container has one of them not.
    func readNodes(
        _ request: WireReadNodes, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireReadNodesReply {
        let caller = try context.requireCaller()
        let container = try openContainer(request.container, caller, transaction)
        let uses = try contentUses(container, caller, context.now)
        var reply = WireReadNodesReply()
        reply.nodes = try Self.chunks(request.ids, max: DocumentLimits.nodesReadMax).map { Data(try uses.node($0)) }
        return reply
    }

    private static func chunks(_ ids: [Data], max: Int) throws(CloudError) -> [ChunkID] {
        guard ids.count <= max else {
            throw CloudError(.limitExceeded, "Too many ids at once. Divide them.", details: ["maximum": "\(max)"])
        }
        var chunks: [ChunkID] = []
        for id in ids {
            guard let chunk = ChunkID(bytes: [UInt8](id)) else {
                throw CloudError(.invalidArguments, "A chunk's id has 32 bytes.", details: ["argument": "ids"])
            }
            chunks.append(chunk)
        }
        return chunks
    }

    /// - Throws: ``CloudError`` `.unknownItem`.
    func listVersions(
        _ request: WireListVersions, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListVersionsReply {
        let caller = try context.requireCaller()
        let container = try openContainer(request.container, caller, transaction)
        guard let id = DocumentID(bytes: request.item), try container.item(id) != nil else {
            throw CloudError(.unknownItem, "The container has no such item.")
        }
        var reply = WireListVersionsReply()
        reply.versions = try container.versions(of: id)
        return reply
    }
}
