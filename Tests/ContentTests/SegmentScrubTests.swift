import NephosCore
import NephosStorage
import Testing

@testable import NephosContent

@Suite struct SegmentScrubTests {
    let folder: TemporaryFolder
    let engine: SQLiteEngine

    init() throws {
        folder = try TemporaryFolder()
        engine = try ChunkIndexTests.engine()
    }

    func add(_ chunks: [StoredChunk]) throws {
        _ = try engine.write { try ChunkIndex.add(chunks, of: owner, in: $0) }
    }

    func row(_ chunk: StoredChunk) -> IndexedChunk {
        IndexedChunk(owner: owner, id: chunk.id, place: chunk.place)
    }

    /// All steps' findings; how many steps there were.
    func scrub(
        _ segment: SegmentID, in store: SegmentStore, bytesMax: Int = 1 << 20
    ) throws -> (findings: [SegmentScrub.Finding], steps: Int) {
        var scrub = SegmentScrub(segment, in: store)
        var findings: [SegmentScrub.Finding] = []
        for step in 1...10_000 {
            let result = try scrub.step(bytesMax: bytesMax, through: engine.snapshots)
            findings += result.findings
            if result.isDone { return (findings, step) }
        }
        Issue.record("It does not end.")
        return (findings, .max)
    }

