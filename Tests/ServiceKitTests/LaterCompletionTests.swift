import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// A host over storage that completes a group when it likes.
struct LaterCompletionTests {
    @Test func whatComesWhileAGroupIsUnderWayWaitsForTheNext() throws {
        let house = try TestHouse()
        let first = try house.client()
        let second = try house.client()
        house.bus.settle()
        let commits = house.identityEngine.commits
        var replies: [String] = []
        func create(_ name: String, by client: RequestClient) {
            client.send(createAccount(name)) { if $0.code == nil { replies.append(name) } }
            house.bus.settle()
        }
        house.identityEngine.holds = true
        create("a", by: first)
        create("b", by: first)
        create("c", by: second)
        create("d", by: first)
        #expect(replies == [] && house.identity.runs == 0)
        house.identityEngine.goOn()
        house.bus.settle()
        #expect(replies == ["a"] && house.identity.runs == 1)
        house.identityEngine.goOn()
        house.bus.settle()
        #expect(replies.filter { $0 != "c" } == ["a", "b", "d"] && replies.count == 4)
        // Each once, and the last three as one group.
        #expect(house.identity.runs == 4 && house.identityEngine.commits == commits + 2)
        #expect(!house.identityEngine.isHolding)
    }

    /// What is counted by time would else be counted as if it had come before what had its turn before it.
    @Test func whatWaitedForItsTurnHasTheTimeOfIt() throws {
        let house = try TestHouse()
        let client = try house.client()
        house.bus.settle()
        house.identityEngine.holds = true
        for name in ["a", "b"] {
            client.send(createAccount(name)) { _ in }
            house.bus.settle()
        }
        var turns: [Timestamp] = []
        for _ in 0..<2 {
            house.bus.run(for: .seconds(1))
            turns.append(house.bus.clock.now)
            house.identityEngine.goOn()
        }
        #expect(house.identity.times == turns)
    }

    @Test func aRepeatOfWhatIsUnderWayIsCarriedOutOnce() throws {
        let house = try TestHouse()
        let client = try house.client()
        house.bus.settle()
        house.identityEngine.holds = true
        let id = OperationID(at: house.bus.clock.now)
        var replies = 0
        for _ in 0..<2 {
            client.send(createAccount("a"), id: id) { if $0.code == nil { replies += 1 } }
            house.bus.settle()
        }
        while house.identityEngine.isHolding {
            house.identityEngine.goOn()
            house.bus.settle()
        }
        #expect(house.identity.runs == 1 && replies > 0)
    }

    @Test func aGroupThatFailsHalfDoneIsTakenApartOneByOne() throws {
        let house = try TestHouse()
        let client = try house.client()
        house.bus.settle()
        house.identityEngine.holds = true
        var outcomes: [String: CloudError.Code?] = [:]
        // The first alone; the others while it is under way, in one group.
        for name in ["first", "a", "half", "b"] {
            client.send(createAccount(name)) { outcomes[name] = $0.code }
            house.bus.settle()
        }
        while house.identityEngine.isHolding {
            house.identityEngine.goOn()
            house.bus.settle()
        }
        #expect(outcomes == ["first": nil, "a": nil, "half": .constraintViolation, "b": nil])
        // In the group "a" and "half"; then each by itself.
        #expect(house.identity.runs == 1 + 2 + 3)
    }

    @Test func closingWaitsForWhatIsUnderWay() throws {
        let house = try TestHouse()
        let client = try house.client()
        house.bus.settle()
        house.identityEngine.holds = true
        var replies = 0
        for name in ["a", "b"] {
            client.send(createAccount(name)) { if $0.code == nil { replies += 1 } }
            house.bus.settle()
        }
        var isClosed = false
        house.identityHost.close { isClosed = true }
        #expect(!isClosed && !house.identityEngine.isClosed)
        house.identityEngine.goOn()
        #expect(!isClosed && !house.identityEngine.isClosed)
        // What had come before goes with the last group.
        house.identityEngine.goOn()
        #expect(isClosed && house.identityEngine.isClosed && !house.identityEngine.isHolding)
        house.bus.settle()
        #expect(replies == 2 && house.identity.runs == 2)
    }

    @Test func whatAFollowerHearsWhileItStoresIsTakenInAfterIt() throws {
        let house = try TestHouse(withFollower: true)
        house.bus.run(for: .seconds(1))
        house.notificationsEngine.holds = true
        let client = try house.client()
        for index in 0..<4 {
            _ = try #require(client.ask(createAccount("\(index)"), on: house.bus)).get()
        }
        #expect(house.notifications.handled.isEmpty)
        for _ in 0..<10 {
            house.notificationsEngine.goOn()
            house.bus.settle()
        }
        let tokens = house.notifications.handled.filter { $0.notification != nil }.map(\.position.sequence)
        #expect(tokens == [1, 2, 3, 4])
        #expect(house.notificationsHost?.counts["follower.gaps"] == nil)
    }

