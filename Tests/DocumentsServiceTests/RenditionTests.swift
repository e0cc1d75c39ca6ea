import Foundation
import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Further contents of an item: the last one stands, and what they rest on is counted like versions'.
@Suite struct RenditionTests {
    private let house: ContainerHouse
    private let here: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
    }

    /// - Parameter content: Nil: it is taken away.
    private func set(
        _ id: DocumentID, _ name: String, _ content: WireDocumentContent?, of version: Data? = nil
    ) throws -> WireDocumentChange {
        var change = WireDocumentChange()
        change.item = Data(id.bytes)
        change.rendition.name = Data(name.utf8)
        if let content { change.rendition.content = content }
        if content != nil { change.rendition.ofVersion = try version ?? here.item(id).content.version }
        return change
    }

    private func texts(_ id: DocumentID) throws -> [String] {
        try here.item(id).renditions.map { "\(String(decoding: $0.name, as: UTF8.self)) \($0.content.text)" }
    }

    @Test func theLastOneStandsAndTheOneBeforeIsGone() throws {
        let id = try here.makeFile("a", "text")
        let first = try set(id, "thumbnail", .inline("first"))
        try here.apply([first])
        try here.apply([try set(id, "icon", .inline("icon")), try set(id, "thumbnail", .inline("second!"))])
        #expect(try texts(id) == ["icon icon", "thumbnail second!"])
        #expect(try house.used() == 4 + 4 + 7)
        let rendition = try here.item(id).renditions[1]
        #expect(rendition.ofVersion == (try here.item(id).content.version) && rendition.content.committed > 0)
        #expect(!rendition.content.deviceID.isEmpty && rendition.content.base.isEmpty)
        try here.apply([try set(id, "thumbnail", nil), try set(id, "none", nil)])
        #expect(try texts(id) == ["icon icon"] && house.used() == 4 + 4)
        #expect(try here.versions(of: id).count == 1)
    }

    /// Also within one batch: what is taken over at once is never taken.
    @Test func aRepeatIsKnownByItsVersion() throws {
        let id = try here.makeFile("a", "text")
        let set = try set(id, "thumbnail", .inline("one"))
        let head = try here.apply([set]).token
        #expect(try here.apply([set]).token == head)
        try here.apply([
            set, try self.set(id, "thumbnail", .inline("two")), try self.set(id, "thumbnail", .inline("three")),
        ])
        #expect(try texts(id) == ["thumbnail three"] && house.used() == 4 + 5)
        let last = try here.item(id).renditions[0].content
        try here.apply([try self.set(id, "thumbnail", nil), try self.set(id, "other", last)])
        #expect(try texts(id) == ["other three"] && house.used() == 4 + 5)
        expect(.alreadyExists) { try here.apply([try self.set(id, "second", last)]) }
    }

    @Test func longOnesRestOnChunksUntilTheyAreReplaced() throws {
        let id = try here.makeFile("a", "text")
        let (first, second) = (TestContent(seed: 1, chunks: [100_000, 70_000]), TestContent(seed: 2, chunks: [90_000]))
        try here.closeUpload(try here.put(first, as: [try set(id, "thumbnail", first.content())]))
        #expect(try house.used() == 4 + 170_000 + counted([first.nodes[0]]))
        #expect(try here.fetch(first.ids[0]) == first.chunks[0])
        try here.closeUpload(try here.put(second, as: [try set(id, "thumbnail", second.content())]))
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts() == Counts(chunks: 1, uses: 1, nodes: 0) && house.used() == 4 + 90_000)
        // It stays when the content is replaced, and says what it was made from.
        let old = try here.item(id).content.version
        try here.apply([.replace(id, .inline("new", base: old))])
        #expect(try here.item(id).renditions.map(\.ofVersion) == [old])
        try here.apply([try set(id, "thumbnail", nil)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0) && house.used() == 4 + 3)
    }

    @Test func theyGoWithTheirItem() throws {
        let folder = try here.makeFolder("folder")
        let id = try here.makeFile("a", in: folder, "text")
        let bytes = TestContent(seed: 1, chunks: [100_000])
        try here.closeUpload(
            try here.put(bytes, as: [try set(id, "large", bytes.content()), try set(id, "small", .inline("small"))]))
        try here.apply([.trash(folder), .remove(folder)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0) && house.used() == 0)
        #expect(try house.renditions() == 0)
    }

    /// What they are is in rows of their own too.
    @Test func theyGoWithAnItemThatIsDamaged() throws {
        let folder = try here.makeFolder("folder")
        let id = try here.makeFile("a", in: folder, "text")
        let bytes = TestContent(seed: 1, chunks: [100_000])
        try here.closeUpload(
            try here.put(bytes, as: [try set(id, "large", bytes.content()), try set(id, "small", .inline("small"))]))
        house.cloud.crash(.documents)
        try house.damageItem(id)
        try house.cloud.start(.documents)
        let again = try house.device()
        try again.apply([.trash(folder), .remove(folder)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.counts() == Counts(chunks: 0, uses: 0, nodes: 0) && house.used() == 0)
        #expect(try house.renditions() == 0)
    }

    @Test func whatNoneCanBeIsRefused() throws {
        let id = try here.makeFile("a", "text")
        let folder = try here.makeFolder("folder")
        expect(.invalidArguments) { try here.apply([try set(folder, "x", .inline("x"), of: Data(count: 16))]) }
        expect(.unknownItem) {
            try here.apply([try set(ContainerDevice.makeID(), "x", .inline("x"), of: Data(count: 16))])
        }
        for name in ["", "a\0b", "a/b", String(repeating: "n", count: 65)] {
            expect(.invalidArguments) { try here.apply([try set(id, name, .inline("x"))]) }
        }
        expect(.invalidArguments) { try here.apply([try set(id, "x", .inline("x"), of: Data())]) }
        var wrong = WireDocumentContent.inline("x")
        wrong.length = 2
        expect(.invalidArguments) { try here.apply([try set(id, "x", wrong)]) }
        expect(.unknownItem) { try here.apply([try set(id, "x", TestContent(seed: 1, chunks: [9000]).content())]) }
        try here.apply(try (0..<DocumentLimits.renditionsMax).map { try set(id, "\($0)", .inline("x")) })
        expect(.limitExceeded) { try here.apply([try set(id, "one more", .inline("x"))]) }
        try here.apply([try set(id, "7", .inline("y"))])
        #expect(try texts(id).last == "7 y" && house.used() == 4 + 8)
    }

    @Test func whatLiesInTheTrashGetsNoneAndMayLoseThem() throws {
        let folder = try here.makeFolder("folder")
        let id = try here.makeFile("a", in: folder, "text")
        try here.apply([try set(id, "x", .inline("x"))])
        try here.apply([.trash(folder)])
        expect(.unknownItem) { try here.apply([try set(id, "y", .inline("y"))]) }
        try here.apply([try set(id, "x", nil)])
        #expect(try here.item(id).renditions.isEmpty)
    }

    @Test func aNameThatIsNoTextIsRefused() throws {
        let id = try here.makeFile("a", "text")
        var change = try set(id, "x", .inline("x"))
        change.rendition.name = Data([0xff, 0xfe])
        expect(.invalidArguments) { try here.apply([change]) }
    }

    @Test func anAccountThatIsClosedLeavesNone() throws {
        let id = try here.makeFile("a", "text")
        try here.apply([try set(id, "thumbnail", .inline("x"))])
        #expect(try house.renditions() == 1)
        var request = WireCloseAccount()
        request.accountName = TestCloud.accountName
        try house.cloud.operate("CloseAccount", request, as: WireCloseAccountReply.self)
        house.cloud.network.run(for: .seconds(60))
        #expect(try house.renditions() == 0)
    }
}

extension ContainerHouse {
    private static let countRenditions = SQL("SELECT COUNT(*) FROM document_renditions")
    private static let damage = SQL("UPDATE feed_items SET body = ?1, body_id = 0 WHERE name = ?2")

    fileprivate func renditions() throws -> Int {
        try cloud.storage(of: .documents).write { try $0.first(Self.countRenditions) { Int($0.integer(0)) } ?? 0 }
    }

    /// What is stored of the item is no item any more.
    fileprivate func damageItem(_ id: DocumentID) throws {
        try cloud.storage(of: .documents).write { transaction in
            _ = try transaction.execute(Self.damage, [.blob([0]), .text(id.description)])
        }
    }
}
