internal import Foundation
internal import NephosCore
internal import NephosWire

/// Chunks that the server cannot read any more, and that contents rest on.
struct ContentDamage: Equatable, Sendable {
    /// The first of them, by their ids.
    var chunks: Set<ChunkID> = []
    /// There are more than these, or may be.
    var hasMore = false
    /// The service finds none of its contents: nothing of them can be said, and nothing is to be sent.
    var isAllMissing = false

    init() {}

    init(_ info: WireContainerInfo) {
        self.init(info.damagedChunks, hasMore: info.moreDamaged)
        isAllMissing = info.contentMissing
    }

    init(_ info: WireDatabaseInfo) {
        self.init(info.damagedChunks, hasMore: info.moreDamaged)
        isAllMissing = info.contentMissing
    }

    init(_ chunks: [Data], hasMore: Bool) {
        self.chunks = Set(
            chunks.prefix(DocumentLimits.damagedPageMax).compactMap { ChunkID(bytes: [UInt8]($0)) })
        self.hasMore = hasMore
    }

    /// Whether there is any, or may be.
    var isAnything: Bool { isAllMissing || hasMore || !chunks.isEmpty }

    /// Whether a content of these chunks may be among what is lost, as far as the service has said: where there is more than
    /// it named, it may be any that comes after those.
    func mayConcern(_ chunks: [CutChunk]) -> Bool {
        guard !isAllMissing else { return true }
        let last = next
        return chunks.contains { chunk in
            self.chunks.contains(chunk.id)
                || (last.map { $0.lexicographicallyPrecedes(Data(chunk.id.bytes)) } ?? false)
        }
    }

    /// So many at least. Where none is named, and there may be some, nothing may be called whole.
    var countAtLeast: Int { chunks.isEmpty && hasMore ? 1 : chunks.count }

    /// Where the next page begins; nil: these are all.
    var next: Data? {
        hasMore ? chunks.map { Data($0.bytes) }.max { $0.lexicographicallyPrecedes($1) } ?? Data() : nil
    }
}

extension Session {
    /// Pages of what a service has lost that are turned for one question.
    private static let damagePagesMax = 256

    /// All that a service cannot read any more, where it has said only some of it.
    ///
    /// - Throws: ``CloudError``: what keeps it from answering.
    func whole(
        _ damage: ContentDamage, of place: ContentPlace, _ timeout: Duration
    ) async throws(CloudError) -> ContentDamage {
        var (damage, next) = (damage, damage.next)
        for _ in 0..<Self.damagePagesMax {
            guard let after = next else { break }
            var request = WireListDamagedChunks()
            request.container = place.container
            request.after = after
            let reply = try await call(
                place.service, request, as: WireListDamagedChunksReply.self, app: place.app, timeout: timeout)
            damage.chunks.formUnion(ContentDamage(reply.chunks, hasMore: false).chunks)
            // Else it would turn pages for ever.
            next = after.lexicographicallyPrecedes(reply.next) ? reply.next : nil
        }
        damage.hasMore = next != nil
        return damage
    }

    /// Whether a content has one of the chunks, or the list of its chunks is lost itself.
    ///
    /// - Throws: ``CloudError``: what keeps the service from answering which chunks a long one has.
    func rests(
        _ root: Data, depth: UInt32, length: UInt64, on damage: ContentDamage, of place: ContentPlace,
        _ timeout: Duration
    ) async throws(CloudError) -> Bool {
        guard let root = ChunkID(bytes: [UInt8](root)) else { return false }
        guard depth > 0 else { return damage.chunks.contains(root) }
        var walk = try ContentWalk(root: root, depth: depth, length: length, range: 0..<length)
        while true {
            switch try walk.next() {
            case .end: return false
            case .chunk(let chunk, _): if damage.chunks.contains(chunk.id) { return true }
            case .nodes(let ids):
                do throws(CloudError) { try walk.take(try await nodes(ids, of: place, timeout)) } catch {
                    // What names its chunks is lost itself.
                    if error.code == .storageFailure { return true }
                    // Somebody has removed it meanwhile.
                    if error.code == .unknownItem { return false }
                    throw error
                }
            }
        }
    }

    private func nodes(
        _ ids: [ChunkID], of place: ContentPlace, _ timeout: Duration
    ) async throws(CloudError) -> [Data] {
        var request = WireReadNodes()
        request.container = place.container
        request.ids = ids.map { Data($0.bytes) }
        return try await call(place.service, request, as: WireReadNodesReply.self, app: place.app, timeout: timeout)
            .nodes
    }
}