    @Test func whatAFollowerHearsWhileItStoresIsBoundedInBytes() throws {
        let house = try TestHouse(withFollower: true)
        house.bus.run(for: .seconds(1))
        let host = try #require(house.notificationsHost)
        let client = try house.client()
        house.identity.eventBytes = 128 << 10
        house.notificationsEngine.holds = true
        func create(_ numbers: Range<Int>) throws {
            for number in numbers { _ = try #require(client.ask(createAccount("\(number)"), on: house.bus)).get() }
        }
        try create(0..<30)
        #expect(host.counts["follower.lost"] == nil)
        try create(30..<60)
        let lost = try #require(host.counts["follower.lost"])
        // The first is being stored, and 4 MiB wait.
        #expect(lost == 60 - 1 - 31)
        house.notificationsEngine.holds = false
        house.notificationsEngine.goOn()
        house.bus.run(for: .seconds(3))
        let tokens = house.notifications.handled.filter { $0.notification != nil }.map(\.position.sequence)
        #expect(tokens == Array(1...32) + [60])
        let health = try #require(house.client(to: .notifications).ask(WireCheckHealth(), on: house.bus)).get()
        #expect(try health.decode(WireCheckHealthReply.self).followerLag["identity"] == 0)
    }

    // MARK: Whose time is up

    /// Its group takes longer than its caller waits: that of a small request, and that which ends one whose password is
    /// checked first.
    @Test(arguments: [true, false]) func whatComesTooLateIsNotCarriedOut(_ isPrepared: Bool) throws {
        let house = try TestHouse()
        var codes: [CloudError.Code?] = []
        let socket = try house.rawSocket {
            codes += $0.compactMap { try? ReplyEnvelope(decoding: $0) }.filter { $0.id != nil }.map(\.result.code)
        }
        let id = OperationID(at: house.bus.clock.now)
        func ask(waiting timeout: Duration) {
            var signIn = WireSignIn()
            signIn.accountName = "late"
            let body = isPrepared ? Frame(encoding: signIn) : Frame(encoding: createAccount("late"))
            let request = RequestEnvelope(
                method: isPrepared ? "SignIn" : "CreateAccount", id: id, timeout: timeout, body: body)
            _ = socket.send(request.encoded())
            house.bus.settle()
        }
        house.identityEngine.holds = true
        if !isPrepared {
            try house.client().send(createAccount("first"))
            house.bus.settle()
        }
        ask(waiting: .milliseconds(10))
        // The first one's group, or that which begins the check.
        house.identityEngine.goOn()
        house.bus.settle()
        #expect(house.identityEngine.isHolding && codes.isEmpty)
        house.bus.run(for: .milliseconds(20))
        house.identityEngine.holds = false
        house.identityEngine.goOn()
        house.bus.settle()
        #expect(codes == [.deadlineExceeded])
        #expect(house.identity.preparations == 0 && house.identity.runs == (isPrepared ? 0 : 1))
        // Nothing of it is remembered: with more time it is carried out.
        ask(waiting: .seconds(10))
        #expect(codes == [.deadlineExceeded, nil])
        #expect(house.identity.preparations == (isPrepared ? 1 : 0) && house.identity.runs == (isPrepared ? 0 : 2))
    }

    @Test func largeRequestsTakeTurnsWithSmallOnes() throws {
        let house = try TestHouse()
        let client = try house.client()
        let owner = try house.client(house.operatorKeys)
        house.bus.settle()
        house.identityEngine.holds = true
        var order: [String] = []
        func create(_ name: String) {
            client.send(createAccount(name)) { _ in order.append(name) }
            house.bus.settle()
        }
        create("0")
        for _ in 0..<3 {
            var large = WireRevokeDevice()
            // As much as the method takes, with its field's tag and length.
            large.deviceID = String(repeating: "x", count: (64 << 10) - 4)
            owner.send(large) { order.append($0.code == nil ? "large" : "refused") }
        }
        // While each group is under way another small one comes.
        for step in 1...6 {
            create("\(step)")
            house.identityEngine.goOn()
            house.bus.settle()
        }
        #expect(order == ["0", "1", "large", "large", "2", "3", "large", "4", "5"])
    }
}
