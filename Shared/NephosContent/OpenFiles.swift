private import Synchronization

#if canImport(Musl)
    private import Musl
#else
    private import Glibc
#endif

/// The segments' files that are open, of which there are few: the one that was not used for longest makes room.
/// Those in use count only while they are here, so there are at most as many more as calls at one time.
final class OpenFiles: Sendable {
    private struct State {
        var files: [SegmentID: (file: SegmentFile, used: UInt64)] = [:]
        var time: UInt64 = 0
    }

    private let state = Mutex(State())
    private let countMax: Int

    init(countMax: Int) { self.countMax = max(1, countMax) }

    var count: Int { state.withLock { $0.files.count } }

    /// The file, opened by the closure when it is not open, or only for reading.
    func file(_ segment: SegmentID, isWritable: Bool = false, open: () throws -> SegmentFile) throws -> SegmentFile {
        let known = state.withLock { state -> SegmentFile? in
            guard let file = state.files[segment]?.file, file.isWritable || !isWritable else { return nil }
            state.time += 1
            state.files[segment]?.used = state.time
            return file
        }
        if let known { return known }
        let file = try open()
        try keep(file, of: segment)
        return file
    }

    func keep(_ file: SegmentFile, of segment: SegmentID) throws {
        try state.withLock { state in
            // Whoever removes the file forgets it here afterwards; one that was removed before stays out.
            guard try !file.status().isRemoved else { return }
            state.time += 1
            state.files[segment] = (file, state.time)
            while state.files.count > countMax, let oldest = state.files.min(by: { $0.value.used < $1.value.used }) {
                state.files[oldest.key] = nil
            }
        }
    }

    func forgetAll() { state.withLock { $0.files = [:] } }

    func forget(_ segment: SegmentID) { state.withLock { $0.files[segment] = nil } }
}
