import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// A row that does not open goes to the quarantine, takes no other with it, and comes back from whoever has the item.
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

    /// A write meets it: it is not there.
    @Test func whatDoesNotOpenIsNotThere() throws {
        let id = try device.makeFile("f")
        let version = try device.item(id).content.version
        let head = try place()
        try damage(id)
        let refused: [WireDocumentChange] = [
            .replace(id, .inline("new", base: version)), .place(id, "g", in: .documents), .restore(id), .trash(id),
            .attributes(id) { $0.executable = true }, .resolve(id, [version]), .announce(id, version, length: 5),
            .remove(id),
        ]
        for change in refused { #expect(refusal([change])?.code == .unknownItem, "\(change)") }
        let conditions = [WireItemCondition.make(id, .contentVersion(version))]
        expect(.constraintViolation) { try device.apply([.create(ContainerDevice.makeID(), "h")], if: conditions) }
        expect(.unknownItem) { _ = try device.versions(of: id) }
        house.cloud.network.run(for: .seconds(1))
        #expect(try counter("quarantine.now") == 1 && counter("items.quarantined") == 1)
        // Nothing has moved, and its name is free.
        #expect(try place() == head && device.list().isEmpty)
        let other = try device.makeFile("f")
        #expect(try device.names() == ["f": other])
    }

    /// A read meets it: of the feed, or of digests.
    @Test(arguments: ["ReadChanges", "ListItemDigests"]) func whatAReadMeetsGoesToTheQuarantine(_ method: String) throws
    {
        let folder = try device.makeFolder("folder")
        let ids = try (0..<40).map { try device.makeFile("\($0)", in: folder) }
        let row = SQL("UPDATE feed_items SET body = x'0102' WHERE name = ?1")
        let count = try house.cloud.storage(of: .documents).write { try $0.execute(row, [.text(ids[7].name.rawValue)]) }
        #expect(count == 1)
        if method == "ReadChanges" {
            #expect(try changes()[ids[7].name.rawValue] == nil)
        } else {
            var request = WireListItemDigests()
            (request.container, request.items) = (device.container, ids.map { Data($0.bytes) })
            let reply = try device.call("ListItemDigests", request, as: WireListItemDigestsReply.self)
            #expect(reply.entries.count == 39)
        }
        house.cloud.network.run(for: .seconds(1))
        #expect(try counter("quarantine.now") == 1)
        // The digests of what it lay in have lost its share.
        let list = try digests(of: folder)
        #expect(list.entries.count == 39)
        let sum = try list.entries.reduce(into: SetDigest.empty) { sum, entry in
            sum.add(try #require(SetDigest(bytes: [UInt8](entry.digest))))
        }
        #expect([UInt8](list.folderDigest) == sum.bytes)
        #expect(try device.list().count == 40)
    }

    @Test func whatLiesInAFolderStaysUntilTheFolderIsBack() throws {
        let top = try device.makeFolder("top")
        let folder = try device.makeFolder("folder", in: top)
        let file = try device.makeFile("f", in: folder)
        let before = try device.item(folder)
        try damage(folder)
        expect(.unknownItem) { try device.makeFile("g", in: folder) }
        #expect(try device.list()[file] != nil && device.list()[folder] == nil)
        try device.apply([offer(before, folder)])
        #expect(try device.item(folder) == before)
        try device.makeFile("g", in: folder)
        expect(.constraintViolation) { try device.apply([.place(top, "x", in: folder)]) }
        let list = try digests(of: top)
        #expect([UInt8](list.digest) == (try headDigest()))
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
        #expect(try changes()[id.name.rawValue] == nil)
    }

    private func offer(_ item: WireDocumentItem, _ id: DocumentID) throws -> WireDocumentChange {
        var change = WireDocumentChange.create(id, item.name, in: .documents, item.hasContent ? item.content : nil)
        change.create.parent = item.parent
        change.create.placeVersion = item.placeVersion
        change.create.made = item.made
        (change.create.placed, change.create.attributed) = (item.placed, item.attributed)
        change.create.conflicts = item.conflicts.map(\.version)
        change.create.renditions = item.renditions
        change.create.kind = item.kind
        if item.hasAttributes { change.create.attributes = item.attributes }
        change.offered = true
        return change
    }

    /// With its conflicts, whoever has made it, and what it counts.
    @Test func whatIsOfferedIsThereAsItWas() throws {
        let id = try device.makeFile("f")
        let base = try device.item(id).content.version
        for text in ["second", "loser"] { try device.apply([.replace(id, .inline(text, base: base))]) }
        let (before, versions, counted) = (try device.item(id), try device.versions(of: id), try used())
        try damage(id)
        let other = try house.device()
        try other.apply([offer(before, id)])
        #expect(try device.item(id) == before && used() == counted && device.versions(of: id) == versions)
        // Again it is nothing.
        try device.apply([offer(before, id)])
        #expect(try device.item(id) == before && device.names() == ["f": id])
        // Nor does another take its name, and it can be called otherwise.
        expect(.alreadyExists) { try device.makeFile("f") }
        try device.apply([.place(id, "g", in: .documents)])
        try device.makeFile("f")
        #expect(try rows("quarantined_items") == 0)
    }

    /// An older content may come back first: the newer one is among the versions still.
    @Test func whatIsNewerThanWhatComesBackIsInConflictWithIt() throws {
        let id = try device.makeFile("f")
        let older = try device.item(id)
        try device.apply([.replace(id, .inline("newer", base: older.content.version))])
        try damage(id)
        try device.apply([offer(older, id)])
        #expect(try device.item(id).content == older.content)
        #expect(try device.item(id).conflicts.map(\.inline) == [Data("newer".utf8)])
        #expect(try device.versions(of: id).map(\.text) == ["newer", "text"])
    }

    /// A version whose row does not open either is lost; the content is there as the device has it.
    @Test func aContentIsThereThoughItsVersionDoesNotOpenEither() throws {
        let id = try device.makeFile("f")
        let before = try device.item(id)
        try change("UPDATE document_versions SET sealed = x'0102' WHERE item = ?1", [.blob(id.bytes)])
        try damage(id)
        try device.apply([offer(before, id)])
        #expect(try device.item(id) == before)
    }

    /// It comes back as the device has it, where it was not in the trash yet.
    @Test func whatLayInTheTrashIsEndedAsWhatIsThereSays() throws {
        let id = try device.makeFile("f")
        let before = try device.item(id)
        try device.apply([.trash(id)])
        try damage(id)
        try device.apply([offer(before, id)])
        house.cloud.skip(.seconds(40 * 24 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(200))
        house.cloud.setClockOffset(of: .documents, .zero)
        #expect(try device.names() == ["f": id])
    }

    /// For 30 days what lies beside it is kept, and counts.
    @Test func whatNobodyBringsBackIsForgottenWithAllThatLiesBesideIt() throws {
        let folder = try device.makeFolder("folder")
        let id = try device.makeFile("f", in: folder)
        try device.apply([.replace(id, .inline("second", base: device.item(id).content.version))])
        try damage(id)
        expect(.unknownItem) { try device.apply([.place(id, "g", in: .documents)]) }
        house.cloud.network.run(for: .seconds(1))
        #expect(try rows("document_versions") == 2 && rows("quarantined_items") == 1)
        house.cloud.skip(.seconds(31 * 24 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(700))
        #expect(try rows("document_versions") == 0 && rows("quarantined_items") == 0)
        house.cloud.setClockOffset(of: .documents, .zero)
        try device.apply([.trash(folder)])
        try device.apply([.remove(folder)])
        house.cloud.network.run(for: .seconds(120))
        #expect(try used() == 0)
        for table in ["document_places", "document_trash", "document_children", "document_items"] {
            #expect(try rows(table) == 0, "\(table)")
        }
    }

    private func place() throws -> UInt64 {
        var request = WireReadChanges()
        request.scope = device.container
        return try device.call("ReadChanges", request, as: WireReadChangesReply.self).token.sequence
    }

    private func headDigest() throws -> [UInt8] {
        var request = WireReadChanges()
        request.scope = device.container
        return [UInt8](try device.call("ReadChanges", request, as: WireReadChangesReply.self).digest)
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
