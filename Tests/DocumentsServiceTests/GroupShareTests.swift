import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

/// What one account may do in one group, by what it costs; and one batch, by the items that it is about.
@Suite struct GroupShareTests {
    private let house: ContainerHouse
    private let here: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
    }

    /// About as much as an item can be: 110 KB.
    private func makeLarge(_ name: String, by device: ContainerDevice? = nil) throws -> DocumentID {
        let id = ContainerDevice.makeID()
        let text = String(repeating: "x", count: 4090)
        var create = WireDocumentChange.create(id, name, .inline(text))
        create.create.attributes.extended = [.named("x", Array(repeating: 7, count: 32_000))]
        let losing = (0..<16).map { number in
            WireDocumentChange.replace(id, .inline("\(text)\(number)", base: Data(ContainerDevice.makeID().bytes)))
        }
        try (device ?? here).apply([create] + losing)
        return id
    }

    /// Requests that are sent at once and not waited for.
    private final class Line {
        let raw: RawClient
        private let device: ContainerDevice
        private let house: ContainerHouse
        private var generator: SplitMix64

        init(_ device: ContainerDevice, _ house: ContainerHouse, seed: UInt64) throws {
            raw = try house.cloud.makeRawClient(device.mover.client.keys)
            (self.device, self.house) = (device, house)
            generator = SplitMix64(seed: seed)
        }

        func send(_ changes: WireDocumentChange...) throws {
            var request = WireApplyChanges()
            request.container = device.container
            request.changes = changes
            let now = SimulatedNetwork.epoch.advanced(by: house.cloud.network.now)
            let envelope = RequestEnvelope(
                method: "ApplyChanges", id: OperationID(at: now, using: &generator),
                accessToken: device.mover.accessToken, body: Frame(encoding: request))
            try raw.send(envelope.encoded(), to: .requests(.documents))
            sent.append(envelope.id)
        }

        private(set) var sent: [OperationID] = []
        /// Which were answered.
        var answered: [OperationID] { raw.replies.compactMap(\.id) }

        /// Whether each was carried out, in the order of the answers.
        var answers: [Bool] {
            raw.replies.filter { $0.id != nil }.map { if case .success = $0.result { true } else { false } }
        }
    }

    /// Small changes of a large item are not small: whoever comes with them, or after them, waits for a share of them,
    /// and not for all.
    @Test func nobodyWaitsForAllThatAnotherAccountSends() throws {
        // A group takes up to so long, twice.
        let house = try ContainerHouse(storageTurns: .later(upTo: .milliseconds(20)))
        let here = try house.device()
        try house.cloud.createAccount("other")
        let other = try house.device(account: "other")
        let id = try makeLarge("large", by: here)
        let file = try other.makeFile("a", "1")
        house.cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(1)))
        let (many, one) = (try Line(here, house, seed: 1), try Line(other, house, seed: 2))
        // The lines are there before anything is sent at once.
        try many.send(.attributes(id) { $0.executable = true })
        try one.send(.attributes(file) { $0.executable = true })
        house.cloud.network.run(for: .seconds(1))
        for line in [many, one] { line.raw.clear() }
        for number in 0..<400 { try many.send(.attributes(id) { $0.favouriteRank = Int64(number) + 1 }) }
        var slowest = Duration.zero
        var asked = 0
        while many.answers.count < 400 {
            asked += 1
            try one.send(.attributes(file) { $0.favouriteRank = Int64(asked) })
            let start = house.cloud.network.now
            #expect(house.cloud.network.run(within: .seconds(10)) { one.answers.count == asked })
            // The group that was under way, and the one that it came into: an account's share of a group is 8192 rows, and
            // each of these changes costs 110 at least.
            if asked == 1 { #expect((1...150).contains(many.answers.count), "\(many.answers.count) went before it") }
            slowest = max(slowest, house.cloud.network.now - start)
        }
        #expect(asked > 5 && slowest < .milliseconds(100), "\(asked) were answered, after \(slowest) at most")
        // The rest goes on, in its order.
        #expect(many.answers.allSatisfy { $0 } && one.answers.allSatisfy { $0 })
        #expect(try here.item(id).attributes.favouriteRank == 400)
    }

    /// Also what waits for its turn goes in shares by what it turns out to cost, and in its order.
    @Test func whatWaitsGoesInSharesToo() throws {
        let house = try ContainerHouse(storageTurns: .later(upTo: .milliseconds(20)))
        let here = try house.device()
        let items = try ["a", "b", "c", "d"].map { try makeLarge($0, by: here) }
        let many = try Line(here, house, seed: 1)
        func change(_ rank: Int64) -> [WireDocumentChange] {
            items.map { id in .attributes(id) { $0.favouriteRank = rank } }
        }
        try many.send(change(1000)[0])
        house.cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(1)))
        house.cloud.network.run(for: .seconds(1))
        for number in 0..<100 {
            let change = change(Int64(number) + 1)
            try many.send(change[0], change[1], change[2], change[3])
        }
        #expect(house.cloud.network.run(within: .seconds(60)) { many.answers.count == 101 })
        #expect(many.answers.allSatisfy { $0 } && many.answered == many.sent)
        #expect(try here.item(items[3]).attributes.favouriteRank == 100)
    }

    @Test func aBatchOfTooLargeItemsIsRefusedAsAWhole() throws {
        let items = try (0..<170).map { try makeLarge("\($0)") }
        let changes = items.map { id in WireDocumentChange.attributes(id) { $0.favouriteRank = 1 } }
        expect(.limitExceeded) { try here.apply(changes) }
        // Nothing of it was done: what is as asked already would have no effect.
        let head = try here.apply([.attributes(items[0]) { $0.executable = true }]).token.sequence
        let reply = try here.apply(Array(changes.prefix(100)))
        #expect(reply.token.sequence == head + 1 && reply.items.count == 100)
        try here.apply(Array(changes.dropFirst(100)))
    }
}
