import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// One row that the disk has lost takes no other with it: by the rows beside it it is deleted, and other things are put
/// into it.
@Suite struct DamagedItemTests {
    private let house: ContainerHouse
    private let device: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        device = try house.device()
    }

    private func change(_ sql: String, _ values: [SQLValue] = []) throws {
        let count = try house.cloud.storage(of: .documents).write { try $0.execute(SQL(sql), values) }
        #expect(count == 1)
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        house.cloud.network.run(for: .seconds(1))
    }

    private func damage(_ id: DocumentID) throws {
        try change("UPDATE feed_items SET body = x'0102' WHERE name = ?1", [.text(id.name.rawValue)])
    }

    private func rows(_ table: String) throws -> Int64 {
        try house.cloud.storage(of: .documents).write {
            try $0.first(SQL("SELECT COUNT(*) FROM \(table)"), []) { $0.integer(0) } ?? 0
        }
    }

    private func used() throws -> Int64 {
        try house.cloud.storage(of: .documents).write {
            try $0.first(
                SQL("SELECT used FROM storage_owners WHERE owner_id = ?1"),
                [.text(Owner(device.mover.account).rawValue)]
            ) { $0.integer(0) } ?? 0
        }
    }

    private func changes(by count: UInt32 = 0) throws -> [String: WireChange] {
        var request = WireReadChanges()
        request.scope = device.container
        request.itemsMax = count
        var changes: [String: WireChange] = [:]
        while true {
            let reply = try device.call("ReadChanges", request, as: WireReadChangesReply.self)
            for change in reply.changes { changes[change.item] = change }
            request.place = reply.place
            guard reply.hasPlace else { return changes }
        }
    }

    private func counter(_ name: String) throws -> UInt64 {
        let health: WireCheckHealthReply = try device.mover.client.call(
            "CheckHealth", WireCheckHealth(), at: .requests(.documents))
        return health.counters[name] ?? 0
    }

    private func refusal(_ changes: [WireDocumentChange]) -> CloudError? {
        do {
            try device.apply(changes)
            return nil
        } catch { return error as? CloudError }
    }

    /// What is damaged is told by its own error, with which device it is that has it.
    @Test func whatCannotBeDoneIsRefusedByATypedError() throws {
        let id = try device.makeFile("f")
        let version = try device.item(id).content.version
        let sequence = try #require(try changes()[id.name.rawValue]).sequence
        try damage(id)
        let refused: [WireDocumentChange] = [
            .replace(id, .inline("new", base: version)), .place(id, "g", in: .documents), .restore(id),
            .attributes(id) { $0.executable = true }, .resolve(id, [version]), .announce(id, version, length: 5),
            .create(id, "f", .inline("new")),
        ]
        for change in refused {
            let error = refusal([change])
            #expect(error?.code == .unknownItem, "\(change)")
            #expect(error?.details["reason"] == "damaged" && error?.details["written"] == "\(sequence)", "\(change)")
            house.cloud.network.run(for: .seconds(1))
        }
        #expect(try changes()[id.name.rawValue]?.written == sequence)
        expect(.constraintViolation) { try device.apply([.remove(id)]) }
        // Nothing else is held up.
        try device.makeFile("g")
        let conditions = [WireItemCondition.make(id, .contentVersion(version))]
        expect(.constraintViolation) { try device.apply([.create(ContainerDevice.makeID(), "h")], if: conditions) }
        expect(.unknownItem) { _ = try device.versions(of: id) }
    }

    @Test(arguments: [true, false]) func itIsDeletedByItsRows(_ isFolder: Bool) throws {
        let id = try isFolder ? device.makeFolder("f") : device.makeFile("f")
        if isFolder { try device.makeFile("within", in: id) }
        try damage(id)
        let trash = WireDocumentChange.trash(id)
        try device.apply([trash])
        // Its name is free.
        let other = try device.makeFile("f")
        try device.apply([.trash(id)])
        expect(.constraintViolation) { try device.apply([.remove(id, batch: Data(ContainerDevice.makeID().bytes))]) }
        try device.apply([.remove(id, batch: trash.trash.batch)])
        house.cloud.network.run(for: .seconds(120))
        #expect(try device.names() == ["f": other])
        try device.apply([.trash(other)])
        try device.apply([.remove(other)])
        house.cloud.network.run(for: .seconds(120))
        #expect(try used() == 0 && rows("damaged_items") == 0)
        for table in ["document_places", "document_trash", "document_children", "document_items", "document_versions"] {
            #expect(try rows(table) == 0, "\(table)")
        }
    }

    @Test func somethingIsPutIntoADamagedFolderAndTakenOut() throws {
        let (top, file) = (try device.makeFolder("top"), try device.makeFile("f"))
        let folder = try device.makeFolder("folder", in: top)
        try damage(folder)
        try device.apply([.place(file, "g", in: folder)])
        let within = try device.makeFolder("within", in: folder)
        try device.makeFile("h", in: within)
        // Nor into itself.
        expect(.constraintViolation) { try device.apply([.place(top, "x", in: within)]) }
        try device.apply([.place(file, "f", in: .documents)])
        try device.apply([.trash(folder)])
        expect(.unknownItem) { try device.makeFile("late", in: within) }
    }

    /// What a device is about to make nobody has but it, and nobody offers it again.
    @Test func whatIsSaidToComeKeepsNobodyFromMakingAnything() throws {
        let id = DocumentID.coming(from: device.mover.device)
        try device.apply([.coming([.named("a")], from: device.mover.device)])
        try damage(id)
        try device.apply([.coming([.named("b")], from: device.mover.device)])
        #expect(try device.item(id).announcements.map(\.name) == [Data("b".utf8)])
        try damage(id)
        try device.makeFile("f")
        #expect(try changes()[id.name.rawValue]?.damaged == true)
        // Nor is it there for ever.
        house.cloud.skip(.seconds(25 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(200))
        #expect(try rows("feed_items WHERE name = '\(id.name)' AND deleted_at > 0") == 1)
    }

    private static let selectWritten = SQL(
        """
        SELECT coalesce((SELECT written FROM damaged_items d WHERE d.name = ?1), sequence)
        FROM feed_items WHERE name = ?1
        """)

    /// Where the item was written.
    private func written(_ id: DocumentID) throws -> UInt64 {
        let sequence = try house.cloud.storage(of: .documents).write {
            try $0.first(Self.selectWritten, [.text(id.name.rawValue)]) { UInt64(clamping: $0.integer(0)) }
        }
        return try #require(sequence)
    }

    /// - Parameter written: As whose the device has it; nil: it has what is damaged.
    private func offer(_ item: WireDocumentItem, _ id: DocumentID, written: UInt64? = nil) throws -> WireDocumentChange
    {
        var change = WireDocumentChange.create(id, item.name, in: .documents, item.hasContent ? item.content : nil)
        change.create.parent = item.parent
        change.create.placeVersion = item.placeVersion
        change.create.made = item.made
        (change.create.placed, change.create.attributed) = (item.placed, item.attributed)
        change.create.conflicts = item.conflicts.map(\.version)
        change.create.renditions = item.renditions
        change.create.kind = item.kind
        if item.hasAttributes { change.create.attributes = item.attributes }
        change.create.written = try written ?? self.written(id)
        change.offered = true
        return change
    }

    @Test func whatIsOfferedTakesItsPlaceAsItWas() throws {
        let id = try device.makeFile("f")
        let base = try device.item(id).content.version
        for text in ["second", "loser"] { try device.apply([.replace(id, .inline(text, base: base))]) }
        let (before, counted) = (try device.item(id), try used())
        try damage(id)
        try device.apply([offer(before, id)])
        #expect(try device.item(id) == before && used() == counted)
        // Again it is nothing.
        try device.apply([offer(before, id)])
        #expect(try device.item(id) == before && device.names() == ["f": id])
        // Nor does another take its name, and it can be called otherwise.
        expect(.alreadyExists) { try device.makeFile("f") }
        try device.apply([.place(id, "g", in: .documents)])
        try device.makeFile("f")
    }

    @Test func whatWasDeletedMeanwhileIsWholeInTheTrash() throws {
        let id = try device.makeFile("f")
        let before = try device.item(id)
        try damage(id)
        let trash = WireDocumentChange.trash(id)
        try device.apply([trash])
        try device.apply([offer(before, id)])
        let item = try device.item(id)
        #expect(item.trash.batch == trash.trash.batch && item.content == before.content)
        try device.makeFile("f")
        try device.apply([.restore(id, clash: .rename)])
        #expect(try device.names().keys.sorted() == ["f", "f 2"])
    }

    @Test func anOlderContentDoesNotTakeItsPlace() throws {
        let id = try device.makeFile("f")
        let older = try device.item(id)
        try device.apply([.replace(id, .inline("newer", base: older.content.version))])
        let newer = try device.item(id)
        try damage(id)
        try device.apply([offer(older, id)])
        #expect(try changes()[id.name.rawValue]?.damaged == true)
        try device.apply([offer(newer, id)])
        #expect(try device.item(id) == newer)
    }

    /// What says nothing of a content is as old as what does: a folder's name, a file's attributes.
    @Test(arguments: [true, false]) func anOlderStateOfAnythingElseDoesNotTakeItsPlace(_ isFolder: Bool) throws {
        let id = try isFolder ? device.makeFolder("f") : device.makeFile("f")
        let (older, before) = (try device.item(id), try written(id))
        try device.apply([.place(id, "g", in: .documents), .attributes(id) { $0.tags.tags = ["red"] }])
        let newer = try device.item(id)
        try damage(id)
        for number in [before, 0] {
            try device.apply([offer(older, id, written: number)])
            #expect(try changes()[id.name.rawValue]?.damaged == true)
        }
        try device.apply([offer(newer, id)])
        #expect(try device.item(id) == newer)
    }

    /// Who heals it is not taken for who has made it, nor is it younger by that, whatever the clock says and whatever the disk
    /// has lost besides.
    @Test(arguments: [0, -30]) func itIsAsItWasWhoeverHealsIt(_ clockOffset: Int) throws {
        let other = try house.device()
        let id = try device.makeFile("f")
        try device.apply([
            .replace(id, .inline("second", base: device.item(id).content.version)),
            .attributes(id) { $0.tags.tags = ["red"] },
        ])
        let before = try device.item(id)
        try change("DELETE FROM document_versions WHERE item = ?1 AND number = 1", [.blob(id.bytes)])
        try change("UPDATE document_versions SET sealed = x'0102' WHERE item = ?1", [.blob(id.bytes)])
        house.cloud.setClockOffset(of: .documents, .seconds(clockOffset))
        try damage(id)
        house.cloud.network.run(for: .seconds(1))
        try other.apply([offer(before, id)])
        #expect(try device.item(id) == before)
        // Nor does its version stay unreadable, which is kept when another takes its place.
        #expect(try device.versions(of: id).map(\.text) == ["second"])
        house.cloud.setClockOffset(of: .documents, .zero)
        try device.apply([.replace(id, .inline("third", base: before.content.version))])
        #expect(try device.versions(of: id).map(\.text) == ["third", "second"])
    }

    /// In the history that was lost one folder lay in the other; by now it is the other way about. Or there is no room.
    @Test(arguments: [true, false]) func whatHasNoRoomWhereItWasIsWholeWhereItLies(_ isWithin: Bool) throws {
        let (folder, other) = (try device.makeFolder("folder"), try device.makeFolder("other"))
        var before = try device.item(folder)
        before.parent = Data(other.bytes)
        if isWithin {
            try device.apply([.place(other, "other", in: folder)])
        } else {
            try device.makeFile("within", in: other)
            try change(
                "UPDATE document_folders SET item_count = \(DocumentLimits.folderCountMax) WHERE folder = ?1",
                [.blob(other.bytes)])
        }
        try damage(folder)
        let change = try offer(before, folder)
        try device.apply([change])
        #expect(try DocumentID(bytes: device.item(folder).parent) == .documents)
        #expect(try device.names()["folder"] == folder)
    }

    /// It was made by a clock that was ahead, and deleted by its rows: it came into the trash after that.
    @Test func whatIsHealedInTheTrashWasDeletedAfterItWasMade() throws {
        house.cloud.setClockOffset(of: .documents, .seconds(300))
        let id = try device.makeFile("f")
        let before = try device.item(id)
        house.cloud.setClockOffset(of: .documents, .zero)
        try damage(id)
        let trash = WireDocumentChange.trash(id)
        try device.apply([trash])
        try device.apply([offer(before, id)])
        let note = try device.item(id).trash
        #expect(note.trashed >= before.placed && note.batch == trash.trash.batch)
        #expect(note.deviceID == device.mover.device.rawValue)
        // By its row, too.
        try damage(id)
        try device.apply([offer(before, id)])
        #expect(try device.item(id).trash == note)
    }

    /// The item changes before its digest is put right: the folders above have what it was in theirs, and lose that.
    @Test func aDamagedDigestIsNoDamageToTheFoldersAbove() throws {
        let folder = try device.makeFolder("folder")
        let ids = try (0..<3).map { try device.makeFile("\($0)", in: folder) }
        try change("UPDATE feed_items SET digest = zeroblob(32) WHERE name = ?1", [.text(ids[1].name.rawValue)])
        try device.apply([.attributes(ids[1]) { $0.tags.tags = ["red"] }])
        try device.apply([.place(ids[2], "c", in: .documents), .trash(ids[0])])
        _ = try changes()
        house.cloud.network.run(for: .seconds(10))
        let list = try digests(of: folder)
        #expect(list.entries.count == 2)
        let sum = try list.entries.reduce(into: SetDigest.empty) { sum, entry in
            sum.add(try #require(SetDigest(bytes: [UInt8](entry.digest))))
        }
        #expect([UInt8](list.folderDigest) == sum.bytes)
    }

    private func digests(of folder: DocumentID) throws -> WireListItemDigestsReply {
        var request = WireListItemDigests()
        request.container = device.container
        request.folder = Data(folder.bytes)
        return try device.call("ListItemDigests", request, as: WireListItemDigestsReply.self)
    }

    /// To find where a damaged file lay all of the container is gone through: one such file at a time.
    @Test func ofDamagedFilesThatHaveHadTheirTimeOneIsEndedAtATime() throws {
        let ids = try (0..<3).map { try device.makeFile("\($0)") }
        try device.apply(ids.map { .trash($0) })
        for id in ids { try damage(id) }
        house.cloud.skip(.seconds(40 * 24 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(200))
        let sequences = try house.cloud.storage(of: .documents).write {
            try $0.all(SQL("SELECT sequence FROM feed_items WHERE deleted_at > 0"), []) { $0.integer(0) }
        }
        #expect(sequences.count == 3 && Set(sequences).count == 3)
    }

    /// In a row, or in the head: both are only what items add up to. Read at once, or page by page.
    @Test(
        arguments: [
            "UPDATE feed_items SET digest = x'1234' WHERE name = ?1",
            "UPDATE feed_items SET digest = zeroblob(32) WHERE name = ?1",
            "UPDATE feed_scopes SET digest = zeroblob(32), live_count = 7 WHERE path = 'T.letters' AND ?1 <> ''",
        ], [0, 2] as [UInt32])
    func aDamagedDigestIsPutRight(_ damage: String, _ itemsMax: UInt32) throws {
        let ids = try (0..<5).map { try device.makeFile("\($0)") }
        let before = try device.list()
        try change(damage, [.text(ids[2].name.rawValue)])
        _ = try changes(by: itemsMax)
        house.cloud.network.run(for: .seconds(10))
        // It looks whether the digest is theirs.
        #expect(try device.list() == before)
        #expect(try counter("digests.damaged") > 0)
        #expect(try rows("feed_scopes WHERE path = 'T.letters' AND live_count = 5") == 1)
    }
}
