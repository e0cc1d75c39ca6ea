import NephosCore
import Testing

@testable import NephosContent

@Suite struct ChunkSealerTests {
    let sealer: ChunkSealer

    init() throws { sealer = try ChunkSealer(key: [UInt8](repeating: 7, count: 32), owner: owner) }

    func sealed(_ chunk: [UInt8], _ number: Int, _ encoding: ChunkEncoding = .plain) throws -> [UInt8] {
        var sealed = [UInt8](repeating: 0, count: chunk.count + ChunkSealer.overhead)
        try chunk.withUnsafeBytes { chunk in
            try sealed.withUnsafeMutableBytes { try sealer.seal(chunk, encoding, id: id(number), into: $0) }
        }
        return sealed
    }

    func failure(_ body: () throws -> Void) -> ChunkFailure? {
        do { try body() } catch { return error as? ChunkFailure }
        return nil
    }

    @Test(arguments: [0, 1, 15, 16, 17, 100_000], [ChunkEncoding.plain, .zstandard])
    func aChunkComesBack(count: Int, encoding: ChunkEncoding) throws {
        let chunk = content(1, count: count)
        let sealed = try sealed(chunk, 1, encoding)
        #expect(try sealer.open(sealed, id: id(1)) == (chunk, encoding))
        #expect(sealed.first == (encoding == .plain ? 1 : 2))
        // The nonce is new each time.
        #expect(try self.sealed(chunk, 1, encoding) != sealed)
    }

    /// Who can write to the disk does not have the bytes of a chunk taken for a frame.
    @Test func theEncodingIsAuthenticated() throws {
        for (encoding, other) in [(ChunkEncoding.plain, UInt8(2)), (.zstandard, 1)] {
            var sealed = try sealed([1, 2, 3], 1, encoding)
            sealed[0] = other
            #expect(failure { _ = try sealer.open(sealed, id: id(1)) } == .notAuthentic)
        }
    }

    @Test func anotherOwnerIdOrKeyDoesNotOpenIt() throws {
        let sealed = try sealed([1, 2, 3], 1)
        let key = [UInt8](repeating: 7, count: 32)
        let other = try ChunkSealer(key: key, owner: Owner("account_b"))
        #expect(failure { _ = try other.open(sealed, id: id(1)) } == .notAuthentic)
        #expect(failure { _ = try sealer.open(sealed, id: id(2)) } == .notAuthentic)
        let otherKey = try ChunkSealer(key: [UInt8](repeating: 8, count: 32), owner: owner)
        #expect(failure { _ = try otherKey.open(sealed, id: id(1)) } == .notAuthentic)
        // Looks alike, and is other bytes.
        let composed = try ChunkSealer(key: key, owner: Owner("\u{e9}"))
        var bytes = [UInt8](repeating: 0, count: ChunkSealer.overhead)
        try bytes.withUnsafeMutableBytes {
            try composed.seal(UnsafeRawBufferPointer(start: nil, count: 0), id: id(1), into: $0)
        }
        let decomposed = try ChunkSealer(key: key, owner: Owner("e\u{301}"))
        #expect(failure { _ = try decomposed.open(bytes, id: id(1)) } == .notAuthentic)
        #expect(try composed.open(bytes, id: id(1)) == ([], .plain))
    }

    @Test func everyFlippedBitAndEveryCutIsFound() throws {
        let sealed = try sealed([1, 2, 3, 4, 5], 1)
        for bit in 0..<sealed.count * 8 {
            var damaged = sealed
            damaged[bit / 8] ^= 1 << UInt8(bit % 8)
            let expected: ChunkFailure = bit < 8 ? .suiteUnknown(damaged[0]) : .notAuthentic
            #expect(failure { _ = try sealer.open(damaged, id: id(1)) } == expected, "bit \(bit)")
        }
        for count in 0..<sealed.count {
            #expect(failure { _ = try sealer.open(Array(sealed[..<count]), id: id(1)) } == .notAuthentic)
        }
    }

    @Test func aKeyHas32BytesAndTheRoomItsLength() throws {
        #expect(code { _ = try ChunkSealer(key: [1, 2, 3], owner: owner) } == .invalidArguments)
        var short = [UInt8](repeating: 0, count: 5)
        #expect(
            code {
                try short.withUnsafeMutableBytes { room in
                    try [UInt8](repeating: 1, count: 5).withUnsafeBytes { try sealer.seal($0, id: id(1), into: room) }
                }
            } == .invalidArguments)
    }

    @Test func aGroupTakesWhatFitsAndSealsIt() throws {
        var group = ChunkGroup(capacity: 4096)
        let chunk = content(1, count: 1000)
        var number = 0
        while group.hasRoom(forUnsealed: chunk.count) {
            try chunk.withUnsafeBytes { try group.append(id(number), sealing: $0, with: sealer) }
            number += 1
        }
        #expect(number == 3)
        #expect(
            code { try chunk.withUnsafeBytes { try group.append(id(3), sealing: $0, with: sealer) } } == .limitExceeded)
        #expect(code { try group.append(id(3), sealed: [UInt8](repeating: 0, count: 5 << 20)) } == .limitExceeded)
        #expect(!group.hasRoom(forUnsealed: .max) && !group.hasRoom(for: .max) && !group.hasRoom(for: -1))
        let folder = try TemporaryFolder()
        let store = try store(folder)
        let stored = try store.put(&group, in: 3)
        stored.release()
        #expect(stored.chunks.count == 3)
        #expect(stored.chunks.allSatisfy { $0.form == SealedForm(suite: 1, contentLength: 1000) })
        for stored in stored.chunks {
            #expect(try sealer.open(store.read(stored.place, of: stored.id), id: stored.id) == (chunk, .plain))
        }
        group.removeAll()
        #expect(group.isEmpty && group.hasRoom(forUnsealed: chunk.count))
        withExtendedLifetime(folder) {}
    }
}
