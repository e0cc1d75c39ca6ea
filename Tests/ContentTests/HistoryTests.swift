import NephosCore
import NephosStorage
import Testing

@testable import NephosContent

/// Random histories against a dictionary: whatever was done, what has a row is read, and room is given back.
@Suite struct HistoryTests {
    struct Crash: Error {}

    static let seeds = Array<UInt64>(0..<12)
    static let partitions = [3, 900]

    /// One history: a store, its rows, and what they must hold.
    private final class History {
        struct Key: Hashable {
            var owner: Owner
            var id: ChunkID
            var partition: Int
        }

        let folder: TemporaryFolder
        let engine: SQLiteEngine
        let disk = FailingDisk()
        var store: SegmentStore?
        var model: [Key: [UInt8]] = [:]
        var random: SplitMix64
        /// Rises by itself, and steps back now and then.
        var time: UInt64 = 1_800_000_000_000

        init(seed: UInt64) throws {
            random = SplitMix64(seed: seed)
            folder = try TemporaryFolder()
            engine = try ChunkIndexTests.engine()
        }

        func opened() throws -> SegmentStore {
            if let store { return store }
            time = UInt64(Int64(time) + Int64.random(in: -50...200, using: &random))
            let made = try NephosContent.SegmentStore(
                folder: folder.path, segmentBytesMax: 6000, openFilesMax: 3,
                now: { [time] in Timestamp(milliseconds: time) }, faults: { [disk] in disk.result(of: $0) })
            store = made
            return made
        }

        func step() throws {
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<45: try put()
            case 45..<65: try remove()
            case 65..<80: try rewrite()
            case 80..<85: try removeUnknown()
            case 85..<88: try removeOwner()
            case 88..<94: store = nil
            case 94..<97: try crashWithTornTail()
            default: try failingPut()
            }
        }

        private func key(in partition: Int) throws -> Key {
            let owner = Owner(Bool.random(using: &random) ? "account_a" : "account_b")
            return Key(owner: owner, id: try Self.id(Int.random(in: 0..<60, using: &random)), partition: partition)
        }

        private static func id(_ number: Int) throws -> ChunkID { try ContentTests.id(number) }

        private func group(in partition: Int) throws -> (keys: [(Key, [UInt8])], group: ChunkGroup) {
            var group = ChunkGroup(capacity: 8192)
            var keys: [(Key, [UInt8])] = []
            for _ in 0..<Int.random(in: 1...4, using: &random) {
                let key = try key(in: partition)
                guard !keys.contains(where: { $0.0 == key }) else { continue }
                // Not told by its id alone, so that bytes of a wrong place would be seen.
                let bytes = content(Int(time) + model.count, count: Int.random(in: 0...900, using: &random))
                try group.append(key.id, sealed: bytes)
                keys.append((key, bytes))
            }
            return (keys, group)
        }

        private func put() throws {
            let partition = HistoryTests.partitions.randomElement(using: &random) ?? 3
            var (keys, group) = try group(in: partition)
            let stored = try opened().put(&group, in: partition)
            defer { stored.release() }
            // Now and then the rows are never committed.
            guard Int.random(in: 0..<5, using: &random) > 0 else { return }
            try engine.write { transaction in
                for (chunk, (key, bytes)) in zip(stored.chunks, keys) {
                    try ChunkIndex.add([chunk], of: key.owner, in: transaction)
                    if model[key] == nil { model[key] = bytes }
                }
            }
        }

        private func failingPut() throws {
            let partition = HistoryTests.partitions.randomElement(using: &random) ?? 3
            var (_, group) = try group(in: partition)
            let calls: [DiskCall] = [.create, .write, .flush, .cut, .syncFolder]
            for call in calls where Bool.random(using: &random) { disk.fail(call, 5) }
            try? opened().put(&group, in: partition).release()
            disk.heal()
        }

        private func remove() throws {
            let some = Array(model.keys.sorted { $0.id.bytes.lexicographicallyPrecedes($1.id.bytes) }.prefix(40))
            for _ in 0..<3 {
                guard let key = some.randomElement(using: &random) else { return }
                let bytes = try engine.write {
                    try ChunkIndex.remove([key.id], of: key.owner, in: key.partition, in: $0)
                }
                #expect(bytes == (model.removeValue(forKey: key)?.count ?? 0))
            }
        }

        private func removeOwner() throws {
            let owner = Owner("account_b")
            while try engine.write({ try ChunkIndex.removeAll(of: owner, in: 3, limit: 5, in: $0) }) {}
            model = model.filter { $0.key.owner != owner || $0.key.partition != 3 }
        }

