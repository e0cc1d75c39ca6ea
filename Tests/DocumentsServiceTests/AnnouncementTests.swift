import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// That a content is on its way is told of its item, until it is there, or is given up, or its time is over.
@Suite struct AnnouncementTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
    }

    @Test func aContentIsOnItsWayUntilItIsThere() throws {
        let id = try here.makeFile("a", "1")
        let first = try here.item(id).content
        let next = WireDocumentContent.inline("2", base: first.version)
        let reply = try here.apply([.announce(id, next.version, length: 12_000_000)])
        let item = try there.item(id)
        // Readers have what there was. The digest, which the list compares, covers what is said.
        #expect(item.content == first && item.conflicts.isEmpty)
        #expect(try there.versions(of: id).count == 1)
        let said = try #require(item.announcements.first)
        #expect(item.announcements.count == 1 && said.version == next.version && said.length == 12_000_000)
        #expect(said.deviceID == here.mover.device.rawValue && said.announced > 0)
        #expect(said.expires - said.announced == DocumentLimits.announcementLifetime.milliseconds * 1_000_000)
        // Said again at once, it changes nothing.
        #expect(try here.apply([.announce(id, next.version, length: 12_000_000)]).token == reply.token)
        try here.apply([.replace(id, next)])
        #expect(try there.item(id).announcements.isEmpty && there.item(id).content.text == "2")
        // Nor when it comes again a week later.
        try house.device().apply([.announce(id, next.version, length: 12_000_000)])
        #expect(try there.item(id).announcements.isEmpty)
    }

    /// Also of one that becomes a conflict, and of one that has the bytes of another.
    @Test func whateverBecomesOfTheContentItIsNotOnItsWayAnyMore() throws {
        let id = try here.makeFile("a", "1")
        let base = try here.item(id).content.version
        let (lost, same, given) = (
            WireDocumentContent.inline("2", base: base), WireDocumentContent.inline("3", base: base),
            ContainerDevice.makeID()
        )
        for version in [lost.version, same.version, Data(given.bytes)] {
            try here.apply([.announce(id, version, length: 5_000_000)])
        }
        try there.apply([.replace(id, .inline("3", base: base))])
        try here.apply([.replace(id, lost)])
        #expect(try there.item(id).announcements.map(\.version) == [same.version, Data(given.bytes)])
        try here.apply([.replace(id, same)])
        #expect(try there.item(id).announcements.map(\.version) == [Data(given.bytes)])
        try here.apply([.announce(id, Data(given.bytes), length: 0)])
        #expect(try there.item(id).announcements.isEmpty)
        try here.apply([.announce(id, Data(given.bytes), length: 0)])
        #expect(try there.item(id).conflicts.count == 1)
    }

    /// A day goes by, and its clock is set back for whoever asks.
    @Test func whatDoesNotComeInItsTimeIsNotSaidAnyMore() throws {
        let (late, gone, trashed) = (try here.makeFile("a"), try here.makeFile("b"), try here.makeFile("c"))
        for id in [late, gone, trashed] {
            try here.apply([.announce(id, Data(ContainerDevice.makeID().bytes), length: 5_000_000)])
        }
        try here.apply([.trash(trashed), .trash(gone), .remove(gone)])
        for (hours, count) in [(23, 1), (25, 0)] {
            house.cloud.skip(.seconds(hours * 3600), of: .documents)
            house.cloud.network.run(for: .seconds(90))
            house.cloud.setClockOffset(of: .documents, .zero)
            for id in [late, trashed] { #expect(try there.item(id).announcements.count == count) }
        }
        try there.apply([.announce(late, Data(ContainerDevice.makeID().bytes), length: 1)])
        #expect(try here.item(late).announcements.count == 1)
    }

    private func announcements() throws -> Int64 {
        try house.cloud.storage(of: .documents).write {
            try $0.first(SQL("SELECT COUNT(*) FROM document_announcements"), []) { $0.integer(0) } ?? 0
        }
    }

    /// It goes with its folder, or for its age.
    @Test func ofWhatIsGoneNothingIsSaidToCome() throws {
        let folder = try here.makeFolder("folder")
        let (within, trashed) = (try here.makeFile("a", in: folder), try here.makeFile("b"))
        for id in [within, trashed] {
            try here.apply([.announce(id, Data(ContainerDevice.makeID().bytes), length: 5_000_000)])
        }
        #expect(try announcements() == 2)
        try here.apply([.trash(folder), .remove(folder), .trash(trashed)])
        house.cloud.network.run(for: .seconds(90))
        #expect(try announcements() == 1)
        house.cloud.skip(.seconds(31 * 86_400), of: .documents)
        house.cloud.network.run(for: .seconds(90))
        #expect(try announcements() == 0)
    }

    /// None of them is looked for in all of the container.
    @Test func whatIsSaidOfManyThatAreGoneEndsAtOnce() throws {
        try here.makeFile("a")
        try house.cloud.storage(of: .documents).write { transaction in
            for _ in 0..<50 {
                try transaction.execute(
                    SQL(
                        "INSERT INTO document_announcements SELECT DISTINCT partition_number, owner, container, ?1, 7 "
                            + "FROM document_children"),
                    [.blob(ContainerDevice.makeID().bytes)])
            }
        }
        let isFewer = { [self] in (try? announcements()).map { $0 < 50 } ?? true }
        #expect(house.cloud.network.run(within: .seconds(90), until: isFewer))
        #expect(try announcements() == 0)
    }

    // MARK: Of items that are not there yet

    private func coming(_ device: ContainerDevice) throws -> [WireAnnouncement]? {
        try there.list()[.coming(from: device.mover.device)]?.announcements
    }

    private func say(_ items: [WireComingItem], as device: ContainerDevice? = nil) throws {
        let device = device ?? here
        try device.apply([.coming(items, from: device.mover.device)])
    }

    @Test func whatIsToBeMadeIsNoItem() throws {
        let (film, song) = (WireComingItem.named("film"), WireComingItem.named("song"))
        try say([film, song])
        let said = try #require(try coming(here))
        #expect(said.map(\.version) == [film.version, song.version] && said.map(\.name) == [film.name, song.name])
        #expect(said.allSatisfy { $0.deviceID == here.mover.device.rawValue && $0.announced > 0 })
        #expect(try there.names().isEmpty)
        let id = DocumentID.coming(from: here.mover.device)
        for change in [WireDocumentChange.trash(id), .restore(id), .announce(id, film.version, length: 1)] {
            expect(.unknownItem) { try here.apply([change]) }
        }
        expect(.unknownItem) { try here.apply([.create(id, "x")]) }
        // Its name is free.
        try there.makeFile("film")
        // Said again at once it changes nothing; said otherwise it takes the place of what was said.
        let token = try here.apply([.coming([film, song], from: here.mover.device)]).token
        #expect(try here.apply([.coming([film, song], from: here.mover.device)]).token == token)
        try say([song])
        #expect(try coming(here)?.map(\.version) == [song.version])
        try say([])
        #expect(try coming(here) == nil)
        try say([film])
        #expect(try coming(here)?.map(\.version) == [film.version])
    }

    @Test func whatOthersAreAboutToMakeNobodyElseSays() throws {
        expect(.invalidArguments) { try here.apply([.coming([.named("a")], from: there.mover.device)]) }
        let many = (0...DocumentLimits.comingMax).map { WireComingItem.named("\($0)") }
        expect(.limitExceeded) { try say(many) }
        try say(many.dropLast())
        let (a, b) = (WireComingItem.named("a"), WireComingItem.named("b"))
        let wrong: [(CloudError.Code, (inout WireComingItem) -> Void)] = [
            (.invalidArguments, { $0.item = Data([1]) }), (.invalidArguments, { $0.parent = Data() }),
            (.invalidArguments, { $0.name = Data("a/b".utf8) }), (.invalidArguments, { $0.version = Data() }),
            (.limitExceeded, { $0.length = 0 }), (.limitExceeded, { $0.length = .max }),
            (.invalidArguments, { $0.version = a.version }),
        ]
        for (code, change) in wrong {
            var item = b
            change(&item)
            expect(code) { try say([a, item]) }
        }
        #expect(try coming(here)?.count == DocumentLimits.comingMax)
    }

    /// What it counted is given back.
    @Test func whatIsNotMadeInItsTimeIsNotSaidAnyMore() throws {
        let before = try here.info().countedBytes
        try say([.named("film"), .named("song")])
        #expect(try here.info().countedBytes > before + 1024)
        house.cloud.skip(.seconds(25 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(90))
        house.cloud.setClockOffset(of: .documents, .zero)
        #expect(try coming(here) == nil)
        #expect(try here.info().countedBytes == before)
        try say([.named("film")])
        try say([])
        #expect(try here.info().countedBytes == before)
    }

    @Test func whatIsSaidOfAnItemIsBounded() throws {
        let (id, folder) = (try here.makeFile("a"), try here.makeFolder("folder"))
        let versions = (0...DocumentLimits.announcementsMax).map { _ in Data(ContainerDevice.makeID().bytes) }
        try here.apply(versions.dropLast().map { .announce(id, $0, length: 1) })
        expect(.limitExceeded) { try there.apply([.announce(id, versions[8], length: 1)]) }
        try there.apply([.announce(id, versions[0], length: 0), .announce(id, versions[8], length: 1)])
        #expect(try here.item(id).announcements.map(\.version) == Array(versions.dropFirst()))
        expect(.limitExceeded) { try there.apply([.announce(id, versions[8], length: 1 << 60)]) }
        expect(.invalidArguments) { try there.apply([.announce(id, Data([1]), length: 1)]) }
        expect(.invalidArguments) { try there.apply([.announce(folder, versions[0], length: 1)]) }
        try here.apply([.trash(id)])
        expect(.unknownItem) { try there.apply([.announce(id, versions[0], length: 1)]) }
    }
}
