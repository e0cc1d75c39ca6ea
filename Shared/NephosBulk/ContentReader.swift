internal import NephosChunks
internal import NephosContent
public import NephosCore
public import NephosServiceKit
public import NephosStorage

/// Reads a part of a content that a container uses, chunk by chunk, for whoever comes without a ticket. Each chunk is
/// looked up, read and opened as it is for a device that fetches it, and compared with its id, since whoever gets these
/// bytes cannot.
///
/// Every call waits for the disk: on a work pool's threads. Holds a manifest node of each level, and no chunk.
public struct ContentReader: Sendable {
    private let place: HoldStore.Place
    private let container: String
    private let sealer: ChunkSealer
    private let store: any BlobStore
    private let snapshots: any Snapshots
    private let range: Range<UInt64>
    private var manifest: ManifestReader

    init(
        _ content: UsedContent, of scope: ScopeName, _ range: Range<UInt64>, sealer: ChunkSealer,
        store: any BlobStore, snapshots: any Snapshots
    ) throws {
        guard let depth = UInt8(exactly: content.depth),
            let root = try? ContentRoot(id: content.root, depth: depth, length: content.length)
        else { throw Self.damaged }
        place = HoldStore.Place(owner: scope.owner, partition: scope.partition)
        container = scope.path.rawValue
        self.sealer = sealer
        self.store = store
        self.snapshots = snapshots
        self.range = range.clamped(to: 0..<content.length)
        manifest = ManifestReader(root, from: self.range.lowerBound)
    }

    /// The next bytes of the part, those of one chunk at most.
    ///
    /// - Parameter check: Run over the database as it is now; what it throws is thrown.
    /// - Returns: Nil: there are no more.
    /// - Throws: ``CloudError`` `.storageFailure`: a node is missing or damaged; ``DamagedContent``: a chunk is.
    public mutating func next(checking check: (any ReadTransaction) throws -> Void) throws -> [UInt8]? {
        while true {
            guard !range.isEmpty, manifest.position < range.upperBound else { return nil }
            switch manifest.next() {
            case .end: return nil
            case .node(let node):
                let bytes = try snapshots.read { snapshot in
                    try UseStore.nodeBytes(node.id, of: container, at: place, in: snapshot)
                }
                do {
                    guard let bytes else { throw Self.damaged }
                    try manifest.take(bytes.withUnsafeBytes { try ManifestNode(decoding: $0, as: node) })
                } catch { throw Self.damaged }
            case .chunk(let chunk):
                try snapshots.read(check)
                return try part(of: chunk)
            }
        }
    }

    private func part(of chunk: ManifestReader.Chunk) throws -> [UInt8] {
        let (found, isNoted) = try snapshots.read { snapshot in
            (
                try ChunkIndex.find(chunk.id, of: place.owner, in: place.partition, in: snapshot),
                try DamagedChunks.isNoted(chunk.id, of: place.owner, in: place.partition, in: snapshot)
            )
        }
        guard let found else { throw Self.damaged }
        do {
            let sealed = try store.read(chunk.id, of: place.owner, in: place.partition, through: snapshots)
            guard let sealed else { throw ChunkFailure.notAuthentic }
            let bytes = try Self.decoded(sealer.open(sealed, id: chunk.id))
            guard bytes.count == chunk.length, bytes.withUnsafeBytes({ ChunkID(hashing: $0) }) == chunk.id else {
                throw ChunkFailure.notAuthentic
            }
            let end = chunk.offset + UInt64(chunk.length)
            let (first, last) = (max(range.lowerBound, chunk.offset), min(range.upperBound, end))
            guard first > chunk.offset || last < end else { return bytes }
            return Array(bytes[Int(first - chunk.offset)..<Int(last - chunk.offset)])
        } catch let failure as ChunkFailure {
            guard !isNoted, let damage = failure.damage else { throw Self.damaged }
            throw DamagedContent(chunk: DamagedChunk(found, damage: damage))
        }
    }

    private static func decoded(_ opened: (bytes: [UInt8], encoding: ChunkEncoding)) throws -> [UInt8] {
        guard opened.encoding != .plain else { return opened.bytes }
        do {
            return try opened.bytes.withUnsafeBytes { bytes in
                try ChunkCoder().withDecoded(bytes, opened.encoding) { [UInt8]($0) }
            }
        } catch { throw ChunkFailure.notAuthentic }
    }

    private static let damaged = CloudError(
        .storageFailure, "The content cannot be read any more.", details: ["reason": "damaged"])
}

/// A chunk that could not be read for somebody who comes without a ticket; ``Transfers/note(_:)`` it.
public struct DamagedContent: Error {
    let chunk: DamagedChunk
}

extension Transfers {
    /// Notes a chunk that could not be read, if that is what the error says.
    public func note(_ error: any Error) {
        if let error = error as? DamagedContent { damage.note([.damaged(error.chunk)]) }
    }

    /// Reads a part of a content that the container uses, beside the loop.
    ///
    /// - Parameter key: Of the scope's owner.
    /// - Throws: ``CloudError`` `.serviceUnavailable` when the service has stopped; `.storageFailure`: there is no such
    ///   content.
    public func reader(
        of content: UsedContent, in scope: ScopeName, range: Range<UInt64>, key: OwnerKey
    ) throws -> ContentReader {
        guard let host else { throw CloudError(.serviceUnavailable, "The service is stopping.") }
        return try ContentReader(
            content, of: scope, range,
            sealer: try ChunkSealer(key: key.derived(for: "nephos content"), owner: scope.owner), store: store,
            snapshots: host.snapshots)
    }
}
