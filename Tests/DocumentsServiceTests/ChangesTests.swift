import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// Items are made, moved, changed and deleted, and nothing that somebody else has done meanwhile is lost.
@Suite struct ChangesTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
    }

    @Test func whatOneDeviceMakesTheOtherReads() throws {
        let folder = try here.makeFolder("Letters")
        let letter = try here.makeFile("to you.txt", in: folder, "Hello")
        #expect(try there.names() == ["Letters": folder])
        #expect(try there.names(in: folder) == ["to you.txt": letter])
        let item = try there.item(letter)
        #expect(item.content.text == "Hello")
        #expect(item.content.deviceID == here.mover.device.rawValue && item.content.appID == ContainerHouse.app)
        #expect(item.content.committed > 0)
    }

    @Test func aBatchIsDoneAsAWholeOrNotAtAll() throws {
        let (first, second) = (ContainerDevice.makeID(), ContainerDevice.makeID())
        expect(.alreadyExists) {
            try here.apply([.create(first, "a", .inline("1")), .create(second, "a", .inline("2"))])
        }
        #expect(try here.list().isEmpty)
        // Later changes of a batch see the earlier ones.
        try here.apply([
            .create(first, "folder"), .create(second, "a", in: first, .inline("1")), .place(second, "b", in: first),
        ])
        #expect(try there.names(in: first) == ["b": second])
    }

    /// Whoever has stored nothing yet, and is refused, has nobody else's requests carried out one by one.
    @Test func aRefusedFirstChangeTakesNoGroupApart() throws {
        func splits() throws -> UInt64 {
            let health: WireCheckHealthReply = try here.mover.client.call(
                "CheckHealth", WireCheckHealth(), at: .requests(.documents))
            return health.counters["groups.split"] ?? 0
        }
        let before = try splits()
        for _ in 0..<3 {
            expect(.unknownItem) {
                try here.apply([.create(ContainerDevice.makeID(), "a"), .remove(ContainerDevice.makeID())])
            }
        }
        #expect(try splits() == before)
        #expect(try here.list().isEmpty)
        try here.makeFolder("a")
    }

    @Test func aRepeatAfterAnyTimeIsNoConflictAndChangesNothing() throws {
        let id = ContainerDevice.makeID()
        let create = WireDocumentChange.create(id, "a", .inline("1"))
        try here.apply([create])
        let first = try here.item(id).content
        let replace = WireDocumentChange.replace(id, .inline("2", base: first.version))
        let move = WireDocumentChange.place(id, "b", in: .documents)
        try here.apply([replace, move])
        // Under other request ids, of which nobody has stored a reply: as after a week.
        let before = try here.list()
        let device = try house.device()
        for change in [create, replace, move] { try device.apply([change]) }
        #expect(try device.list() == before)
        #expect(before[id]?.content.text == "2" && before[id]?.conflicts.isEmpty == true)
    }

    @Test func unequalContentsFromOneBaseAreBothKept() throws {
        let id = try here.makeFile("a", "base")
        let base = try here.item(id).content.version
        try here.apply([.replace(id, .inline("mine", base: base))])
        try there.apply([.replace(id, .inline("yours", base: base))])
        var item = try here.item(id)
        #expect(item.content.text == "mine")
        #expect(item.conflicts.map(\.text) == ["yours"])
        #expect(item.conflicts.first?.base == base && item.conflicts.first?.deviceID == there.mover.device.rawValue)
        // Equal bytes are never a conflict.
        try there.apply([.replace(id, .inline("mine", base: base)), .replace(id, .inline("yours", base: base))])
        #expect(try here.item(id) == item)
        expect(.constraintViolation) {
            try there.apply([.replace(id, .inline("third", base: base), failOnConflict: true)])
        }
        try there.apply([.resolve(id, item.conflicts.map(\.version))])
        item = try here.item(id)
        #expect(item.conflicts.isEmpty)
        #expect(try here.versions(of: id).map(\.text) == ["yours", "mine", "base"])
    }

    /// What is chosen in the end is what stays, also if it is one of the conflicts.
    @Test func aConflictCanBeChosen() throws {
        let id = try here.makeFile("a", "base")
        let base = try here.item(id).content.version
        try here.apply([.replace(id, .inline("mine", base: base))])
        try there.apply([.replace(id, .inline("yours", base: base))])
        let item = try here.item(id)
        try here.apply([
            .replace(id, .inline("yours", base: item.content.version)), .resolve(id, item.conflicts.map(\.version)),
        ])
        #expect(try here.item(id).content.text == "yours" && here.item(id).conflicts.isEmpty)
    }

    /// Equal bytes are no conflict either where the current content becomes what has lost.
    @Test func aConflictEndsWhenItsBytesBecomeCurrent() throws {
        let id = try here.makeFile("a", "base")
        let base = try here.item(id).content.version
        let (mine, yours) = (
            WireDocumentContent.inline("mine", base: base), WireDocumentContent.inline("yours", base: base)
        )
        try here.apply([.replace(id, mine)])
        try there.apply([.replace(id, yours), .replace(id, .inline("third", base: base))])
        try here.apply([.replace(id, .inline("yours", base: mine.version))])
        var item = try here.item(id)
        #expect(item.content.text == "yours" && item.conflicts.map(\.text) == ["third"])
        #expect(try here.versions(of: id).contains { $0.version == yours.version })
        // A device that goes on with the version that had lost goes on with these bytes.
        try there.apply([.replace(id, .inline("next", base: yours.version))])
        item = try here.item(id)
        #expect(item.content.text == "next" && item.conflicts.map(\.text) == ["third"])
    }

    /// A device that has lost goes on saving over what it has.
    @Test func whoHasLostGoesOnWithOneConflict() throws {
        let id = try here.makeFile("a", "base")
        var base = try here.item(id).content.version
        try here.apply([.replace(id, .inline("mine", base: base))])
        for number in 0..<20 {
            let content = WireDocumentContent.inline("yours \(number)", base: base)
            try there.apply([.replace(id, content)])
            base = content.version
        }
        let item = try here.item(id)
        #expect(item.content.text == "mine" && item.conflicts.map(\.text) == ["yours 19"])
        // Bytes that are there are no version; the device learns which has them.
        let reply = try there.apply([.replace(id, .inline("mine", base: base))])
        #expect(try reply.items.map { try WireDocumentItem(serializedBytes: $0.body) } == [item])
    }

    /// What nobody counts is not kept.
    @Test func whatTheServiceDoesNotKnowIsNotKept() throws {
        // Field 1000, of 100 bytes.
        let unknown = Data([0xc2, 0x3e, 100]) + Data(count: 100)
        var content = WireDocumentContent.inline("text")
        try content.merge(serializedBytes: unknown)
        var attributes = WireItemAttributes()
        try attributes.merge(serializedBytes: unknown)
        let id = ContainerDevice.makeID()
        var create = WireDocumentChange.create(id, "a", content)
        create.create.attributes = attributes
        try here.apply([create])
        let item = try here.item(id)
        #expect(item.content.unknownFields.data.isEmpty && item.attributes.unknownFields.data.isEmpty)
        #expect(try here.versions(of: id).allSatisfy { $0.unknownFields.data.isEmpty })
    }

    /// A device takes frames of 4 MiB.
    @Test func aReplyHasNoMoreThanADeviceTakes() throws {
        let ids = try (0..<100).map { try here.makeFile("\($0)") }
        let value = [UInt8](repeating: 1, count: 20_000)
        for some in [ids[..<50], ids[50...]] {
            try here.apply(some.map { id in .attributes(id) { $0.extended = [.named("x", value)] } })
        }
        let reply = try here.apply(ids.map { id in .attributes(id) { $0.favouriteRank = 1 } })
        #expect(reply.items.count == 100 && reply.items.allSatisfy { $0.body.isEmpty && !$0.deleted })
        #expect(try there.item(ids[99]).attributes.favouriteRank == 1)
    }

    @Test func aMoveAndAnEditDoNotConflict() throws {
        let id = try here.makeFile("a", "1")
        let item = try here.item(id)
        let folder = try here.makeFolder("folder")
        try there.apply([.place(id, "b", in: folder, base: item.placeVersion)])
        try here.apply([.replace(id, .inline("2", base: item.content.version))])
        let now = try there.item(id)
        #expect(now.content.text == "2" && now.conflicts.isEmpty && DocumentID(bytes: now.parent) == folder)
        // Of two moves from one place the second is told.
        expect(.constraintViolation) { try here.apply([.place(id, "c", in: .documents, base: item.placeVersion)]) }
    }

    @Test(arguments: [("a.txt", "A.TXT"), ("é", "e\u{301}"), ("Straße", "STRAßE")])
    func namesThatThePersonCannotTellApartClashIfFolded(_ first: String, _ second: String) throws {
        try house.define(ContainerHouse.container, .documents, names: .folded)
        try here.makeFile(first)
        expect(.alreadyExists) { try there.makeFile(second) }
        let id = ContainerDevice.makeID()
        let change = WireDocumentChange.create(id, Data(second.utf8), in: .documents, .inline("x"), clash: .rename)
        try there.apply([change])
        #expect(try here.names().count == 2)
        // Bytes are kept.
        #expect(try here.item(id).name.starts(with: Data(second.utf8.prefix(1))))
    }

    @Test func aThirdOfANameGetsTheNextNumber() throws {
        var names: [Data] = []
        for _ in 0..<3 {
            let id = ContainerDevice.makeID()
            try here.apply([.create(id, "letter.txt", .inline("x"), clash: .rename)])
            names.append(try here.item(id).name)
        }
        #expect(names.map { String(decoding: $0, as: UTF8.self) } == ["letter.txt", "letter 2.txt", "letter 3.txt"])
        let long = String(repeating: "ä", count: 127)
        for _ in 0..<2 { try here.apply([.create(ContainerDevice.makeID(), long, .inline("x"), clash: .rename)]) }
        #expect(try here.names().keys.contains(String(repeating: "ä", count: 126) + " 2"))
    }

    @Test(arguments: ["", ".", "..", "a/b", "a\u{0}b", String(repeating: "x", count: 256)])
    func impossibleNamesAreRefused(_ name: String) throws {
        expect(.invalidArguments) { try here.makeFile(name) }
        #expect(try here.list().isEmpty)
    }

    @Test func namesThatAreNoTextAreKept() throws {
        let id = ContainerDevice.makeID()
        let name = Data([0xff, 0xfe, 0x41])
        try here.apply([.create(id, name, in: .documents, .inline("x"))])
        #expect(try there.item(id).name == name)
        expect(.alreadyExists) {
            try there.apply([.create(ContainerDevice.makeID(), name, in: .documents, .inline("x"))])
        }
    }

    @Test func everyContainerHasDocumentsAndNobodyMakesAnother() throws {
        expect(.alreadyExists) { try here.makeFolder("Documents", in: .top) }
        expect(.invalidArguments) { try here.apply([.place(.documents, "d", in: .top)]) }
        expect(.invalidArguments) { try here.apply([.trash(.top)]) }
        #expect(try here.makeFolder("Documents", in: .documents) != .documents)
    }

    @Test func noFolderLiesInItself() throws {
        let outer = try here.makeFolder("outer")
        let inner = try here.makeFolder("inner", in: outer)
        expect(.constraintViolation) { try here.apply([.place(outer, "x", in: inner)]) }
        expect(.constraintViolation) { try here.apply([.place(outer, "x", in: outer)]) }
        // Also by two moves of one batch.
        let other = try here.makeFolder("other")
        expect(.constraintViolation) {
            try here.apply([.place(other, "x", in: inner), .place(outer, "y", in: other)])
        }
        #expect(try here.names().keys.sorted() == ["other", "outer"])
    }

    @Test func foldersLieNoDeeperThanIsStated() throws {
        var folder = DocumentID.documents
        var changes: [WireDocumentChange] = []
        for _ in 1..<DocumentLimits.depthMax {
            let id = ContainerDevice.makeID()
            changes.append(.create(id, "d", in: folder))
            folder = id
        }
        try here.apply(changes)
        try here.makeFile("deep", in: folder)
        let last = try here.makeFolder("last", in: folder)
        expect(.limitExceeded) { try here.makeFile("deeper", in: last) }
        // Where they lie they may be called otherwise, and come back.
        let top = try #require(changes.first.flatMap { DocumentID(bytes: $0.item) })
        try here.apply([.place(top, "renamed", in: .documents)])
        try here.apply([.trash(top), .restore(top)])
        #expect(try here.item(top).parent == Data(DocumentID.documents.bytes))
        #expect(try here.item(top).name == Data("renamed".utf8))
    }

    /// How deep it was is noted; what it has counts.
    @Test func aFolderThatWasDeepOnceIsMovedDown() throws {
        func chain(_ count: Int, in folder: DocumentID) throws -> [DocumentID] {
            let ids = (0..<count).map { _ in ContainerDevice.makeID() }
            try here.apply(
                ids.enumerated().map { .create($1, "d", in: $0 == 0 ? folder : ids[$0 - 1], clash: .rename) })
            return ids
        }
        let low = try #require(try chain(60, in: .documents).last)
        let high = try chain(70, in: .documents)
        let (top, below) = (high[0], high[1])
        expect(.limitExceeded) { try here.apply([.place(top, "x", in: low)]) }
        // Emptied before, and within the same batch.
        try here.apply([.place(below, "below", in: .documents)])
        try here.apply([.place(top, "x", in: low)])
        expect(.limitExceeded) { try here.apply([.place(below, "y", in: low)]) }
        try here.apply([.place(high[2], "rest", in: .documents), .place(below, "y", in: low)])
        // From then on it is known again.
        let more = try chain(10, in: below)
        #expect(try here.names(in: more[8]) == ["d": more[9]])
        let full = try chain(61, in: .documents)
        try here.apply([.place(more[9], "z", in: full[60])])
    }

    /// To find out how deep a folder is counts among what is looked up for a batch.
    @Test func measuringAgainAndAgainIsRefused() throws {
        func chain(_ count: Int) -> [WireDocumentChange] {
            let ids = (0..<count).map { _ in ContainerDevice.makeID() }
            return ids.enumerated().map { .create($1, "d", in: $0 == 0 ? .documents : ids[$0 - 1], clash: .rename) }
        }
        let (low, high) = (chain(40), chain(100))
        let (folder, top) = (try here.makeFolder("many"), try #require(DocumentID(bytes: high[0].item)))
        let last = try #require(low.last.flatMap { DocumentID(bytes: $0.item) })
        try here.apply(low)
        try here.apply(high)
        for _ in 0..<2 {
            try here.apply(
                (0..<450).map { .create(ContainerDevice.makeID(), "\($0)", in: folder, .inline(""), clash: .rename) })
        }
        // Deep for a moment, so that where it goes it is measured.
        let round: [WireDocumentChange] = [
            .place(top, "top", in: folder), .place(top, "top", in: .documents), .place(folder, "many", in: last),
            .place(folder, "many", in: .documents),
        ]
        try here.apply(round)
        expect(.limitExceeded) { try here.apply(Array(repeating: round, count: 6).flatMap { $0 }) }
    }

    /// Nor by a move of what they lie in, step by step.
    @Test func foldersAreNotMovedTooDeep() throws {
        func chain(_ count: Int) throws -> (top: DocumentID, last: DocumentID) {
            let ids = (0..<count).map { _ in ContainerDevice.makeID() }
            try here.apply(
                ids.enumerated().map { .create($1, "d", in: $0 == 0 ? .documents : ids[$0 - 1], clash: .rename) })
            return (ids[0], ids[count - 1])
        }
        let (low, high) = (try chain(60), try chain(67))
        let file = try here.makeFile("deep", in: high.last)
        try here.apply([.place(high.top, "x", in: low.last)])
        #expect(try here.item(high.top).parent == Data(low.last.bytes))
        let more = try chain(2)
        expect(.limitExceeded) { try here.apply([.place(low.top, "x", in: more.last)]) }
        // What was made in a batch counts in it.
        let inner = ContainerDevice.makeID()
        expect(.limitExceeded) {
            try here.apply([.create(inner, "in", in: more.last), .place(low.top, "x", in: inner)])
        }
        // What lies in the trash there may come back.
        try here.apply([.trash(high.top), .place(low.last, "y", in: .documents)])
        let deep = try chain(100)
        expect(.limitExceeded) { try here.apply([.place(low.last, "y", in: deep.last)]) }
        try here.apply([.restore(high.top)])
        try here.apply([.replace(file, .inline("2"))])
    }

    /// What has to be looked up for one batch is bounded, so that nobody waits for it.
    @Test func oneBatchLooksUpNoMoreThanIsStated() throws {
        func batch(_ count: Int) -> [WireDocumentChange] {
            (0..<count).map { _ in .create(ContainerDevice.makeID(), "x", .inline("x"), clash: .rename) }
        }
        try here.apply(batch(50))
        expect(.limitExceeded) { try here.apply(batch(500)) }
        expect(.limitExceeded) { try here.apply(batch(501)) }
        #expect(try here.list().count == 50)
    }

    /// Also what the batch itself has put there, and where it is refused for it.
    @Test(arguments: [false, true]) func whatOneBatchLooksUpIsPaidFor(isOfOneItem: Bool) throws {
        let house = try ContainerHouse(budgets: BudgetConfiguration())
        let here = try house.device()
        let file = try here.makeFile("a")
        house.cloud.network.run(for: .seconds(60))
        var request = WireApplyChanges()
        request.container = here.container
        request.changes = (0..<300).map { number in
            isOfOneItem
                ? .attributes(file) { $0.executable = number % 2 == 0 }
                : .create(ContainerDevice.makeID(), "x", .inline("x"), clash: .rename)
        }
        let answer = try here.mover.client.begin(
            "ApplyChanges", request, at: .requests(.documents), accessToken: here.mover.accessToken)
        house.cloud.network.run(within: .seconds(60)) { answer.result != nil }
        if !isOfOneItem { expect(.limitExceeded) { _ = try #require(answer.result).get() } }
        let budget = try #require(answer.budget)
        #expect((isOfOneItem ? 30...70 : 310...450).contains(budget.capacity - budget.remaining))
    }

    @Test func zerosNameNoVersion() throws {
        let none = DocumentID(bytes: [UInt8](repeating: 0, count: 16))
        let version = try #require(none)
        expect(.invalidArguments) {
            try here.apply([.create(ContainerDevice.makeID(), "a", .inline("x", version: version))])
        }
        let file = try here.makeFile("a")
        expect(.invalidArguments) { try here.apply([.replace(file, .inline("x", version: version))]) }
        var trash = WireDocumentChange.trash(file)
        trash.trash.movedTo = "\u{0}"
        expect(.invalidArguments) { try here.apply([trash]) }
        #expect(try here.list().count == 1)
    }

    @Test func filesHaveNoItems() throws {
        let file = try here.makeFile("a")
        expect(.unknownItem) { try here.makeFile("b", in: file) }
        expect(.unknownItem) { try here.makeFile("b", in: ContainerDevice.makeID()) }
    }

    @Test func attributesMergeSingly() throws {
        let id = try here.makeFile("a")
        try here.apply([
            .attributes(id) {
                $0.executable = true
                $0.extended = [.named("user.b", [2]), .named("user.a", [1])]
            }
        ])
        try there.apply([
            .attributes(id) {
                $0.favouriteRank = 7
                $0.tags.tags = ["red"]
                $0.extended = [.named("user.b", []), .named("user.c", [3])]
            }
        ])
        let attributes = try here.item(id).attributes
        #expect(attributes.executable && attributes.favouriteRank == 7 && attributes.tags == ["red"])
        #expect(attributes.extended == [.named("user.a", [1]), .named("user.c", [3])])
        expect(.limitExceeded) {
            try here.apply([.attributes(id) { $0.extended = [.named("x", [UInt8](repeating: 1, count: 32 << 10))] }])
        }
        expect(.limitExceeded) { try here.apply([.attributes(id) { $0.tags.tags = [""] }]) }
    }

    @Test func anIdIsNeverUsedAgain() throws {
        let id = try here.makeFile("a")
        expect(.alreadyExists) { try there.apply([.create(id, "b", .inline("other"))]) }
        try here.apply([.trash(id), .remove(id)])
        expect(.unknownItem) { try there.apply([.create(id, "b", .inline("other"))]) }
        // To remove what is gone is done already.
        try there.apply([.remove(id)])
    }

    /// Whoever heard of that late has meant what lay there before.
    @Test func whatWasDeletedAnewIsNotRemovedWithWhatItWasDeletedWithBefore() throws {
        let id = try here.makeFile("a")
        let first = WireDocumentChange.trash(id)
        try here.apply([first])
        try there.apply([.restore(id), .trash(id)])
        expect(.constraintViolation) { try here.apply([.remove(id, batch: first.trash.batch)]) }
        try there.apply([.restore(id), first, .remove(id, batch: first.trash.batch)])
        // What is gone is gone with whatever it was deleted with.
        try here.apply([.remove(id, batch: first.trash.batch)])
    }

    @Test func oneContainerKnowsNothingOfAnother() throws {
        let id = try here.makeFile("a")
        let other = try house.device(app: "T.other")
        expect(.missingEntitlement) { _ = try other.list() }
        other.container = "T.elsewhere"
        expect(.unknownItem) { try other.apply([.trash(id)]) }
        other.container = "there is none"
        expect(.missingEntitlement) { _ = try other.list() }
        // Apps that list the same one share it.
        (here.container, other.container) = ("T.shared", "T.shared")
        try here.makeFile("shared")
        #expect(try other.names().keys.sorted() == ["shared"])
        // Accounts do not.
        try house.cloud.createAccount("guest")
        let guest = try house.device(account: "guest")
        guest.container = "T.shared"
        #expect(try guest.list().isEmpty)
    }

    @Test func contentsThatAreNoneAreRefused() throws {
        let id = ContainerDevice.makeID()
        let wrong: [(inout WireDocumentContent) -> Void] = [
            { $0.version = Data([1]) }, { $0.base = Data([1]) }, { $0.length = 5 }, { $0.inline = Data() },
            { $0.root = Data(count: 32) }, { $0.depth = 1 }, { $0.length = .max },
            {
                $0.length = 5000
                $0.inline = Data(count: 5000)
            },
        ]
        for change in wrong {
            var content = WireDocumentContent.inline("text")
            change(&content)
            #expect(throws: CloudError.self) { try here.apply([.create(id, "a", content)]) }
        }
        var link = WireDocumentChange.create(id, "a", .inline("a\0b"))
        link.create.kind = .link
        expect(.invalidArguments) { try here.apply([link]) }
        // What nobody has stored is no content.
        var content = WireDocumentContent()
        content.version = Data(ContainerDevice.makeID().bytes)
        content.length = 5000
        content.root = Data(count: 32)
        expect(.unknownItem) { try here.apply([.create(id, "a", content)]) }
        #expect(try here.list().isEmpty)
    }

    /// With what an item lies in the trash is told to who has seen it as it lies there: they may remove it for good.
    @Test func whoHasNotSeenWhatWasDeletedIsNotToldWithWhat() throws {
        let file = try here.makeFile("a", "1")
        let folder = try here.makeFolder("f")
        let (old, seen) = (try here.item(file).content.version, try here.apply([.restore(file)]).token)
        _ = try there.list()
        try there.apply([
            .replace(file, .inline("2", base: old)), .create(ContainerDevice.makeID(), "new", in: folder, .inline("3")),
        ])
        try there.apply([.trash(file), .trash(folder)])
        #expect(try here.apply([.trash(file, base: old)]).items.isEmpty)
        #expect(try here.apply([.trash(folder, seen: seen)]).items.isEmpty)
        let now = try here.item(file).content.version
        #expect(try here.apply([.trash(file, base: now), .trash(folder)]).items.count == 2)
    }

    // MARK: Late repeats

    /// What was carried out, whose reply was lost, and what somebody else has done before it comes again.
    enum LateRepeat: CaseIterable {
        case trash, restore, attributes, rendition, replacedAndThinned, createdAndMoved, renamed
    }

    /// The device has slept for two days, or its clock is ahead: nobody has the reply, and the change is not carried out
    /// once more.
    @Test(arguments: LateRepeat.allCases, [-48, 2]) func aLateRepeatUndoesNothing(
        _ repeated: LateRepeat, ahead hours: Int
    ) throws {
        let id = ContainerDevice.makeID()
        let first = WireDocumentContent.inline("1")
        let create = WireDocumentChange.create(id, "a", first)
        var change: WireDocumentChange
        var since: [[WireDocumentChange]]
        switch repeated {
        case .trash: (change, since) = (.trash(id), [[.restore(id)]])
        case .restore: (change, since) = (.restore(id), [[.trash(id)]])
        case .attributes:
            change = .attributes(id) { $0.favouriteRank = 1 }
            since = [[.attributes(id) { $0.favouriteRank = 2 }]]
        case .rendition:
            func small(_ text: String) -> WireDocumentChange {
                var change = WireDocumentChange()
                change.item = Data(id.bytes)
                change.rendition.name = Data("small".utf8)
                change.rendition.content = .inline(text)
                change.rendition.ofVersion = first.version
                return change
            }
            (change, since) = (small("old"), [[small("new")]])
        case .replacedAndThinned:
            var last = WireDocumentContent.inline("2", base: first.version)
            change = .replace(id, last)
            since = []
            // All of one hour: but for the last, they are thinned.
            for number in 3..<9 {
                let next = WireDocumentContent.inline("\(number)", base: last.version)
                since.append([.replace(id, next)])
                last = next
            }
        case .createdAndMoved:
            let folder = ContainerDevice.makeID()
            change = create
            since = [[.create(folder, "f")], [.place(id, "b", in: folder)]]
        case .renamed: (change, since) = (.place(id, "b", in: .documents), [[.place(id, "c", in: .documents)]])
        }
        if repeated != .createdAndMoved { try here.apply([create]) }
        if repeated == .restore { try here.apply([.trash(id)]) }
        var generator = SplitMix64(seed: 1)
        let sent = SimulatedNetwork.epoch.advanced(by: house.cloud.network.now + .seconds(hours * 3600))
        let operation = OperationID(at: sent, using: &generator)
        try here.apply([change], id: operation)
        for changes in since { try there.apply(changes) }
        // The replies that are stored belong to the device that got them: as if it had been too long ago for its own.
        var device = there
        if repeated == .replacedAndThinned {
            for service in [ServiceName.identity, .documents] { house.cloud.skip(.seconds(26 * 3600), of: service) }
            device = try house.device()
            let latest = try device.item(id).content
            try device.apply([.replace(id, .inline("9", base: latest.version))])
            #expect(try device.versions(of: id).allSatisfy { $0.text != "2" })
        }
        let before = try device.list()
        try device.apply([change], id: operation)
        #expect(try device.list() == before)
    }
}
