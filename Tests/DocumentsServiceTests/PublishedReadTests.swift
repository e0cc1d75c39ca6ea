import Foundation
import NephosBus
import NephosContent
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

/// Many who read at one time, some of them hostile: each gets what is its own, or is told that it gets nothing.
@Suite struct PublishedReadTests {
    /// A file of one chunk, and its link.
    private func publish(_ device: ContainerDevice, seed: UInt64 = 1) throws -> (link: Link, content: TestContent) {
        let content = TestContent(seed: seed, chunks: [50_000, 20_000])
        let file = ContainerDevice.makeID()
        try device.put(content, as: [.create(file, "a.bin", content.content())])
        return (try device.publish(file), content)
    }

    /// One that is told at once what it is refused with.
    private func stranger(_ house: ContainerHouse) throws -> TestClient {
        let client = try house.cloud.makeClient()
        client.policy.waitMax = .zero
        return client
    }

    private func code(_ pending: TestClient.Answer) -> CloudError.Code? {
        guard case .failure(let error) = pending.result else { return nil }
        return error.code
    }

    /// Many who ask at one time for pieces, of whom some lose their link before their turn comes: nobody is kept waiting.
    @Test func whoIsRefusedItsTurnKeepsNobodyWaiting() throws {
        let house = try ContainerHouse(linksMax: 5)
        try house.cloud.createAccount("other")
        let (locked, other) = (try house.device(), try house.device(account: "other"))
        let (ends, stays) = (try publish(locked), try publish(other, seed: 2))
        let links = [stays.link, stays.link, ends.link, ends.link, stays.link, stays.link]
        try house.setLocked(true)
        house.cloud.network.run(for: .seconds(1))
        let reader = try stranger(house)
        let asked = try links.map { try house.begin($0.secret.text, 0..<50_000, by: reader) }
        _ = house.cloud.network.run(within: .seconds(60)) { asked.allSatisfy { $0.result != nil } }
        for (link, pending) in zip(links, asked) {
            let reply = try? pending.result?.get().decode(WireReadLinkReply.self)
            #expect(reply?.content == (link.id == ends.link.id ? nil : Data(stays.content.chunks[0])))
        }
    }

    /// Whoever has a link costs the service's loop no groups.
    @Test func aLinkIsOpenedWithoutAGroup() throws {
        let house = try ContainerHouse(linksMax: 5)
        let here = try house.device()
        let link = try here.publish(here.makeFile("a"))
        func groups() throws -> UInt64 {
            let health: WireCheckHealthReply = try here.mover.client.call(
                "CheckHealth", WireCheckHealth(), at: .requests(.documents))
            return health.counters["groups"] ?? 0
        }
        #expect(try house.get(link).isFound)
        let before = try groups()
        for _ in 0..<30 { #expect(try house.get(link).isFound) }
        #expect(try groups() - before < 10)
    }

    /// Also while another read of it is under way.
    @Test func fromTheReplyOnARevokedLinkOpensNothing() throws {
        let house = try ContainerHouse(linksMax: 5, storageTurns: .later(upTo: .milliseconds(2)))
        let (here, reader) = (try house.device(), try stranger(house))
        for delay in 0..<50 {
            let link = try here.publish(here.makeFile("file \(delay)"))
            var request = WireRevokeLink()
            request.container = here.container
            request.link = Data(link.id.bytes)
            let revoked = try here.mover.client.begin(
                "RevokeLink", request, at: .requests(.documents), accessToken: here.mover.accessToken)
            house.cloud.network.run(for: .microseconds(delay * 80))
            _ = try house.begin(link.secret.text, 0..<100, by: reader)
            _ = house.cloud.network.run(within: .seconds(60)) { revoked.result != nil }
            let late = try house.begin(link.secret.text, 0..<100, by: reader)
            _ = house.cloud.network.run(within: .seconds(60)) { late.result != nil }
            #expect(code(late) == .unknownItem, "\(delay)")
        }
    }

    /// Damage that is found through a link is noted, as damage that a device finds.
    @Test func whatAReaderCannotReadIsNotedAsDamaged() throws {
        let log = LogLines()
        let house = try ContainerHouse(linksMax: 5, log: log)
        let here = try house.device()
        let (link, content) = try publish(here)
        try house.damageSegments()
        #expect(try house.read(link, 0..<50_000).content == Data(content.chunks[0]))
        #expect(throws: CloudError.self) { try house.read(link, 50_000..<70_000) }
        house.cloud.network.run(for: .seconds(1))
        #expect(try here.missing(content.ids) == [1])
        #expect(log.count(of: "Chunks of content cannot be read any more") == 1)
    }
}