    @Test func everyFlippedBitIsFoundAndNamed() throws {
        let store = try store(folder)
        let chunks = try store.put(0..<3, count: 11)
        try add(chunks)
        let segment = try #require(chunks.first).place.segment
        let whole = try folder.bytes(of: segment)
        #expect(try scrub(segment, in: store).findings.isEmpty)
        for bit in 0..<whole.count * 8 {
            var damaged = whole
            damaged[bit / 8] ^= 1 << UInt8(bit % 8)
            try folder.write(damaged, to: segment)
            let chunk = chunks.first { $0.place.offset <= bit / 8 && bit / 8 < $0.place.end }
            let expected = chunk.map { SegmentScrub.Finding.damaged(row($0)) } ?? .damagedHeader(segment)
            #expect(try scrub(segment, in: store).findings == [expected], "bit \(bit)")
            if let chunk { #expect(isDamaged { _ = try store.read(chunk.place, of: chunk.id) }) }
        }
    }

    /// Nothing could rest on such a chunk, and who asks what is missing would not be told of it.
    @Test func aRowWhoseLengthsCannotBothBeTrueIsDamaged() throws {
        let store = try store(folder)
        let chunks = try store.put(0..<3, count: 100)
        try add(chunks)
        _ = try engine.write {
            try $0.execute(
                SQL("UPDATE content_chunks SET content_length = 72 WHERE id = ?1"), [.blob(chunks[1].id.bytes)])
        }
        let segment = try #require(chunks.first).place.segment
        let form = SealedForm(suite: 1, contentLength: 72)
        let damaged = IndexedChunk(owner: owner, id: chunks[1].id, place: chunks[1].place, form)
        #expect(try scrub(segment, in: store).findings == [.damaged(damaged)])
    }

    @Test func eachCutLeavesWhatIsMissing() throws {
        let store = try store(folder)
        let chunks = try store.put(0..<3, count: 11)
        try add(chunks)
        let segment = try #require(chunks.first).place.segment
        let whole = try folder.bytes(of: segment)
        // The current segment's end is known; so as the next start finds it.
        _ = try store.put(3..<4, count: 1 << 20 - 200, in: 7)
        for length in 0..<whole.count {
            try folder.write(Array(whole[..<length]), to: segment)
            let missing = chunks.filter { $0.place.end > length }.map { SegmentScrub.Finding.missing(row($0)) }
            let header: [SegmentScrub.Finding] = length < SegmentHeader.byteCount ? [.damagedHeader(segment)] : []
            #expect(try scrub(segment, in: store).findings == header + missing, "cut at \(length)")
        }
        try store.remove(segment)
        #expect(try scrub(segment, in: store).findings == [.damagedHeader(segment)] + chunks.map { .missing(row($0)) })
    }

    @Test func damageInDeadRoomIsToldApart() throws {
        let store = try store(folder)
        let chunks = try store.put(0..<4, count: 50)
        try add([chunks[0], chunks[3]])
        let segment = chunks[0].place.segment
        let whole = try folder.bytes(of: segment)
        for bit in chunks[1].place.offset * 8..<chunks[2].place.end * 8 {
            var damaged = whole
            damaged[bit / 8] ^= 1 << UInt8(bit % 8)
            try folder.write(damaged, to: segment)
            let findings = try scrub(segment, in: store).findings
            let dead = bit / 8 < chunks[1].place.end ? chunks[1] : chunks[2]
            #expect(findings == [.damagedDeadRoom(segment, offset: dead.place.offset)], "bit \(bit)")
        }
    }

    @Test func aStepIsBoundedAndNothingIsSeenTwice() throws {
        let store = try store(folder)
        let chunks = try store.put(0..<1000, count: 50)
        try add(chunks.filter { $0.place.offset % 3 == 0 })
        let segment = chunks[0].place.segment
        var damaged = try folder.bytes(of: segment)
        let hurt = chunks.filter { $0.place.offset % 3 == 0 }.enumerated().filter { $0.offset % 40 == 0 }.map(\.element)
        for chunk in hurt { damaged[chunk.place.offset + 60] ^= 4 }
        try folder.write(damaged, to: segment)
        let expected = hurt.map { SegmentScrub.Finding.damaged(row($0)) }
        for bytesMax in [1, 500, 10_000, 1 << 20] {
            let result = try scrub(segment, in: store, bytesMax: bytesMax)
            #expect(result.findings == expected)
            #expect(result.steps >= damaged.count / (bytesMax + 200))
        }
    }

    @Test func aRowThatIsDamagedItselfIsNamedAndTheOthersAreLookedAt() throws {
        let store = try store(folder)
        let chunks = try store.put(0..<5, count: 50)
        let segment = chunks[0].place.segment
        try add(chunks)
        try engine.write {
            _ = try $0.execute(SQL("UPDATE content_chunks SET suite = 257 WHERE id = ?1"), [.blob(chunks[1].id.bytes)])
        }
        var bytes = try folder.bytes(of: segment)
        bytes[chunks[3].place.offset + 60] ^= 1
        try folder.write(bytes, to: segment)
        let row = SegmentScrub.Finding.damagedRow(owner: owner, id: chunks[1].id.bytes, chunks[1].place)
        for bytesMax in [1, 1 << 20] {
            #expect(try scrub(segment, in: store, bytesMax: bytesMax).findings == [row, .damaged(self.row(chunks[3]))])
        }
        _ = try engine.write { try ChunkIndex.replace([chunks[1]], of: owner, in: $0) }
        #expect(try scrub(segment, in: store).findings == [.damaged(self.row(chunks[3]))])
    }

    @Test func aRowThatNamesAnotherPlaceIsFound() throws {
        let store = try store(folder)
        let chunks = try store.put(0..<3, count: 50)
        let segment = chunks[0].place.segment
        try add(chunks)
        let set = SQL("UPDATE content_chunks SET segment_offset = ?1, length = ?2 WHERE id = ?3")
        let numbers: [Int64] = [.min, -1, 0, 31, 33, Int64(chunks[1].place.offset), 1 << 30, .max - 1, .max]
        for offset in numbers {
            for length in [Int64.min, -1, 0, 50, 1 << 30, .max] {
                try engine.write {
                    _ = try $0.execute(set, [.integer(offset), .integer(length), .blob(chunks[2].id.bytes)])
                }
                let findings = try scrub(segment, in: store, bytesMax: 100).findings
                let named = findings.filter {
                    switch $0 {
                    case .damaged(let chunk), .missing(let chunk): chunk.id == chunks[2].id
                    case .damagedHeader, .damagedDeadRoom, .damagedRow, .recovered: false
                    }
                }
                #expect(named.count == 1 && findings.count == 1, "offset \(offset), length \(length): \(findings)")
            }
        }
    }
}
