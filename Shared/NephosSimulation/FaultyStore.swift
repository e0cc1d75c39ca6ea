internal import NephosContent
internal import NephosCore

/// The segments of contents, on a disk that fails when a test wants it to.
// Unchecked: a simulation has one thread.
final class FaultyStore: BlobStore, @unchecked Sendable {
    private let inner: any BlobStore
    private let reach: (String) -> FaultPlan.Order
    /// Holds the service up.
    private let stall: (Duration) -> Void
    /// Ends the service, for it to be started again by itself.
    private let kill: () -> Void

    init(
        _ inner: any BlobStore, reach: @escaping (String) -> FaultPlan.Order, stall: @escaping (Duration) -> Void,
        kill: @escaping () -> Void
    ) {
        self.inner = inner
        self.reach = reach
        self.stall = stall
        self.kill = kill
    }

    private func failure(_ message: String) -> CloudError { CloudError(.storageFailure, message) }

    func put(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup {
        switch reach("content.write") {
        case .proceed: return try inner.put(&group, in: partition)
        case .fail: throw failure("The disk is full. Nothing was stored.")
        case .slow(let delay):
            stall(delay)
            return try inner.put(&group, in: partition)
        case .halfDone:
            // The bytes lie there, and no row ever names them.
            defer { kill() }
            return try inner.put(&group, in: partition)
        }
    }

    func read(_ place: SegmentPlace, of id: ChunkID, into bytes: UnsafeMutableRawBufferPointer) throws {
        switch reach("content.read") {
        case .proceed, .halfDone: break
        case .fail: throw failure("The segment could not be read.")
        case .slow(let delay): stall(delay)
        }
        try inner.read(place, of: id, into: bytes)
    }

    func readRaw(_ segment: SegmentID, at offset: Int, into bytes: UnsafeMutableRawBufferPointer) throws -> Int {
        try inner.readRaw(segment, at: offset, into: bytes)
    }

    func remove(_ segment: SegmentID) throws { try inner.remove(segment) }
    func segments(in partition: Int) throws -> [SegmentState] { try inner.segments(in: partition) }
    var room: DiskRoom? { inner.room }
    var isLossAccepted: Bool { inner.isLossAccepted }
    func takeScrubRequest() -> Bool { inner.takeScrubRequest() }
}
