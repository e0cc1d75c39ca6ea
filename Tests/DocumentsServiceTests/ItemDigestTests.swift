import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosDocuments

/// A folder's digest is of its items, and of what lies in those, whatever becomes of them.
@Suite struct ItemDigestTests {
    private let house: ContainerHouse
    private let here: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
    }

    private func request(
        _ folder: DocumentID = .top, after: DocumentID? = nil, max: UInt32 = 0, items: [DocumentID] = []
    ) -> WireListItemDigests {
        var request = WireListItemDigests()
        request.container = here.container
        request.folder = Data(folder.bytes)
        request.after = Data(after?.bytes ?? [])
        request.itemsMax = max
        request.items = items.map { Data($0.bytes) }
        return request
    }

    private func ask(_ request: WireListItemDigests, by device: ContainerDevice? = nil) throws
        -> WireListItemDigestsReply
    {
        try (device ?? here).call("ListItemDigests", request, as: WireListItemDigestsReply.self)
    }

    /// Goes through all folders.
    ///
    /// - Parameter isWhole: Whether every item lies in a folder that is there.
    /// - Returns: The folder's digest, and how many items lie in it.
    @discardableResult
    private func check(_ folder: DocumentID = .top, isWhole: Bool = true) throws -> (digest: SetDigest, count: Int) {
        let reply = try ask(request(folder))
        var (sum, count) = (SetDigest.empty, 0)
        for entry in reply.entries {
            let id = try #require(DocumentID(bytes: entry.item))
            if !entry.digest.isEmpty {
                sum.add(try #require(SetDigest(bytes: entry.digest)))
                count += 1
            }
            guard id == .documents || !entry.folderDigest.isEmpty else { continue }
            let inner = try check(id)
            #expect(
                entry.folderDigest.isEmpty && inner.digest == .empty || Data(inner.digest.bytes) == entry.folderDigest)
            sum.add(inner.digest)
            count += inner.count
        }
        #expect(Data(sum.bytes) == reply.folderDigest)
        if folder == .top, isWhole { #expect(reply.folderDigest == reply.digest) }
        return (sum, count)
    }

    @Test func aFoldersDigestFollowsWhatBecomesOfItsItems() throws {
        #expect(try ask(request()).entries.map(\.item) == [Data(DocumentID.documents.bytes)])
        let (a, b) = (try here.makeFolder("a"), try here.makeFolder("b"))
        let inner = try here.makeFolder("inner", in: a)
        let file = try here.makeFile("file", in: inner)
        _ = try here.makeFile("hidden", in: .top)
        let other = try here.makeFile("other", in: b)
        #expect(try check().count == 6)
        // A change deep below, and a folder that takes its items along.
        let before = try ask(request(a)).folderDigest
        try here.apply([.attributes(file) { $0.favouriteRank = 1 }])
        #expect(try ask(request(a)).folderDigest != before)
        #expect(try check().count == 6)
        try here.apply([.place(inner, "inner", in: b)])
        #expect(try check().count == 6)
        #expect(try ask(request(a)).folderDigest == Data(SetDigest.empty.bytes))
        // In the trash it lies where it lay.
        try here.apply([.trash(other), .trash(b)])
        #expect(try check().count == 6)
        try here.apply([.remove(b)])
        #expect(try check(isWhole: false).count == 2)
        house.cloud.network.run(for: .seconds(120))
        #expect(try check().count == 2)
        #expect(try here.list().count == 2)
        // Nothing is left of what was removed.
        let rows = try house.cloud.storage(of: .documents).write { transaction in
            try transaction.all(SQL("SELECT folder FROM document_trees"), []) { $0.blob(0) }
        }
        #expect(Set(rows) == [DocumentID.top.bytes, DocumentID.documents.bytes, a.bytes])
    }

    /// What it was nobody can read any more, and it leaves nothing in the digests of the folders that it lay in.
    @Test(arguments: [false, true]) func whatIsDamagedAndRemovedLeavesTheirDigestsRight(isFolder: Bool) throws {
        let outer = try here.makeFolder("outer")
        let inner = try here.makeFolder("inner", in: outer)
        let lost = isFolder ? try here.makeFolder("lost", in: inner) : try here.makeFile("lost", in: inner)
        if isFolder { try here.makeFile("in it", in: lost) }
        let left = try here.makeFile("left", in: inner)
        try here.apply([.trash(lost)])
        try house.cloud.storage(of: .documents).write { transaction in
            _ = try transaction.execute(
                SQL("UPDATE feed_items SET body = X'00', body_id = 0 WHERE name = ?1"), [.text(lost.description)])
        }
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        house.cloud.skip(.seconds(31 * 24 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(240))
        house.cloud.setClockOffset(of: .documents, .zero)
        #expect(try house.device().list().keys.sorted() == [outer, inner, left].sorted())
        #expect(try check().count == 3)
    }

    @Test func aBatchThatMovesFoldersIntoEachOtherLeavesTheirDigestsRight() throws {
        let ids = (0..<6).map { _ in ContainerDevice.makeID() }
        let folders = ids.enumerated().map { WireDocumentChange.create($1, "\($0)", in: .documents) }
        try here.apply(folders + [.create(ContainerDevice.makeID(), "f", in: ids[0], .inline("f"))])
        try here.apply([
            .place(ids[0], "0", in: ids[1]), .place(ids[1], "1", in: ids[2]), .place(ids[3], "3", in: ids[0]),
            .place(ids[0], "0", in: ids[4]),
            .trash(ids[2]), .create(ContainerDevice.makeID(), "g", in: ids[3], .inline("g")),
        ])
        #expect(try check().count == 8)
        try here.apply([.restore(ids[2]), .place(ids[4], "4", in: ids[1])])
        #expect(try check().count == 8)
    }

    /// What lay in it has it now: where the first is changed first, and takes its place last.
    @Test func aFolderThatComesToLieInWhatLayInItLeavesTheirDigestsRight() throws {
        let (outer, inner) = (try here.makeFolder("outer"), ContainerDevice.makeID())
        try here.apply([
            .create(inner, "inner", in: outer), .create(ContainerDevice.makeID(), "f", in: inner, .inline("f")),
        ])
        try here.apply([
            .attributes(outer) { $0.favouriteRank = 1 }, .place(inner, "inner", in: .documents),
            .place(outer, "outer", in: inner),
        ])
        #expect(try check().count == 3)
    }

    @Test func aFolderIsReadInPagesAndItemsByThemselves() throws {
        let ids = (0..<25).map { _ in ContainerDevice.makeID() }.sorted()
        try here.apply(ids.map { .create($0, "\($0)", in: .documents, .inline("x")) })
        var (read, last) = ([Data](), DocumentID?.none)
        for _ in 0..<4 {
            let page = try ask(request(.documents, after: last, max: 7))
            read += page.entries.map(\.item)
            last = page.entries.last.flatMap { DocumentID(bytes: $0.item) }
            #expect(page.more == (read.count < 25))
        }
        #expect(read == ids.map { Data($0.bytes) })
        #expect(try ask(request(max: 1)).more == false)
        // What is not there is left out.
        let some = try ask(request(items: [ids[3], ContainerDevice.makeID(), ids[1]]))
        #expect(some.entries.map(\.item) == [ids[3], ids[1]].map { Data($0.bytes) })
        #expect(
            try some.entries.map { try WireDocumentItem(serializedBytes: $0.body).name }
                == [3, 1].map { Data("\(ids[$0])".utf8) })
    }

    /// Two hundred and fifty-six items may be many times what one message may be.
    @Test func itemsThatAreLargeAreToldInPages() throws {
        let ids = (0..<60).map { _ in ContainerDevice.makeID() }
        let large = WireExtendedAttribute.named("large", [UInt8](repeating: 7, count: 32_000))
        for some in [ids.prefix(30), ids.suffix(30)] {
            try here.apply(some.map { .create($0, $0.description, in: .documents, .inline("x")) })
            try here.apply(some.map { .attributes($0) { $0.extended = [large] } })
        }
        var (left, told, pages) = (ids[...], [Data](), 0)
        repeat {
            let page = try ask(request(items: Array(left)))
            #expect(try page.serializedData().count <= DocumentLimits.replyBytesMax + (64 << 10))
            told += page.entries.map(\.item)
            pages += 1
            let last = try #require(page.entries.last.flatMap { DocumentID(bytes: $0.item) })
            left = page.more ? left[(try #require(left.firstIndex(of: last)) + 1)...] : []
        } while !left.isEmpty && pages < 10
        #expect(told == ids.map { Data($0.bytes) } && pages == 2)
    }

    /// What is read is paid for, whether it is sent or not; and of a page of a folder no item is.
    @Test func aPageOfDigestsCostsWhatIsReadForIt() throws {
        let house = try ContainerHouse(budgets: BudgetConfiguration())
        let here = try house.device()
        let ids = (0..<30).map { _ in ContainerDevice.makeID() }
        let large = WireExtendedAttribute.named("large", [UInt8](repeating: 7, count: 32_000))
        try here.apply(ids.map { .create($0, $0.description, in: .documents, .inline("x")) })
        try here.apply(ids.map { .attributes($0) { $0.extended = [large] } })
        house.cloud.network.run(for: .seconds(60))
        func cost(_ method: String, _ request: some SwiftProtobuf.Message) throws -> Int {
            let answer = try here.mover.client.begin(
                method, request, at: .requests(.documents), accessToken: here.mover.accessToken)
            house.cloud.network.run(within: .seconds(60)) { answer.result != nil }
            _ = try #require(answer.result).get()
            // By then it has what it costs back, for the next one.
            defer { house.cloud.network.run(for: .seconds(60)) }
            let budget = try #require(answer.budget)
            return budget.capacity - budget.remaining
        }
        let folder = try cost("ListItemDigests", request(.documents))
        #expect((1...10).contains(folder))
        let items = try cost("ListItemDigests", request(items: ids))
        #expect((235...260).contains(items))
        var question = WireFindItems()
        question.container = here.container
        question.items = ids.map { Data($0.bytes) }
        #expect(try (1...10).contains(cost("FindItems", question)))
    }

    @Test func aQuestionThatIsNoneIsRefused() throws {
        let id = ContainerDevice.makeID()
        expect(.invalidArguments) { _ = try ask(request(items: [id, id])) }
        var malformed = request()
        malformed.folder = Data([1])
        expect(.invalidArguments) { _ = try ask(malformed) }
        malformed = request()
        malformed.after = Data([1])
        expect(.invalidArguments) { _ = try ask(malformed) }
        expect(.limitExceeded) { _ = try ask(request(items: (0...256).map { _ in ContainerDevice.makeID() })) }
        expect(.missingEntitlement) { _ = try ask(request(), by: house.device(app: "T.other")) }
        #expect(try ask(request(ContainerDevice.makeID())).entries.isEmpty)
    }
}
