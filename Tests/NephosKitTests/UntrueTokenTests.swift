import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// A server, or what is between, that says where it stands and it is not so: a device that believed it comes back in
/// step by itself once it is told the truth, and asks no more often meanwhile than it would anyway.
@Suite struct UntrueTokenTests {
    /// Where the server says that it is, and is not.
    enum Lie: CaseIterable, CustomTestStringConvertible {
        case greatest, greatestSigned, farAhead, alittleAhead, laterEpoch, greatestEpoch, earlierEpoch, zero, behind

        func token(_ truth: ChangeToken) -> ChangeToken {
            switch self {
            case .greatest: ChangeToken(epoch: truth.epoch, sequence: .max)
            case .greatestSigned: ChangeToken(epoch: truth.epoch, sequence: UInt64(Int64.max))
            case .farAhead: ChangeToken(epoch: truth.epoch, sequence: truth.sequence + 1_000_000)
            case .alittleAhead: ChangeToken(epoch: truth.epoch, sequence: truth.sequence + 3)
            case .laterEpoch: ChangeToken(epoch: truth.epoch + 1, sequence: truth.sequence)
            case .greatestEpoch: ChangeToken(epoch: .max, sequence: .max)
            case .earlierEpoch: ChangeToken(epoch: truth.epoch - 1, sequence: truth.sequence)
            case .zero: .zero
            case .behind: ChangeToken(epoch: truth.epoch, sequence: 1)
            }
        }

        var testDescription: String { "\(self)" }
    }

    /// What else an answer to a push says.
    enum Aside: CaseIterable, CustomTestStringConvertible {
        case nothing, previousAhead, previousBeyond, overtaken, cutBack

        func apply(to reply: inout WirePushKeysReply, _ item: KeyValueItem) {
            switch self {
            case .nothing: break
            case .previousAhead: reply.previousSequence = ChangeToken(reply.token).sequence &- 1
            case .previousBeyond: reply.previousSequence = .max
            case .overtaken:
                var winner = item
                winner.sequence = .max
                winner.timestamp = item.timestamp.next
                reply.outcomes = reply.outcomes.map { _ in
                    var outcome = WireKeyOutcome()
                    outcome.superseded = true
                    outcome.current = WireKeyValueItem(winner)
                    return outcome
                }
            case .cutBack:
                var stored = item
                stored.value = nil
                stored.sequence = .max
                for index in reply.outcomes.indices { reply.outcomes[index].current = WireKeyValueItem(stored) }
            }
        }

        var testDescription: String { "\(self)" }
    }

    /// A device in step at 2:10 or so, with some keys.
    private func device() throws -> Device {
        let cloud = try ScriptedCloud()
        cloud.head = ChangeToken(epoch: 2, sequence: 7)
        let device = try Device.ready(cloud)
        for key in ["a", "b", "c"] as [ItemName] { cloud.deliver([cloud.write(key, 1, at: device.now)]) }
        device.network.run(for: .seconds(1))
        try #require(try device.store.dictionary().count == 3)
        cloud.requests = []
        return device
    }

