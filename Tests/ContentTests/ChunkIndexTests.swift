import NephosCore
import NephosStorage
import Testing

@testable import NephosContent

@Suite struct ChunkIndexTests {
    let engine: SQLiteEngine
    let segment = SegmentID(partition: 7, number: 5)

    init() throws { engine = try Self.engine() }

    static func engine() throws -> SQLiteEngine {
        let engine = try SQLiteEngine.inMemory()
        try engine.migrate(ContentSchema.migrations)
        return engine
    }

    /// One after another, of 100 sealed bytes each.
    func chunk(_ number: Int, in segment: SegmentID? = nil) throws -> StoredChunk {
        let place = SegmentPlace(segment: segment ?? self.segment, offset: 32 + number * 156, length: 100)
        return StoredChunk(id: try id(number), place: place)
    }

    func use(_ transaction: any ReadTransaction) throws -> SegmentUse? {
        try ChunkIndex.use(of: segment, in: transaction)
    }

    @Test func chunksAreFoundOneByOneAndManyAtOnce() throws {
        try engine.write { transaction in
            let chunks = try (0..<100).map { try chunk($0) }
            #expect(try ChunkIndex.add(chunks, of: owner, in: transaction) == 10_000)
            let expected = IndexedChunk(owner: owner, id: try id(3), place: chunks[3].place)
            #expect(try ChunkIndex.find(id(3), of: owner, in: 7, in: transaction) == expected)
            #expect(try ChunkIndex.find(id(3), of: Owner("account_b"), in: 7, in: transaction) == nil)
            #expect(try ChunkIndex.find(id(3), of: owner, in: 8, in: transaction) == nil)
            for count in [0, 1, 31, 32, 33, 64, 100, 150] {
                let ids = try (0..<count).map { try id($0) }
                let found = try ChunkIndex.find(ids + ids, of: owner, in: 7, in: transaction)
                #expect(found.count == min(count, 100))
                for (id, row) in found { #expect(row.id == id && chunks.contains { $0.place == row.place }) }
            }
        }
    }

    @Test func whatIsRemovedAndWhatNeverGotARowIsDeadRoom() throws {
        try engine.write { transaction in
            // The first two never got rows.
            try ChunkIndex.add((2..<6).map { try chunk($0) }, of: owner, in: transaction)
            #expect(try use(transaction) == SegmentUse(segment: segment, length: 32 + 6 * 156, liveBytes: 4 * 156))
            let none = try ChunkIndex.segmentsWorthRewriting(limit: 10, in: transaction)
            #expect(none.isEmpty)
            // One of them twice, and one that is not there.
            let removed = try [id(2), id(2), id(99)]
            #expect(try ChunkIndex.remove(removed, of: owner, in: 7, in: transaction) == 100)
            #expect(try ChunkIndex.remove(removed, of: owner, in: 7, in: transaction) == 0)
            #expect(try use(transaction)?.liveBytes == 3 * 156)
            let worth = try ChunkIndex.segmentsWorthRewriting(limit: 10, in: transaction)
            #expect(worth.map(\.segment) == [segment])
            #expect(try ChunkIndex.segmentsWorthRewriting(after: segment, limit: 10, in: transaction).isEmpty)
            #expect(try ChunkIndex.segments(limit: 10, in: transaction).map(\.segment) == [segment])
        }
    }

    @Test func aChunkThatTheOwnerHasKeepsItsPlace() throws {
        try engine.write { transaction in
            try ChunkIndex.add([chunk(0)], of: owner, in: transaction)
            let again = StoredChunk(id: try id(0), place: try chunk(1).place)
            #expect(try ChunkIndex.add([again], of: owner, in: transaction) == 0)
            #expect(try ChunkIndex.find(id(0), of: owner, in: 7, in: transaction)?.place == chunk(0).place)
            #expect(try use(transaction) == SegmentUse(segment: segment, length: 32 + 2 * 156, liveBytes: 156))
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (100, 1))
        }
    }

