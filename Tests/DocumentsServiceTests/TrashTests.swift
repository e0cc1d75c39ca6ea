import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What is deleted lies in the trash, comes back as it was, and goes for good with all that is in it.
@Suite struct TrashTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
    }

    @Test func aFolderIsDeletedAndComesBackByOneSmallChange() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder)
        #expect(try here.apply([.trash(folder)]).items.count == 1)
        #expect(try there.names().isEmpty)
        #expect(try there.item(folder).trash.deviceID == here.mover.device.rawValue)
        // Its name is free, and nothing is put into it.
        try there.makeFolder("folder")
        expect(.unknownItem) { try there.makeFile("b", in: folder) }
        expect(.alreadyExists) { try there.apply([.restore(folder)]) }
        try there.apply([.restore(folder, clash: .rename)])
        #expect(try here.names().keys.sorted() == ["folder", "folder 2"])
        #expect(try here.names(in: folder) == ["a": file])
    }

    /// Nobody would find it there: its device decides where it goes.
    @Test func nothingIsWrittenToWhatLiesInTheTrash() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder, "1")
        let base = try here.item(file).content.version
        let written = WireDocumentContent.inline("2", base: base)
        try here.apply([.replace(file, written), .trash(folder)])
        let change = WireDocumentChange.replace(file, .inline("3", base: written.version))
        #expect(
            try refused([.attributes(file) { $0.favouriteRank = 1 }, change]) == [
                "item": "\(file)", "in_trash": "\(folder)", "change": "1",
            ])
        #expect(
            try refused([.create(ContainerDevice.makeID(), "b", in: folder)]) == [
                "item": "\(folder)", "in_trash": "\(folder)", "change": "0",
            ])
        // A commit that comes again is none.
        try there.apply([.replace(file, written)])
        try there.apply([.restore(folder), change])
        #expect(try here.item(file).content.text == "3")
        try here.apply([.trash(file)])
        #expect(try refused([.replace(file, .inline("4"))])["in_trash"] == "\(file)")
        try here.apply([.remove(file)])
        #expect(try refused([.replace(file, .inline("4"))]) == ["item": "\(file)", "change": "0"])
    }

    /// The details of the refusal.
    private func refused(_ changes: [WireDocumentChange]) throws -> [String: String] {
        do {
            try there.apply(changes)
            return [:]
        } catch let error as CloudError {
            #expect(error.code == .unknownItem)
            return error.details
        }
    }

    @Test func whatWasChangedMeanwhileIsNotDeleted() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder, "1")
        let seen = try here.apply([.attributes(folder) { $0.favouriteRank = 1 }]).token
        let version = try here.item(file).content.version
        try there.makeFile("elsewhere")
        let new = try there.makeFile("new", in: folder)
        expect(.constraintViolation) { try here.apply([.trash(folder, seen: seen)]) }
        try there.apply([.replace(file, .inline("2", base: version))])
        expect(.constraintViolation) { try here.apply([.trash(file, base: version)]) }
        #expect(try here.names(in: folder) == ["a": file, "new": new])
        let all = try here.apply([.attributes(folder) { $0.favouriteRank = 2 }]).token
        try there.makeFile("elsewhere too")
        try here.apply([.trash(folder, seen: all)])
        #expect(try here.item(folder).hasTrash)
    }

    /// What a device has changed itself it has seen, as long as nobody else has changed it since.
    @Test func whatADeviceHasChangedItselfKeepsItsFolderFromNothing() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder, "1")
        let base = try here.item(file).content.version
        let seen = try here.apply([.attributes(folder) { $0.favouriteRank = 1 }]).token
        let (mine, theirs) = (WireDocumentContent.inline("2", base: base), WireDocumentContent.inline("3", base: base))
        let made = ContainerDevice.makeID()
        try here.apply([.replace(file, mine), .create(made, "new", in: folder)])
        let changed = [file: [mine.version], made: []]
        expect(.constraintViolation) { try here.apply([.trash(folder, seen: seen)]) }
        expect(.constraintViolation) { try here.apply([.trash(folder, seen: seen, changed: [file: [mine.version]])]) }
        try there.apply([.replace(file, theirs)])
        expect(.constraintViolation) { try here.apply([.trash(folder, seen: seen, changed: changed)]) }
        try there.apply([.resolve(file, [theirs.version])])
        try here.apply([.trash(folder, seen: seen, changed: changed)])
        #expect(try here.item(folder).hasTrash)
    }

    /// What was seen of another history says nothing of this one.
    @Test func whoHasSeenAnotherHistoryDeletesNoFolder() throws {
        let copy = try house.cloud.copyStorage(of: .documents)
        let folder = try here.makeFolder("folder")
        for _ in 0..<5 { try here.apply([.attributes(folder) { $0.favouriteRank = 1 }]) }
        let lost = try here.apply([.attributes(folder) { $0.favouriteRank = 2 }]).token
        try house.cloud.restore(copy, of: .documents)
        let again = try house.device()
        try again.apply([.create(folder, "folder")])
        // The first one proves that the copy is old; then there is another epoch, and still nothing was seen of it.
        for _ in 0..<2 {
            #expect(throws: CloudError.self) { try here.apply([.trash(folder, seen: lost)]) }
            house.cloud.network.run(for: .seconds(1))
        }
        #expect(try !again.item(folder).hasTrash)
    }

    @Test func whatHasNoFolderAnyMoreComesBackToDocuments() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder)
        try here.apply([.trash(file), .trash(folder)])
        try here.apply([.restore(file)])
        #expect(try there.names() == ["a": file])
    }

    @Test func onlyWhatIsInTheTrashIsRemovedForGood() throws {
        let folder = try here.makeFolder("folder")
        expect(.constraintViolation) { try here.apply([.remove(folder)]) }
        var id = folder
        for _ in 0..<5 { id = try here.makeFolder("deeper", in: id) }
        for number in 0..<150 { try here.makeFile("\(number)", in: id) }
        try here.makeFile("stays")
        try here.apply([.trash(folder), .remove(folder)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try there.list().values.map { String(decoding: $0.name, as: UTF8.self) } == ["stays"])
    }

    /// An id is used once, also within one batch, and while its removal goes on.
    @Test func whatIsRemovedIsNotMadeAgain() throws {
        let id = ContainerDevice.makeID()
        let create = WireDocumentChange.create(id, "a", .inline("x"))
        expect(.unknownItem) { try here.apply([create, .trash(id), .remove(id), .create(id, "b", .inline("y"))]) }
        try here.apply([create, .trash(id), .remove(id)])
        expect(.unknownItem) { try here.apply([create]) }
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.used() == 0)
    }

    /// However the versions came, they are bounded, and all go with their item.
    @Test func manyVersionsOfOneBatchAreThinnedAndGo() throws {
        let id = try here.makeFile("a", "0")
        var version = try here.item(id).content.version
        let changes = (1...300).map { number in
            let content = WireDocumentContent.inline("\(number)", base: version)
            version = content.version
            return WireDocumentChange.replace(id, content)
        }
        try here.apply(changes)
        // The first one stays, since there is room between it and the others.
        #expect(try here.versions(of: id).map(\.text) == (202...300).reversed().map { "\($0)" } + ["0"])
        #expect(try house.used() == 298)
        try here.apply([.trash(id), .remove(id)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.used() == 0)
    }

    /// A folder is not looked through again for each change of a batch.
    @Test func whatDeletionsLookAtIsBounded() throws {
        let folders = try (0..<40).map { try here.makeFolder("\($0)") }
        let seen = try here.apply([.attributes(folders[0]) { $0.favouriteRank = 1 }]).token
        for some in 0..<4 { try there.apply((0..<100).map { .create(ContainerDevice.makeID(), "x\(some)-\($0)") }) }
        // Each looks at 400 items.
        expect(.limitExceeded) { try here.apply(folders.map { .trash($0, seen: seen) }) }
        try here.apply(folders[..<5].map { .trash($0, seen: seen) })
    }

    /// Nor by saying otherwise each time what was seen.
    @Test func whatDeletionsReadIsBounded() throws {
        let folders = try (0..<40).map { try here.makeFolder("\($0)") }
        let seen = try (1...2).map { rank in
            try here.apply([.attributes(folders[0]) { $0.favouriteRank = rank }]).token
        }
        let ids = (0..<300).map { _ in ContainerDevice.makeID() }
        try there.apply(ids.enumerated().map { .create($1, "x\($0)") })
        for some in [ids[..<150], ids[150...]] { try there.apply(some.flatMap { [.trash($0), .remove($0)] }) }
        house.cloud.network.run(for: .seconds(5))
        let head = try there.apply([.attributes(folders[0]) { $0.favouriteRank = 2 }])
        #expect(head.token.sequence > seen[1].sequence)
        expect(.limitExceeded) {
            try here.apply(folders.enumerated().map { .trash($1, seen: seen[$0 % 2]) })
        }
    }

    @Test func aRemovalThatWasCutOffGoesOn() throws {
        let folder = try here.makeFolder("folder")
        for number in 0..<150 { try here.makeFile("\(number)", in: folder) }
        try here.apply([.trash(folder), .remove(folder)])
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        house.cloud.network.run(for: .seconds(5))
        #expect(try there.list().isEmpty)
    }

    /// Thirty days go by, and its clock is set back for whoever asks.
    @Test func whatHasLainInTheTrashForThirtyDaysIsRemoved() throws {
        let folder = try here.makeFolder("folder")
        try here.makeFile("a", in: folder)
        let early = try here.makeFile("early")
        try here.apply([.trash(folder), .trash(early), .restore(early)])
        for (days, left) in [(29, 3), (31, 1)] {
            house.cloud.skip(.seconds(days * 24 * 3600), of: .documents)
            house.cloud.network.run(for: .seconds(90))
            house.cloud.setClockOffset(of: .documents, .zero)
            let items = try house.device().list()
            #expect(items.count == left && items[early] != nil)
        }
    }

    @Test func whatCameWithItsItemCountsOnThePlanUntilItIsGone() throws {
        let text = String(repeating: "x", count: 4000)
        let id = try here.makeFile("a", text)
        try here.apply([.replace(id, .inline(text + "y", base: try here.item(id).content.version))])
        #expect(try house.used() == 8001)
        try here.apply([.trash(id)])
        #expect(try house.used() == 8001)
        try here.apply([.remove(id)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.used() == 0)
    }
}

extension ContainerHouse {
    /// Bytes of contents that count on the account's plan.
    func used() throws -> Int64 { try counted() - countedByItems() }

    /// Bytes that count on the account's plan.
    func counted() throws -> Int64 { try number(Self.selectUsed) }

    /// Bytes that items, versions and links count besides contents.
    func countedByItems() throws -> Int64 { try number(Self.selectItems) }

    private func number(_ sql: SQL) throws -> Int64 {
        try cloud.storage(of: .documents).write { try $0.first(sql) { $0.integer(0) } ?? 0 }
    }

    private static let selectUsed = SQL("SELECT used FROM storage_owners")
    private static let selectItems = SQL(
        """
        SELECT COALESCE((SELECT SUM(counted) FROM document_items), 0)
            + COALESCE((SELECT SUM(counted) FROM document_versions), 0)
            + COALESCE((SELECT SUM(counted) FROM document_links), 0)
        """)
}