    /// The server tells the truth again, and another device writes and deletes.
    private func expectInStep(_ device: Device, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let cloud = device.cloud
        cloud.lies = [:]
        cloud.write("later", 2, at: device.now)
        cloud.write("a", nil, at: device.now)
        device.network.run(for: .seconds(180))
        #expect(try device.state().head == cloud.head, sourceLocation: sourceLocation)
        let theirs = cloud.items.compactMapValues(\.value)
        let mine = try device.store.dictionary()
        #expect(mine.count == theirs.count, sourceLocation: sourceLocation)
        for (key, value) in theirs { #expect(mine[key] == value, sourceLocation: sourceLocation) }
        #expect(try device.state().digest.bytes == cloud.digest.bytes, sourceLocation: sourceLocation)
        let status = try device.store.status()
        #expect(status.problem == nil && status.pending.isEmpty, "\(status)", sourceLocation: sourceLocation)
        cloud.requests = []
        device.network.run(for: .seconds(300))
        #expect(cloud.requests("ReadChanges").count <= 1, sourceLocation: sourceLocation)
        #expect(cloud.pushes().isEmpty, sourceLocation: sourceLocation)
    }

    @Test(arguments: Lie.allCases, Aside.allCases)
    func aPushIsAnsweredWithAnotherHead(_ lie: Lie, _ aside: Aside) throws {
        let device = try device()
        let cloud = device.cloud
        let item = try #require(cloud.items["b"])
        cloud.lies["PushKeys"] = { frame in
            guard var reply = try? frame.decode(WirePushKeysReply.self) else { return frame }
            reply.token = WireChangeToken(lie.token(ChangeToken(reply.token)))
            aside.apply(to: &reply, item)
            return Frame(encoding: reply)
        }
        try device.store.set(5, forKey: "own")
        device.network.run(for: .seconds(1))
        try device.store.set(6, forKey: "b")
        device.network.run(for: .seconds(59))
        // Without a pause there would be tens of thousands.
        #expect(cloud.requests("PushKeys").count <= 30)
        #expect(cloud.requests("ReadChanges").count <= 70)
        try expectInStep(device)
    }

    @Test(arguments: Lie.allCases) func aPageEndsSomewhereElse(_ lie: Lie) throws {
        let device = try device()
        let cloud = device.cloud
        cloud.lies["ReadChanges"] = { frame in
            guard var reply = try? frame.decode(WireReadChangesReply.self) else { return frame }
            reply.token = WireChangeToken(lie.token(ChangeToken(reply.token)))
            for index in reply.changes.indices { reply.changes[index].sequence = .max }
            reply.items = reply.items.map { item in
                var item = item
                item.sequence = .max
                return item
            }
            return Frame(encoding: reply)
        }
        cloud.write("d", 4, at: device.now)
        device.store.pull()
        device.network.run(for: .seconds(60))
        #expect(cloud.requests("ReadChanges").count <= 130)
        try expectInStep(device)
    }

    /// The same from the first on.
    @Test(arguments: Lie.allCases) func theFirstPullEndsSomewhereElse(_ lie: Lie) throws {
        let cloud = try ScriptedCloud()
        cloud.head = ChangeToken(epoch: 2, sequence: 7)
        cloud.write("a", 1, at: Timestamp(milliseconds: 1_800_000_000_000))
        cloud.lies["ReadChanges"] = { frame in
            guard var reply = try? frame.decode(WireReadChangesReply.self) else { return frame }
            reply.token = WireChangeToken(lie.token(ChangeToken(reply.token)))
            return Frame(encoding: reply)
        }
        let device = try Device.ready(cloud)
        try device.store.set(5, forKey: "own")
        device.network.run(for: .seconds(60))
        #expect(cloud.requests.count <= 300)
        try expectInStep(device)
    }

    @Test(arguments: Lie.allCases, [UInt64?.none, 0, .max])
    func aNotificationLeadsSomewhereElse(_ lie: Lie, previous: UInt64?) throws {
        let device = try device()
        let cloud = device.cloud
        for number in 0..<20 {
            var notification = cloud.write("n", .integer(Int64(number)), at: device.now)
            notification.token = WireChangeToken(lie.token(ChangeToken(notification.token)))
            if let previous { notification.previousSequence = previous }
            cloud.deliver([notification])
            device.network.run(for: .milliseconds(500))
        }
        device.network.run(for: .seconds(50))
        #expect(cloud.requests("ReadChanges").count <= 130)
        try expectInStep(device)
    }

    @Test(arguments: Lie.allCases) func aHeartbeatNamesAnotherHead(_ lie: Lie) throws {
        let device = try device()
        let cloud = device.cloud
        for _ in 0..<20 {
            var head = cloud.scopeHead
            head.token = WireChangeToken(lie.token(cloud.head))
            cloud.deliver {
                $0.heartbeat = true
                $0.scopeCount = 9
                $0.heads = [head]
            }
            device.network.run(for: .seconds(5))
        }
        #expect(cloud.requests("ReadChanges").count <= 130)
        try expectInStep(device)
    }

    @Test(arguments: Lie.allCases) func aSubscriptionNamesAnotherHead(_ lie: Lie) throws {
        let device = try device()
        let cloud = device.cloud
        cloud.lies["Subscribe"] = { frame in
            guard var reply = try? frame.decode(WireSubscribeReply.self) else { return frame }
            for index in reply.heads.indices {
                reply.heads[index].token = WireChangeToken(lie.token(ChangeToken(reply.heads[index].token)))
            }
            return Frame(encoding: reply)
        }
        // No heartbeat comes: it subscribes again each 15 seconds.
        device.network.run(for: .seconds(120))
        #expect(cloud.requests("Subscribe").count <= 20)
        #expect(cloud.requests("ReadChanges").count <= 130)
        try expectInStep(device)
    }

    /// What stays repeats itself under the id for as long as the id lives; what is written after it goes on.
    @Test func anAnswerThatStaysUntrueHoldsUpItsOwnWriteAlone() throws {
        let device = try device()
        let cloud = device.cloud
        var first: OperationID?
        cloud.overrides["PushKeys"] = { request in
            if first == nil { first = request.id }
            guard request.id == first else { return nil }
            var reply = WirePushKeysReply()
            reply.token = WireChangeToken(ChangeToken(epoch: .max, sequence: .max))
            reply.outcomes = [WireKeyOutcome()]
            return .success(Frame(encoding: reply))
        }
        try device.store.set(5, forKey: "own")
        device.network.run(for: .seconds(600))
        #expect(cloud.requests("PushKeys").count <= 40)
        #expect(try device.store.status().pending.count == 1)
        // The id is forgotten there, and the write goes out under another.
        cloud.overrides["PushKeys"] = { request in
            request.id == first ? .failure(CloudError(.operationExpired, "Too old.")) : nil
        }
        device.network.run(for: .seconds(180))
        #expect(cloud.items["own"]?.value == 5)
        try expectInStep(device)
    }

    /// Bits that are other ones, and ends that are missing, in whatever comes.
    @Test(arguments: 0..<60 as Range<UInt64>) func damagedAnswersAndDeliveriesEndNoDevice(_ seed: UInt64) throws {
        let cloud = try ScriptedCloud()
        cloud.head = ChangeToken(epoch: 2, sequence: 7)
        // Tokens are renewed under way.
        cloud.lifetime = 30_000
        let device = try Device.ready(cloud)
        var random = SplitMix64(seed: seed)
        func damaged(_ frame: Frame) -> Frame {
            var bytes = frame.bytes
            for _ in 0..<Int.random(in: 0...3, using: &random) where !bytes.isEmpty {
                let index = Int.random(in: bytes.indices, using: &random)
                switch Int.random(in: 0..<4, using: &random) {
                case 0: bytes.removeLast(bytes.count - index)
                case 1: bytes[index] = 0xff
                default: bytes[index] ^= 1 << UInt8.random(in: 0..<8, using: &random)
                }
            }
            return Frame(bytes)
        }
        // Not what identity says: where the services are it alone knows, and it is believed.
        for method in ["ReadChanges", "PushKeys", "Subscribe", "Delivery"] {
            cloud.lies[method] = damaged
        }
        for round in 0..<40 {
            // What was damaged may say that a store has no room for anything.
            try? device.store.set(.integer(Int64(round)), forKey: ItemName("own\(round % 5)"))
            cloud.deliver([cloud.write("n", .integer(Int64(round)), at: device.now)]) {
                $0.heartbeat = true
                $0.scopeCount = 1
                $0.heads = [cloud.scopeHead]
            }
            device.network.run(for: .seconds(2))
        }
        #expect(cloud.requests.count <= 2000)
        // Those that happen to say that the device has been turned away are believed.
        guard device.engine.session?.signedIn == true, device.engine.session?.revoked == false else { return }
        try expectInStep(device)
    }
}