        private func rewrite() throws {
            let worth = try engine.write { try ChunkIndex.segmentsWorthRewriting(limit: 10, in: $0) }
            guard let segment = worth.randomElement(using: &random)?.segment else { return }
            var rewrite = SegmentRewrite(segment, in: try opened())
            var group = ChunkGroup(capacity: 4096)
            let crash = Int.random(in: 0..<4, using: &random)
            do {
                while try rewrite.step(
                    &group, at: Timestamp(milliseconds: time), through: engine.snapshots,
                    commit: { body in
                        if crash == 0 { throw Crash() }
                        let isEmpty = try engine.write(body)
                        if crash == 1 { throw Crash() }
                        return isEmpty
                    }) == .goesOn
                {}
            } catch is Crash {
                store = nil
            }
        }

        private func removeUnknown() throws {
            // Some at a time, so that there are always others that are kept.
            let emptied = try SegmentRewrite.removeEmptied(
                of: opened(), before: Timestamp(milliseconds: .max), limit: 3, through: engine.snapshots)
            try engine.write { try ChunkIndex.forgetEmptied(emptied, in: $0) }
            for partition in HistoryTests.partitions {
                _ = try SegmentRewrite.removeUnknown(
                    in: partition, of: opened(), begunBefore: Timestamp(milliseconds: .max), through: engine.snapshots)
            }
        }

        /// A crash in the middle of a put: some of a group's bytes are at the end of the newest file.
        private func crashWithTornTail() throws {
            let partition = HistoryTests.partitions.randomElement(using: &random) ?? 3
            guard let last = try opened().segments(in: partition).last?.id else { return }
            store = nil
            let rest = content(1, count: Int.random(in: 1...200, using: &random))
            try folder.write(folder.bytes(of: last) + rest, to: last)
        }

        func check() throws {
            let store = try opened()
            for (key, bytes) in model {
                let read = try store.read(key.id, of: key.owner, in: key.partition, through: engine.snapshots)
                #expect(read == bytes)
            }
            try engine.write { transaction in
                for partition in HistoryTests.partitions {
                    for owner in [Owner("account_a"), Owner("account_b")] {
                        let mine = model.filter { $0.key.owner == owner && $0.key.partition == partition }
                        let use = try ChunkIndex.use(of: owner, in: partition, in: transaction)
                        #expect(use == (mine.values.reduce(0) { $0 + $1.count }, mine.count))
                    }
                }
                let segments = try ChunkIndex.segments(limit: 1000, in: transaction)
                let live = model.values.reduce(0) { $0 + $1.count + RecordHeader.byteCount }
                #expect(segments.reduce(0) { $0 + $1.liveBytes } == live)
            }
            let segments = try engine.write { try ChunkIndex.segments(limit: 1000, in: $0) }
            for segment in segments {
                var scrub = SegmentScrub(segment.segment, in: store)
                var isDone = false
                while !isDone {
                    let result = try scrub.step(bytesMax: 2000, through: engine.snapshots)
                    #expect(result.findings.isEmpty)
                    isDone = result.isDone
                }
            }
        }

        /// Everything removed and rewritten: all room is given back, but for each partition's current segment.
        func checkThatAllRoomReturns() throws {
            for key in model.keys {
                _ = try engine.write { try ChunkIndex.remove([key.id], of: key.owner, in: key.partition, in: $0) }
            }
            model = [:]
            store = nil
            for segment in try engine.write({ try ChunkIndex.segmentsWorthRewriting(limit: 1000, in: $0) }) {
                var rewrite = SegmentRewrite(segment.segment, in: try opened())
                var group = ChunkGroup(capacity: 4096)
                _ = try rewrite.step(&group, at: Timestamp(milliseconds: time), through: engine.snapshots) {
                    try engine.write($0)
                }
            }
            for _ in 0..<300 { try removeUnknown() }
            for partition in HistoryTests.partitions {
                let left = try opened().segments(in: partition)
                #expect(left.count <= 1 && left.allSatisfy { !$0.isClosed })
            }
        }
    }

    @Test(arguments: seeds)
    func everyChunkWithARowIsReadAndDeadRoomReturns(seed: UInt64) throws {
        let history = try History(seed: seed)
        for step in 0..<300 {
            try history.step()
            if step % 50 == 49 { try history.check() }
        }
        try history.check()
        try history.checkThatAllRoomReturns()
    }
}
