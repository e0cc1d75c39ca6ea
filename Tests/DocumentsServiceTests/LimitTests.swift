import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What `docs/protocol/documents.md` states of how much there may be: as much is taken, and one more is refused, by the number.
@Suite struct LimitTests {
    let house: ContainerHouse
    let here: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
    }

    /// - Returns: The details of the refusal.
    private func refused(_ code: CloudError.Code, _ body: () throws -> Void) -> [String: String] {
        do {
            try body()
            Issue.record("It was taken.")
        } catch let error as CloudError {
            #expect(error.code == code, "\(error)")
            return error.details
        } catch { Issue.record("\(error)") }
        return [:]
    }

    private func write(_ statement: String) throws {
        _ = try house.cloud.storage(of: .documents).write { try $0.execute(SQL(statement), []) }
    }

    private func restart() throws {
        house.cloud.crash(.documents)
        house.cloud.network.crash("documents bulk")
        house.cloud.network.run(for: .seconds(1))
        try house.cloud.start(.documents)
        house.cloud.network.run(for: .seconds(1))
    }

    // MARK: Names and attributes

    @Test func aNameHas255Bytes() throws {
        try here.makeFile(String(repeating: "é", count: 127) + "a")
        for name in ["", ".", "..", "a/b", "a\0b", String(repeating: "é", count: 128)] {
            _ = refused(.invalidArguments) { try here.makeFile(name) }
        }
        #expect(try here.list().count == 1)
    }

    @Test func anItemHas64AttributesOf32KiB() throws {
        let id = try here.makeFile("a")
        func set(_ count: Int, _ bytes: Int) throws {
            try here.apply([
                .attributes(id) { set in
                    set.extended = (0..<count).map { .named("\($0)", [UInt8](repeating: 1, count: bytes)) }
                }
            ])
        }
        try set(64, 1)
        #expect(refused(.limitExceeded) { try set(65, 1) }["count_max"] == "64")
        // The name counts too.
        try set(1, (32 << 10) - 1 - 63 * 3)
        #expect(refused(.limitExceeded) { try set(1, 32 << 10) }["bytes_max"] == "32768")
        let name = String(repeating: "x", count: 255)
        let other = try here.makeFile("b")
        try here.apply([.attributes(other) { $0.extended = [.named(name, [1])] }])
        for wrong in [name + "x", "x\0", ""] {
            _ = refused(.limitExceeded) {
                try here.apply([.attributes(other) { $0.extended = [.named(wrong, [1])] }])
            }
        }
    }

    @Test func anItemHas32TagsOf128Bytes() throws {
        let id = try here.makeFile("a")
        let longest = String(repeating: "x", count: 128)
        try here.apply([.attributes(id) { $0.tags.tags = Array(repeating: longest, count: 32) }])
        #expect(
            refused(.limitExceeded) {
                try here.apply([.attributes(id) { $0.tags.tags = Array(repeating: "x", count: 33) }])
            }["count_max"] == "32")
        #expect(
            refused(.limitExceeded) { try here.apply([.attributes(id) { $0.tags.tags = [longest + "x"] }]) }[
                "bytes_max"] == "128")
    }

    // MARK: Contents

    @Test func aContentOf4096BytesGoesWithItsItem() throws {
        try here.makeFile("a", String(repeating: "x", count: 4096))
        _ = refused(.invalidArguments) { try here.makeFile("b", String(repeating: "x", count: 4097)) }
    }

    @Test func aContentHas16TiB() throws {
        func make(_ length: UInt64) throws {
            var content = WireDocumentContent.inline("")
            content.length = length
            content.root = Data(repeating: 1, count: 32)
            try here.apply([.create(ContainerDevice.makeID(), "a", content)])
        }
        // There is no such chunk.
        _ = refused(.unknownItem) { try make(16 << 40) }
        for length: UInt64 in [(16 << 40) + 1, .max] {
            #expect(refused(.limitExceeded) { try make(length) }["bytes_max"] == "\(UInt64(16) << 40)")
        }
    }

    @Test func aLinkLeadsTo4095Bytes() throws {
        func make(_ target: String) throws {
            var change = WireDocumentChange.create(ContainerDevice.makeID(), "a", .inline(target), clash: .rename)
            change.create.kind = .link
            try here.apply([change])
        }
        try make(String(repeating: "x", count: 4095))
        for target in ["", "a\0", String(repeating: "x", count: 4096)] {
            _ = refused(.invalidArguments) { try make(target) }
        }
    }

    // MARK: Requests

    @Test func aBatchHas500Changes() throws {
        let id = try here.makeFile("a")
        func set(_ count: Int) throws {
            try here.apply((1...count).map { number in .attributes(id) { $0.favouriteRank = Int64(number) } })
        }
        try set(500)
        #expect(refused(.limitExceeded) { try set(501) }["maximum"] == "500")
        #expect(refused(.limitExceeded) { try here.apply([]) }["maximum"] == "500")
    }

    @Test func aBatchHas64KiBOfNodes() throws {
        let nodes = [[UInt8](repeating: 1, count: (64 << 10) + 1)]
        #expect(refused(.limitExceeded) { try here.apply([], nodes: nodes) }["bytes_max"] == "65536")
        // As many bytes are looked at, and these are no node.
        _ = refused(.incompatibleVersion) { try here.apply([], nodes: [Array(nodes[0].dropLast())]) }
    }

    @Test func whatIsAskedAboutAtOnceIsBounded() throws {
        try here.makeFile("a")
        func ids(_ count: Int) -> [Data] {
            (0..<count).map { Data(repeating: UInt8(truncatingIfNeeded: $0), count: 32) }
        }
        func findMissing(_ count: Int) throws {
            var request = WireFindMissing()
            request.container = here.container
            request.ids = ids(count)
            #expect(try here.call("FindMissing", request, as: WireFindMissingReply.self).missing.count == count)
        }
        func readNodes(_ count: Int) throws {
            var request = WireReadNodes()
            request.container = here.container
            request.ids = ids(count)
            _ = try here.call("ReadNodes", request, as: WireReadNodesReply.self)
        }
        try findMissing(1024)
        _ = refused(.limitExceeded) { try findMissing(1025) }
        // There are none.
        _ = refused(.unknownItem) { try readNodes(32) }
        _ = refused(.limitExceeded) { try readNodes(33) }
    }

    // MARK: Items

    @Test func aFolderHas100000Items() throws {
        let folder = try here.makeFolder("folder")
        try here.makeFile("first", in: folder)
        try write("UPDATE document_folders SET item_count = 99999 WHERE item_count = 1 AND folder = x'\(hex(folder))'")
        let last = try here.makeFile("last", in: folder)
        #expect(refused(.limitExceeded) { try here.makeFile("more", in: folder) }["maximum"] == "100000")
        // What goes makes room.
        try here.apply([.trash(last)])
        try here.makeFile("more", in: folder)
    }

    private func hex(_ id: DocumentID) -> String { id.description }

    @Test func aContainerHas2000000Items() throws {
        let first = try here.makeFile("first")
        try write("UPDATE feed_scopes SET live_count = 1999999 WHERE live_count = 1 AND path = '\(here.container)'")
        try restart()
        try here.makeFile("last")
        #expect(refused(.limitExceeded) { try here.makeFile("more") }["maximum"] == "2000000")
        try here.apply([.trash(first)])
        // It lies in the trash, and is an item still.
        _ = refused(.limitExceeded) { try here.makeFile("more") }
        try here.apply([.remove(first)])
        try here.makeFile("more")
    }
}