    @Test func anOwnerGoesInBoundedStepsAndTheOthersStay() throws {
        let other = Owner("account_b")
        try engine.write { transaction in
            try ChunkIndex.add((0..<10).map { try chunk($0) }, of: owner, in: transaction)
            try ChunkIndex.add((10..<12).map { try chunk($0) }, of: other, in: transaction)
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (1000, 10))
            #expect(try ChunkIndex.removeAll(of: owner, in: 7, limit: 6, in: transaction))
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (400, 4))
            #expect(try !ChunkIndex.removeAll(of: owner, in: 7, limit: 6, in: transaction))
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (0, 0))
            #expect(try ChunkIndex.use(of: other, in: 7, in: transaction) == (200, 2))
            #expect(try use(transaction)?.liveBytes == 2 * 156)
            let owners = try transaction.all(SQL("SELECT owner FROM content_owners")) { $0.text(0) }
            #expect(owners == ["account_b"])
        }
    }

    @Test func aRowMovesOnlyFromThePlaceThatItStillNames() throws {
        let newer = SegmentID(partition: 7, number: 6)
        let now = Timestamp(milliseconds: 1_800_000_000_000)
        try engine.write { transaction in
            try ChunkIndex.add([chunk(0), chunk(1)], of: owner, in: transaction)
            let rows = try ChunkIndex.chunks(in: segment, limit: 10, in: transaction)
            #expect(rows.count == 2)
            try ChunkIndex.remove([id(0)], of: owner, in: 7, in: transaction)
            let moves = try rows.enumerated().map { (chunk: $1, to: try chunk($0, in: newer).place) }
            try ChunkIndex.move(moves, in: transaction)
            try ChunkIndex.move(moves, in: transaction)
            #expect(try ChunkIndex.find(id(0), of: owner, in: 7, in: transaction) == nil)
            #expect(try ChunkIndex.find(id(1), of: owner, in: 7, in: transaction)?.place == moves[1].to)
            #expect(try use(transaction)?.liveBytes == 0)
            let moved = try ChunkIndex.use(of: newer, in: transaction)
            #expect(moved == SegmentUse(segment: newer, length: 32 + 2 * 156, liveBytes: 156))
            #expect(try !ChunkIndex.forget(newer, at: now, in: transaction))
            #expect(try ChunkIndex.forget(segment, at: now, in: transaction))
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (100, 1))
        }
    }

    private static let setLength = SQL("UPDATE content_chunks SET length = ?1 WHERE id = ?2")

    @Test(arguments: [Int64.min, -1, 1 << 40, .max])
    func aDamagedLengthIsRemovedAndCountsNothing(length: Int64) throws {
        try engine.write { transaction in
            try ChunkIndex.add((0..<4).map { try chunk($0) }, of: owner, in: transaction)
            for number in 0..<2 {
                try transaction.execute(Self.setLength, [.integer(length), .blob(id(number).bytes)])
            }
            #expect(try ChunkIndex.remove([id(0), id(2)], of: owner, in: 7, in: transaction) == 100)
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (300, 2))
            #expect(try ChunkIndex.replace([chunk(5)], of: owner, in: transaction) == 100)
            #expect(try !ChunkIndex.removeAll(of: owner, in: 7, limit: 10, in: transaction))
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (0, 0))
        }
    }

    /// A suite that is none, or an id that is too short.
    @Test(arguments: [
        "UPDATE content_chunks SET suite = 257 WHERE id = ?1",
        "UPDATE content_chunks SET suite = -1 WHERE id = ?1",
        "UPDATE content_chunks SET id = substr(id, 1, 31) WHERE id = ?1",
    ])
    func aDamagedRowStopsNoOther(damage: String) throws {
        try engine.write { transaction in
            try ChunkIndex.add((0..<10).map { try chunk($0) }, of: owner, in: transaction)
            try transaction.execute(SQL(damage), [.blob(id(4).bytes)])
            let ids = try (0..<10).map { try id($0) }
            let found = try ChunkIndex.find(ids, of: owner, in: 7, in: transaction)
            #expect(Set(found.keys) == Set(ids).subtracting([ids[4]]))
            #expect(try ChunkIndex.chunks(in: segment, limit: 10, in: transaction).count == 9)
            #expect(try ChunkIndex.remove([ids[1], ids[4]], of: owner, in: 7, in: transaction) >= 100)
            #expect(try !ChunkIndex.removeAll(of: owner, in: 7, limit: 10, in: transaction))
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (0, 0))
            #expect(try use(transaction)?.liveBytes == 0)
        }
    }

    /// Sealed lengths are those of the segments and owners, and the chunk's own length is beside them.
    @Test func aCompressedChunkIsAccountedAsItLies() throws {
        try engine.write { transaction in
            var place = try chunk(0).place
            place.length = 129
            let packed = SealedForm(suite: 2, contentLength: 5000)
            let stored = StoredChunk(id: try id(0), place: place, packed)
            #expect(try ChunkIndex.add([stored], of: owner, in: transaction) == 129)
            #expect(try ChunkIndex.find(id(0), of: owner, in: 7, in: transaction)?.form == packed)
            #expect(try use(transaction) == SegmentUse(segment: segment, length: place.end, liveBytes: 185))
            // It comes again as it is, since it was damaged, and then it goes.
            place.length = 5029
            let again = StoredChunk(id: try id(0), place: place)
            #expect(try ChunkIndex.replace([again], of: owner, in: transaction) == 4900)
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (5029, 1))
            #expect(try use(transaction)?.liveBytes == 5085)
            #expect(try ChunkIndex.remove([id(0)], of: owner, in: 7, in: transaction) == 5029)
            #expect(try use(transaction)?.liveBytes == 0)
        }
    }

    /// A row whose lengths cannot both be true is none.
    @Test(
        arguments: [
            (1, 71, true), (1, 72, false), (2, 71, false), (2, 72, true), (2, 1 << 20, true), (2, 1 << 20 + 1, false),
            (9, 3, true),
        ] as [(UInt8, Int, Bool)])
    func aRowIsSoundIfItsLengthsFit(suite: UInt8, length: Int, isSound: Bool) throws {
        let form = SealedForm(suite: suite, contentLength: length)
        #expect(IndexedChunk(owner: owner, id: try id(0), place: try chunk(0).place, form).isSound == isSound)
    }

    @Test func aChunkThatIsReplacedGetsTheNewPlace() throws {
        try engine.write { transaction in
            try ChunkIndex.add([chunk(0), chunk(1)], of: owner, in: transaction)
            var place = try chunk(2).place
            place.length = 120
            let form = SealedForm(suite: 2, contentLength: 5000)
            let again = [
                StoredChunk(id: try id(0), place: place, form), StoredChunk(id: try id(9), place: try chunk(4).place),
            ]
            #expect(try ChunkIndex.replace(again, of: owner, in: transaction) == 120)
            let expected = IndexedChunk(owner: owner, id: try id(0), place: place, form)
            #expect(try ChunkIndex.find(id(0), of: owner, in: 7, in: transaction) == expected)
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (320, 3))
            #expect(try use(transaction) == SegmentUse(segment: segment, length: 32 + 5 * 156, liveBytes: 488))
            // A damaged row too.
            try transaction.execute(Self.setLength, [.integer(.min), .blob(id(0).bytes)])
            try transaction.execute(SQL("UPDATE content_chunks SET suite = 300"), [])
            #expect(code { _ = try ChunkIndex.find(id(0), of: owner, in: 7, in: transaction) } == .storageFailure)
            try ChunkIndex.replace([again[0]], of: owner, in: transaction)
            #expect(try ChunkIndex.find(id(0), of: owner, in: 7, in: transaction) == expected)
            #expect(try ChunkIndex.use(of: owner, in: 7, in: transaction) == (320, 3))
        }
    }

    @Test func aPlaceThatNoStoreGivesGetsNoRow() throws {
        let bad = StoredChunk(id: try id(0), place: SegmentPlace(segment: segment, offset: .max, length: 1))
        try engine.write { transaction in
            #expect(code { try ChunkIndex.add([bad], of: owner, in: transaction) } == .invalidArguments)
        }
    }
}
