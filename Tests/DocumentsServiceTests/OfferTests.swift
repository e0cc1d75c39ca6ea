import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// What the service has lost with a copy it gets back as it was: under its id, of whoever had made it, with its date.
@Suite struct OfferTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
        try here.makeFile("first")
    }

    /// The service comes back with what it had then, and somebody has shown that it is an old copy.
    private func lose(since copy: StorageCopy?, after pause: Duration = .seconds(60)) throws {
        house.cloud.network.run(for: pause)
        try here.makeFile("lost \(ContainerDevice.makeID())")
        try house.cloud.restore(copy, of: .documents)
        // Nobody changes anything with it.
        expect(.unknownItem) { try here.apply([.restore(ContainerDevice.makeID())]) }
        house.cloud.network.run(for: .seconds(10))
    }

    private func copy() throws -> StorageCopy { try house.cloud.copyStorage(of: .documents) }

    private func creation(of item: WireDocumentItem, _ id: DocumentID) -> WireDocumentChange {
        var change = WireDocumentChange.create(id, item.name, in: .documents, item.hasContent ? item.content : nil)
        change.create.parent = item.parent
        change.create.placeVersion = item.placeVersion
        change.create.made = item.made
        change.create.clash = .rename
        (change.create.placed, change.create.attributed) = (item.placed, item.attributed)
        if item.hasAttributes { change.create.attributes = item.attributes }
        change.offered = true
        return change
    }

    private func deletion(of item: WireDocumentItem, _ id: DocumentID) -> WireDocumentChange {
        var change = WireDocumentChange.trash(id)
        change.trash.batch = item.trash.batch
        change.trash.note = item.trash
        change.offered = true
        return change
    }

    private func replacement(_ content: WireDocumentContent, of id: DocumentID, over: Data = Data())
        -> WireDocumentChange
    {
        var change = WireDocumentChange.replace(id, content)
        change.replace.over = over
        change.offered = true
        return change
    }

    @Test func whatIsOfferedAgainIsOfThoseWhoHadMadeIt() throws {
        let copy = try copy()
        let (file, folder) = (try there.makeFile("a", "1"), try there.makeFolder("f"))
        house.cloud.network.run(for: .seconds(60))
        try here.apply([.replace(file, .inline("22", base: there.item(file).content.version))])
        try there.apply([.trash(file)])
        let before = try here.list()
        let usage = try house.usage()
        try lose(since: copy)
        #expect(try here.list().count == 1)
        let item = try #require(before[file])
        try here.apply([creation(of: try #require(before[folder]), folder), creation(of: item, file)])
        try here.apply([deletion(of: item, file)])
        #expect(try here.list() == before)
        #expect(item.content.deviceID == here.mover.device.rawValue && item.trash.deviceID != item.content.deviceID)
        #expect(item.made.deviceID == there.mover.device.rawValue && item.trash.appID == ContainerHouse.app)
        // It counts for them too; of the version that nobody has any more nothing does.
        #expect(try house.usage()[there.mover.device.rawValue] == usage[there.mover.device.rawValue]! - 513)
        #expect(try house.usage()[here.mover.device.rawValue] == usage[here.mover.device.rawValue])
        // And is given back so.
        try here.apply([.remove(file)])
        house.cloud.network.run(for: .seconds(60))
        #expect(try house.usage()[there.mover.device.rawValue] == 257)
    }

    /// Several devices bring one item back, each as it had it, and none knows of the others yet.
    @Test func whoeverBringsAnItemBackFirstTheOthersContentsCount() throws {
        let copy = try copy()
        let file = try there.makeFile("a", "1")
        let first = try here.item(file)
        try here.apply([.replace(file, .inline("2", base: first.content.version))])
        let second = try here.item(file)
        try here.apply([.replace(file, .inline("3", base: second.content.version))])
        let third = try here.item(file)
        try lose(since: copy)
        try here.apply([creation(of: second, file)])
        // A newer one takes its place, an older one comes before it, and neither is a conflict.
        try there.apply([creation(of: third, file)])
        #expect(try here.item(file).content.text == "3" && here.item(file).conflicts.isEmpty)
        try lose(since: copy)
        try here.apply([creation(of: second, file)])
        try there.apply([creation(of: first, file)])
        #expect(try here.item(file).content.text == "2" && here.item(file).conflicts.isEmpty)
        // Whether this one was made from it nobody can tell.
        try lose(since: copy)
        try here.apply([creation(of: first, file)])
        try there.apply([creation(of: third, file), creation(of: third, file)])
        #expect(try here.item(file).content.text == "1" && here.item(file).conflicts.map(\.text) == ["3"])
    }

    @Test func nobodyGetsAnothersNameOrDateInAnyOtherWay() throws {
        let copy = try copy()
        let (file, other) = (try there.makeFile("a", "1"), try there.makeFile("b", "2"))
        let (item, second) = (try here.item(file), try here.item(other))
        // As long as nothing was lost there is nothing to offer.
        let fresh = ContainerDevice.makeID()
        var early = creation(of: item, fresh)
        early.create.name = Data("fresh".utf8)
        try here.apply([early])
        #expect(try here.item(fresh).made.deviceID == here.mover.device.rawValue)
        try lose(since: copy)
        func offer(_ change: (inout WireDocumentChange) -> Void) throws -> WireDocumentItem {
            let id = ContainerDevice.makeID()
            var offered = creation(of: item, id)
            offered.create.name = Data("\(id)".utf8)
            change(&offered)
            try here.apply([offered])
            return try here.item(DocumentID(bytes: offered.item) ?? id)
        }
        func isOwn(_ item: WireDocumentItem) -> Bool {
            item.content.deviceID == here.mover.device.rawValue && item.content.committed > second.content.committed
                && item.made.deviceID == here.mover.device.rawValue
        }
        // Of another item; with other bytes; by somebody else; of another time; by a seal that was made up.
        #expect(isOwn(try offer { _ in }))
        #expect(isOwn(try offer { $0.create.content = second.content }))
        let changes: [(inout WireDocumentContent) -> Void] = [
            { $0.inline = Data("3".utf8) }, { $0.deviceID = "somebody" }, { $0.committed -= 1 }, { $0.seal += 1 },
            { $0.seal = 0 }, { $0.appID = "T.other" }, { $0.modified += 1 },
        ]
        for change in changes {
            let id = ContainerDevice.makeID()
            var content = item.content
            change(&content)
            try here.apply([.create(id, "\(id)", in: .documents, .inline("0"))])
            try here.apply([replacement(content, of: id, over: try here.item(id).content.version)])
            #expect(try here.item(id).content.deviceID == here.mover.device.rawValue)
        }
        // What is not said to be offered is the device's own.
        var plain = creation(of: item, file)
        plain.offered = false
        try here.apply([plain])
        #expect(isOwn(try here.item(file)))
    }

    /// What was done since the restore is not lost: nobody does it again under another's name.
    @Test func whatWasDoneInThisHistoryIsNotOffered() throws {
        try lose(since: try copy())
        house.cloud.network.run(for: .seconds(60))
        let file = try there.makeFile("a", "1")
        let former = try here.item(file).content
        let next = WireDocumentContent.inline("2", base: former.version)
        try there.apply([.replace(file, next)])
        var removal = WireDocumentChange()
        removal.item = Data(file.bytes)
        removal.versions.versions = [former.version]
        try there.apply([removal])
        house.cloud.network.run(for: .seconds(60))
        try here.apply([replacement(former, of: file, over: next.version)])
        let now = try here.item(file).content
        #expect(now.text == "1" && now.deviceID == here.mover.device.rawValue && now.committed > former.committed)
    }

    @Test func whatLayInTheTrashComesBackIntoTheTrash() throws {
        let folder = try there.makeFolder("f")
        let beside = try there.makeFile("beside", "0")
        let moved = try there.makeFile("moved", "0")
        let copy = try copy()
        let (file, inner) = (try there.makeFile("a", in: folder, "1"), try there.makeFolder("g", in: folder))
        try there.apply([.place(moved, "moved", in: inner), .trash(folder)])
        let before = try here.list()
        try lose(since: copy)
        // Another device was quicker.
        _ = try there.list()
        try there.apply([deletion(of: try #require(before[folder]), folder)])
        expect(.unknownItem) { try here.apply([.create(ContainerDevice.makeID(), "x", in: folder)]) }
        expect(.unknownItem) { try here.apply([.place(beside, "x", in: folder)]) }
        try here.apply([
            creation(of: try #require(before[inner]), inner), creation(of: try #require(before[file]), file),
        ])
        var place = WireDocumentChange.place(moved, "moved", in: inner)
        place.place.placeVersion = try #require(before[moved]).placeVersion
        place.place.placed = try #require(before[moved]).placed
        place.offered = true
        try here.apply([place])
        #expect(try here.list() == before)
        // And leaves it with the folder.
        try here.apply([.restore(folder)])
        #expect(try here.names(in: folder).keys.sorted() == ["a", "g"])
        #expect(try here.names(in: inner).keys.sorted() == ["moved"])
    }

    /// Who has an older content and is slower than who has the newest makes no conflict of it.
    @Test func aVersionThatTheNewestWasMadeFromComesBackBehindIt() throws {
        let file = try there.makeFile("a", "1")
        let copy = try copy()
        for text in ["2", "3"] {
            house.cloud.network.run(for: .seconds(60))
            try there.apply([.replace(file, .inline(text, base: there.item(file).content.version))])
        }
        let before = try here.item(file)
        let versions = try here.versions(of: file)
        #expect(versions.map(\.text) == ["3", "2", "1"])
        for isNewestFirst in [true, false] {
            try lose(since: copy)
            let first = try here.item(file).content.version
            let offers = [
                replacement(versions[0], of: file, over: first), replacement(versions[1], of: file, over: first),
            ]
            // Sent before its base, by a device that had it waiting, the newest is a conflict until that has come.
            var early = offers[0]
            early.replace.over = Data()
            for offer in isNewestFirst ? offers : [early, offers[1]] { try here.apply([offer]) }
            #expect(try here.item(file) == before)
            #expect(try here.versions(of: file) == versions)
        }
    }

    // MARK: Which is the later one

    /// One state of an item, and a later one: each device has another, and whoever comes first, the later one stands.
    private func offerBoth(
        _ id: DocumentID, since copy: StorageCopy?, _ change: () throws -> Void,
        _ check: (WireDocumentItem, _ before: WireDocumentItem, _ reply: WireApplyChangesReply) throws -> Void
    ) throws {
        let first = try here.item(id)
        house.cloud.network.run(for: .seconds(60))
        try change()
        let second = try here.item(id)
        func offer(_ item: WireDocumentItem, by device: ContainerDevice) throws -> WireApplyChangesReply {
            let reply = try device.apply([creation(of: item, id)])
            return item.hasTrash ? try device.apply([deletion(of: item, id)]) : reply
        }
        for order in [[first, second], [second, first]] {
            try lose(since: copy)
            _ = try offer(order[0], by: here)
            let reply = try offer(order[1], by: there)
            try check(try here.item(id), second, reply)
            #expect(reply.items.map(\.item) == [id.description])
        }
    }

    @Test func ofTwoPlacesOfOneItemTheLaterOneStands() throws {
        let copy = try copy()
        let file = try there.makeFile("a", "1")
        let move = { _ = try there.apply([.place(file, "b", in: .documents)]) }
        try offerBoth(file, since: copy, move) { now, before, reply in
            #expect(now == before && now.name == Data("b".utf8))
            let told = try reply.items.map { try WireDocumentItem(serializedBytes: $0.body) }
            #expect(told == [now])
        }
        // Of what has no content, too.
        let folder = try there.makeFolder("f")
        let rename = { _ = try there.apply([.place(folder, "g", in: .documents)]) }
        try offerBoth(folder, since: copy, rename) { now, before, _ in
            #expect(now.name == before.name && now.placeVersion == before.placeVersion && now.placed == before.placed)
        }
    }

    @Test func ofTwoStatesOfTheAttributesTheLaterOneStands() throws {
        let copy = try copy()
        let file = try there.makeFile("a", "1")
        try there.apply([
            .attributes(file) {
                $0.tags.tags = ["old"]
                $0.extended = [.named("x", [1]), .named("y", [1])]
            }
        ])
        try offerBoth(
            file, since: copy,
            {
                try there.apply([
                    .attributes(file) {
                        $0.executable = true
                        $0.tags.tags = []
                        $0.extended = [.named("x", [2]), .named("y", [])]
                    }
                ])
            }
        ) { now, before, _ in #expect(now == before && now.attributes.extended == [.named("x", [2])]) }
    }

    /// Nobody undoes it, and nothing of what was lost is dropped that it does not speak of.
    @Test func whatWasDoneSinceTheRestoreIsLaterThanAllThatWasLost() throws {
        let file = try there.makeFile("a", "1")
        let copy = try copy()
        try there.apply([
            .place(file, "lost", in: .documents),
            .attributes(file) {
                $0.tags.tags = ["lost"]
                $0.favouriteRank = 3
            },
        ])
        let before = try here.item(file)
        try lose(since: copy)
        house.cloud.network.run(for: .seconds(60))
        try there.apply([.place(file, "new", in: .documents), .attributes(file) { $0.tags.tags = ["new"] }])
        try here.apply([creation(of: before, file)])
        let item = try here.item(file)
        #expect(item.name == Data("new".utf8))
        #expect(item.attributes.tags == ["new", "lost"] && item.attributes.favouriteRank == 3)
        // A time that is still to come was told by a clock that was wrong.
        var early = before
        early.placed = .max
        try here.apply([creation(of: early, file)])
        #expect(try here.item(file).name == Data("new".utf8))
    }

    @Test func whatWasTakenOutOfTheTrashIsNotPutThereAgainByWhoHadItThere() throws {
        let copy = try copy()
        let file = try there.makeFile("a", "1")
        try there.apply([.trash(file)])
        try offerBoth(file, since: copy, { try there.apply([.restore(file)]) }) { now, before, _ in
            #expect(now == before && !now.hasTrash)
        }
    }

    @Test func whatWasDeletedIsNotTakenOutOfTheTrashByWhoHadItBefore() throws {
        let copy = try copy()
        let file = try there.makeFile("a", "1")
        try offerBoth(file, since: copy, { try there.apply([.place(file, "b", in: .documents), .trash(file)]) }) {
            now, before, _ in #expect(now == before && now.hasTrash)
        }
    }

    /// A folder is put into what lies in it since; attributes are more than there is room for: the rest comes all the same.
    @Test func whatThereIsNoRoomForKeepsNothingElseAway() throws {
        let (outer, inner) = (try there.makeFolder("outer"), try there.makeFolder("inner"))
        let file = try there.makeFile("a", "1")
        let copy = try copy()
        func big(_ name: String) -> WireDocumentChange {
            .attributes(file) {
                $0.extended = [.named(name, Array(repeating: 7, count: DocumentLimits.attributeBytesMax * 2 / 3))]
            }
        }
        house.cloud.network.run(for: .seconds(60))
        try there.apply([
            .place(outer, "outer", in: inner), .attributes(outer) { $0.tags.tags = ["red"] }, big("lost"),
            .replace(file, .inline("2", base: there.item(file).content.version)),
        ])
        let lost = try here.list()
        try lose(since: copy)
        house.cloud.network.run(for: .seconds(60))
        try there.apply([.place(inner, "inner", in: outer), big("new")])
        try here.apply(
            [outer, file].map { creation(of: try #require(lost[$0]), $0) } + [.create(ContainerDevice.makeID(), "b")])
        let (item, folder) = (try here.item(file), try here.item(outer))
        #expect(item.content.text == "2" && item.attributes.extended.map(\.name) == [Data("new".utf8)])
        #expect(folder.attributes.tags == ["red"] && DocumentID(bytes: folder.parent) == .documents)
        // Its name is taken as before.
        expect(.alreadyExists) { try here.makeFolder("outer") }
    }

    /// An item that came to its place before the service noted when that was.
    @Test func attributesAreOfferedByTheirOwnTime() throws {
        let file = try there.makeFile("a", "1")
        let copy = try copy()
        try there.apply([.attributes(file) { $0.tags.tags = ["red"] }])
        var lost = try here.item(file)
        try lose(since: copy)
        lost.placed = 0
        try here.apply([creation(of: lost, file)])
        #expect(try here.item(file).attributes.tags == ["red"])
    }

    // MARK: By clocks that were wrong

    private func setClock(_ offset: Duration) {
        house.cloud.setClockOffset(of: .documents, offset)
        house.cloud.network.run(for: .seconds(1))
    }

    /// The clock was set back between the two.
    @Test func whatWasDeletedByAClockThatWasSetBackStaysDeleted() throws {
        let copy = try copy()
        let file = try there.makeFile("a", "1")
        setClock(.seconds(-30))
        try there.apply([.trash(file)])
        let before = try here.item(file)
        try lose(since: copy)
        try here.apply([creation(of: before, file)])
        try here.apply([deletion(of: before, file)])
        #expect(try here.item(file) == before && here.item(file).hasTrash)
    }

    enum Deed: CaseIterable { case move, attributes, deletion, restoration }

    /// The clock was ahead when the item came to its place, and is put right: what was done then and since keeps its order,
    /// whoever offers it first, and whether the copy has the item or not.
    @Test(arguments: Deed.allCases, [true, false])
    func whatAClockThatWasAheadHasToldKeepsItsOrder(_ deed: Deed, _ isInCopy: Bool) throws {
        let early = try copy()
        setClock(.seconds(120))
        let file = try there.makeFile("a", "1")
        try there.apply([.attributes(file) { $0.tags.tags = ["first"] }])
        if deed == .restoration { try there.apply([.trash(file)]) }
        let copy = isInCopy ? try copy() : early
        setClock(.zero)
        func change() throws {
            switch deed {
            case .move: try there.apply([.place(file, "b", in: .documents)])
            case .attributes: try there.apply([.attributes(file) { $0.tags.tags = ["second"] }])
            case .deletion: try there.apply([.trash(file)])
            case .restoration: try there.apply([.restore(file)])
            }
        }
        let first = try here.item(file)
        try change()
        let second = try here.item(file)
        for order in [[first, second], [second, first]] {
            try lose(since: copy, after: .seconds(5))
            for item in order {
                try here.apply([creation(of: item, file)])
                if item.hasTrash { try here.apply([deletion(of: item, file)]) }
            }
            let now = try here.item(file)
            #expect(now.name == second.name && now.hasTrash == second.hasTrash)
            // Whether the others were taken away by these, or came beside them, is not known by such a clock.
            #expect(Set(now.attributes.tags).isSuperset(of: second.attributes.tags))
        }
    }

    /// A service that has nothing left believes itself all the same: its key lies in its secret.
    @Test func aServiceThatHasLostAllGetsAllOfItBack() throws {
        let file = try there.makeFile("a", "1")
        let before = try here.list()
        try lose(since: nil)
        #expect(try here.list().isEmpty)
        try here.apply(before.sorted { $0.key < $1.key }.map { creation(of: $1, $0) })
        #expect(try here.list() == before)
        #expect(try here.item(file).made.deviceID == there.mover.device.rawValue)
    }
}
