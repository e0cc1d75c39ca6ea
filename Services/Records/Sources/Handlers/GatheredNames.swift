internal import NephosCore
internal import Synchronization

/// What indexes have found for queries whose pages come in the order of names: the next page need not read the same rows
/// again, as long as nothing was saved in the zone.
///
/// Bounded in bytes, for all together: what was used longest ago goes first. Any thread.
final class GatheredNames: Sendable {
    struct Key: Hashable {
        var zone: ScopeName
        /// The zone's head when they were read.
        var epoch: UInt64
        var sequence: UInt64
        var index: RecordIndex
        /// Where each of the spans begins and ends.
        var spans: [[UInt8]]
    }

    private struct Kept {
        var names: [ItemName]
        var bytes: Int
        var used: UInt64
    }

    private struct State {
        var kept: [Key: Kept] = [:]
        var bytes = 0
        var clock: UInt64 = 0
    }

    private let bytesMax: Int
    private let state = Mutex(State())

    init(bytesMax: Int = 4 << 20) { self.bytesMax = bytesMax }

    func names(for key: Key) -> [ItemName]? {
        state.withLock { state in
            guard state.kept[key] != nil else { return nil }
            state.clock += 1
            state.kept[key]?.used = state.clock
            return state.kept[key]?.names
        }
    }

    func keep(_ names: [ItemName], for key: Key) {
        let bytes =
            names.reduce(0) { $0 + $1.utf8.count + 32 } + key.spans.reduce(256) { $0 + $1.count }
            + key.zone.path.utf8.count
        guard bytes <= bytesMax / 2 else { return }
        state.withLock { state in
            if let former = state.kept.removeValue(forKey: key) { state.bytes -= former.bytes }
            while state.bytes + bytes > bytesMax, let oldest = state.kept.min(by: { $0.value.used < $1.value.used }) {
                state.kept[oldest.key] = nil
                state.bytes -= oldest.value.bytes
            }
            state.clock += 1
            state.kept[key] = Kept(names: names, bytes: bytes, used: state.clock)
            state.bytes += bytes
        }
    }
}
