import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// The services' clocks are 40 days ahead for an hour, and are put right again: nothing has gone for its age.
@Suite struct LeapTests {
    private let house: ContainerHouse
    private let here: ContainerDevice

    init() throws {
        house = try ContainerHouse(linksMax: 5)
        here = try house.device()
    }

    private static let services = [ServiceName.identity, .documents]

    private func setClocks(ahead duration: Duration) {
        for service in Self.services { house.cloud.setClockOffset(of: service, duration) }
    }

    private func skip(_ duration: Duration) {
        for service in Self.services { house.cloud.skip(duration, of: service) }
    }

    /// Rows of what has its time: trash, a stream's files, links, and what is said to be on its way.
    private func rows() throws -> [Int64] {
        let counts = ["trash", "items WHERE ends > 0", "links", "announcements"].map {
            SQL("SELECT COUNT(*) FROM document_\($0)")
        }
        return try house.cloud.storage(of: .documents).write { transaction in
            try counts.map { try transaction.first($0) { $0.integer(0) } ?? 0 }
        }
    }

    private func uploads() throws -> Int64 {
        try house.cloud.storage(of: .documents).write {
            try $0.first(SQL("SELECT COUNT(*) FROM storage_reservations")) { $0.integer(0) } ?? 0
        }
    }

    private func write(_ text: String, to file: DocumentID, as device: ContainerDevice) throws {
        try device.apply([.replace(file, .inline(text, base: device.item(file).content.version))])
    }

    @Test(arguments: [false, true]) func emptiesNothing(restarts: Bool) throws {
        let trashed = try here.makeFile("trashed")
        try here.apply([.trash(trashed)])
        try house.define("T.shared", .stream)
        let streaming = try house.device()
        streaming.container = "T.shared"
        try streaming.makeFile("photo")
        let (published, changed) = (try here.makeFile("published"), try here.makeFile("changed", "0"))
        try here.publish(published, seconds: 7 * 86_400)
        try here.apply([.announce(published, Data(ContainerDevice.makeID().bytes), length: 5_000_000)])
        for number in 1...5 { try write("\(number)", to: changed, as: here) }
        #expect(try rows() == [1, 1, 1, 1])

        setClocks(ahead: .seconds(40 * 86_400))
        house.cloud.network.run(for: .seconds(3600))
        if restarts {
            house.cloud.crash(.documents)
            try house.cloud.start(.documents)
            house.cloud.network.run(for: .seconds(400))
        }
        // Former versions go when there is another one.
        try write("of the leap", to: changed, as: house.device())
        setClocks(ahead: .zero)
        house.cloud.network.run(for: .seconds(400))
        #expect(try rows() == [1, 1, 1, 1])
        #expect(try house.device().versions(of: changed).map(\.text) == ["of the leap", "5", "4", "3", "2", "1", "0"])

        skip(.seconds(41 * 86_400))
        house.cloud.network.run(for: .seconds(400))
        #expect(try rows() == [0, 0, 0, 0])
        let device = try house.device()
        try write("last", to: changed, as: device)
        #expect(try device.versions(of: changed).map(\.text) == ["last", "of the leap", "5"])
    }

    /// A machine without a battery begins years ago and hears later what time it is: what was done meanwhile is as old as what
    /// was done before it, and not as the clock said.
    @Test func whatIsDoneWhileTheClockIsBehindIsNotGoneOnceItIsSet() throws {
        try house.define("T.shared", .stream)
        let (file, changed) = (try here.makeFile("file"), try here.makeFile("changed", "0"))
        skip(.seconds(40 * 86_400))
        house.cloud.network.run(for: .seconds(400))
        house.cloud.crash(.documents)
        setClocks(ahead: .seconds(-40 * 365 * 86_400))
        try house.cloud.start(.documents)
        house.cloud.network.run(for: .seconds(30))
        let (streaming, device) = (try house.device(), try house.device())
        streaming.container = "T.shared"
        try streaming.makeFile("photo")
        try device.apply([.trash(file)])
        for number in 1...3 { try write("\(number)", to: changed, as: device) }
        _ = try device.open(upload: Array(repeating: 7, count: 16), bytes: 100_000)
        setClocks(ahead: .seconds(40 * 86_400))
        house.cloud.network.run(for: .seconds(400))
        #expect(try rows().prefix(2) == [1, 1])
        #expect(try uploads() == 1)
        let later = try house.device()
        try write("4", to: changed, as: later)
        #expect(try later.versions(of: changed).map(\.text) == ["4", "3", "2", "1", "0"])
        // It has its time all the same.
        skip(.seconds(31 * 86_400))
        house.cloud.network.run(for: .seconds(400))
        #expect(try rows().prefix(2) == [0, 0])
        #expect(try uploads() == 0)
    }

    /// Files are made while the clock is ahead, and deleted when it is right again: they stay in the trash for no longer.
    @Test func whatWasMadeByAClockThatWasAheadIsInTheTrashForAsLong() throws {
        setClocks(ahead: .seconds(3 * 365 * 86_400))
        let file = try house.device().makeFile("a")
        setClocks(ahead: .zero)
        try here.apply([.trash(file)])
        skip(.seconds(29 * 86_400))
        house.cloud.network.run(for: .seconds(400))
        #expect(try rows()[0] == 1)
        skip(.seconds(2 * 86_400))
        house.cloud.network.run(for: .seconds(400))
        #expect(try rows()[0] == 0)
    }

    /// Links are good, and tokens, as long as the clock says.
    @Test func aLinkIsNoGoodByAClockThatIsAhead() throws {
        let link = try here.publish(here.makeFile("a"), seconds: 7 * 86_400)
        setClocks(ahead: .seconds(40 * 86_400))
        house.cloud.network.run(for: .seconds(400))
        #expect(try house.get(link).isGone)
        setClocks(ahead: .zero)
        house.cloud.network.run(for: .seconds(400))
        #expect(try house.get(link).isFound)
    }

    /// What a person removes goes at once, whatever the clock does.
    @Test func whatAPersonRemovesGoes() throws {
        let (file, other) = (try here.makeFile("a"), try here.makeFile("b"))
        try here.apply([.trash(file), .trash(other)])
        setClocks(ahead: .seconds(40 * 86_400))
        house.cloud.network.run(for: .seconds(90))
        try house.device().apply([.remove(file)])
        house.cloud.network.run(for: .seconds(90))
        setClocks(ahead: .zero)
        #expect(try Array(house.device().list().keys) == [other])
        #expect(try house.used() == 4)
    }

    @Test func metricsSayHowFarTheClocksAreApart() throws {
        func offset() throws -> UInt64? {
            let health = try here.call("CheckHealth", WireCheckHealth(), as: WireCheckHealthReply.self)
            return health.counters["purge.clock_offset_seconds"]
        }
        #expect(try offset() == 0)
        house.cloud.setClockOffset(of: .documents, .seconds(40 * 86_400))
        let apart = try #require(try offset())
        #expect((40 * 86_400 - 60...40 * 86_400).contains(apart))
        let metrics = try #require(house.cloud.host(of: .documents)).metrics()
        #expect(metrics.contains("\nnephos_purge_clock_offset_seconds \(apart)"))
    }
}
