internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

private import struct Foundation.Data

/// What devices ask before they send or fetch.
extension Transfers {
    /// Bytes of nodes that are read and hashed in the time of a row.
    private static let nodeBytesPerRow = 4096
    /// What it may cost to read nodes, in calls: of 20 KiB each.
    static let nodesReserve = 170

    func findMissing(
        _ request: WireFindMissing, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireFindMissingReply {
        let caller = try context.requireCaller()
        let place = try place(of: request.container, .finding, caller, transaction)
        let ids = try Self.chunks(request.ids, max: DocumentLimits.missingMax)
        let upload = try Self.upload(request.transferID, at: place, of: caller.account)?.id
        let source = try source(request.sourceContainer, of: place, caller, transaction)
        // Looking for what is not there is work too.
        let rows = (upload == nil ? 2 : 4) + (source == nil ? 0 : 1) + UseStore.rows(lookingIn: place.siblings)
        transaction.charge(rows: rows * Set(ids).count)
        let found = try uses(at: place.of(upload), in: transaction)
            .missing(ids, in: upload, besides: source)
        var reply = WireFindMissingReply()
        reply.missing = found.missing.map { UInt32($0) }
        reply.held = found.held.map { UInt32($0) }
        reply.storedBytes = found.storedBytes
        reply.damaged = found.damaged.map { UInt32($0) }
        transaction.charge(rows: found.nodeBytes / Self.nodeBytesPerRow)
        return reply
    }

    /// Another container, whose chunks count as there.
    ///
    /// - Parameter name: Empty, or the container's own: none.
    private func source(
        _ name: String, of place: ContentPlace, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> ItemName? {
        guard !name.isEmpty else { return nil }
        let source = try self.place(of: name, .borrowing, caller, transaction)
        guard source.container != place.container else { return nil }
        guard source.owner == place.owner, source.partition == place.partition else {
            throw CloudError(.internalError, "What an account has lies in one partition.")
        }
        return source.container
    }

    /// - Throws: ``CloudError`` `.unknownItem`: the upload has ended, or something that a node names is not there;
    ///   `.invalidArguments`, `.limitExceeded`, `.quotaExceeded`.
    func storeNodes(
        _ request: WireStoreNodes, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireStoreNodesReply {
        let caller = try context.requireCaller()
        let place = try place(of: request.container, .storing, caller, transaction)
        guard !transaction.isShortOfRoom else { throw CloudError.diskFull }
        guard let upload = try Self.upload(request.transferID, at: place, of: caller.account) else {
            throw CloudError(.invalidArguments, "An upload has an id.", details: ["argument": "transfer_id"])
        }
        guard request.nodes.reduce(0, { $0 + $1.count }) <= DocumentLimits.nodesBytesMax else {
            throw CloudError(
                .limitExceeded, "Too many manifest nodes at once. Divide them.",
                details: ["bytes_max": "\(DocumentLimits.nodesBytesMax)"])
        }
        let own = place.of(upload.id)
        guard !own.container.rawValue.isEmpty else {
            throw CloudError(
                .invalidArguments, "Of a public database, nodes are stored for an asset, which its root names.",
                details: ["argument": "container"])
        }
        let bytes = request.nodes.reduce(0) { $0 + $1.count + DocumentLimits.rowBytes }
        try adding(UInt64(bytes), by: caller.account, to: own.owner, in: own.partition, at: context.now, transaction) {
            try uses(at: own, in: transaction).take(
                [], nodes: request.nodes.map { [UInt8]($0) }, from: upload.id)
        }
        return WireStoreNodesReply()
    }

    /// - Throws: ``CloudError`` `.unknownItem`: the container has one of them not.
    func readNodes(
        _ request: WireReadNodes, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireReadNodesReply {
        let caller = try context.requireCaller()
        let place = try place(of: request.container, .reading, caller, transaction)
        let uses = try uses(at: place, in: transaction)
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
}
