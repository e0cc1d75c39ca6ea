internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension KeyValueService {
    private static let resolvedKeysMax = 100
    /// Conflicts that one request resolves.
    static let resolvedMax = 1000

    /// Conflicts that somebody has decided are no longer listed as such.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`; `.limitExceeded` (more than 100 keys: ask in parts).
    func resolveKeyConflicts(
        _ request: WireResolveKeyConflicts, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireResolveKeyConflictsReply {
        guard request.keys.count <= Self.resolvedKeysMax else {
            throw CloudError(
                .limitExceeded, "A request resolves conflicts of at most \(Self.resolvedKeysMax) keys.",
                details: ["keys": "\(request.keys.count)"])
        }
        let store = try openStore(request.storeID, context, transaction)
        let keys: [ItemName?] = request.keys.isEmpty ? [nil] : request.keys.map { ItemName($0) }
        var left = Self.resolvedMax
        for key in keys where left > 0 {
            left -= try KeyHistory.resolve(
                store.scope, key: key, recordedUntil: Timestamp(milliseconds: request.recordedUntil), limit: left,
                in: transaction)
        }
        var reply = WireResolveKeyConflictsReply()
        reply.count = UInt32(Self.resolvedMax - left)
        reply.more = left == 0
        return reply
    }
}
