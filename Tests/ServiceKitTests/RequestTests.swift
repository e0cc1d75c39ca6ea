import NephosBus
import NephosCore
import NephosServiceKit
import NephosStorage
import NephosWire
import Testing

/// What becomes of requests: groups, repeats, and what is refused.
struct RequestTests {
    let house: TestHouse
    let client: RequestClient

    init() throws {
        house = try TestHouse()
        client = try house.client()
    }

    private var names: [String] {
        get throws {
            let body = try #require(client.ask(WireListAccounts(), on: house.bus)).get()
            return try body.decode(WireListAccountsReply.self).accounts.map(\.accountName)
        }
    }

    @Test func repeatOfAnOperationGetsTheFirstReply() throws {
        let id = OperationID(at: house.bus.clock.now)
        let first = try #require(client.ask(createAccount("one"), on: house.bus, id: id)).get()
        let second = try #require(client.ask(createAccount("one"), on: house.bus, id: id)).get()
        #expect(first.bytes == second.bytes)
        #expect(house.identity.runs == 1)
        // Another caller's operation with the same id is another operation.
        let other = try house.client()
        let third = try #require(other.ask(createAccount("two"), on: house.bus, id: id)).get()
        #expect(third.bytes != first.bytes)
    }

    @Test func duplicatesInOneGroupGetTheFirstReply() throws {
        var replies: [[UInt8]] = []
        let id = OperationID(at: house.bus.clock.now)
        let request = RequestEnvelope(method: "CreateAccount", id: id, body: Frame(encoding: createAccount("one")))
        let socket = try house.rawSocket { messages in
            for message in messages {
                if let reply = try? ReplyEnvelope(decoding: message), case .success(let body) = reply.result {
                    replies.append(body.bytes)
                }
            }
        }
        _ = socket.send(request.encoded())
        _ = socket.send(request.encoded())
        house.bus.settle()
        #expect(replies.count == 2)
        #expect(Set(replies).count == 1)
        #expect(house.identity.runs == 1)
    }

    @Test func lostReplyIsAskedForAgainAndNothingHappensTwice() throws {
        house.bus.losesReplies = true
        var result: Result<Frame, CloudError>?
        client.send(createAccount("one")) { result = $0 }
        house.bus.settle()
        #expect(result == nil)
        house.bus.losesReplies = false
        house.bus.run(for: .seconds(5))
        #expect(result?.code == nil && result != nil)
        #expect(try names == ["one"])
        #expect(house.identity.runs == 1)
    }

    @Test func callWithoutAnyAnswerEndsAtItsDeadline() throws {
        house.bus.losesReplies = true
        var result: Result<Frame, CloudError>?
        client.send(createAccount("one")) { result = $0 }
        house.bus.run(for: .seconds(29))
        #expect(result == nil)
        house.bus.run(for: .seconds(2))
        #expect(result?.code == .serverResponseLost)
        #expect(client.pendingCount == 0)
    }

    @Test func callsBeyondTheLimitAreRefused() throws {
        var policy = RequestClient.Policy()
        policy.pendingMax = 1
        let client = try house.client(policy: policy)
        var codes: [CloudError.Code?] = []
        for _ in 0..<2 { client.send(WireListAccounts()) { codes.append($0.code) } }
        house.bus.settle()
        #expect(codes.contains(.serviceBusy) && codes.contains(nil))
    }

    @Test func groupSharesOneCommit() throws {
        let before = house.identityEngine.commits
        for index in 0..<100 { client.send(createAccount("\(index)")) }
        house.bus.settle()
        #expect(house.identityEngine.commits == before + 1)
        #expect(try names.count == 100)
    }

    @Test func failureTakesNobodyWithIt() throws {
        var codes: [CloudError.Code?] = []
        for name in ["one", "refused", "two", "half", "three"] {
            client.send(createAccount(name)) { codes.append($0.code) }
        }
        house.bus.settle()
        #expect(codes == [nil, .invalidArguments, nil, .constraintViolation, nil])
        #expect(try names == ["one", "two", "three"])
    }

    @Test func failureIsNotRemembered() throws {
        let id = OperationID(at: house.bus.clock.now)
        #expect(client.ask(createAccount("refused"), on: house.bus, id: id)?.code == .invalidArguments)
        #expect(client.ask(createAccount("one"), on: house.bus, id: id)?.code == nil)
        #expect(try names == ["one"])
    }

    @Test func failedCommitStoresNothingAndSaysSo() throws {
        house.identityEngine.failsCommits = true
        var codes: [CloudError.Code?] = []
        var listed: [String]?
        // As raw messages: the client would try again by itself.
        let socket = try house.rawSocket { messages in
            for message in messages {
                guard let reply = try? ReplyEnvelope(decoding: message) else { continue }
                codes.append(reply.result.code)
                if case .success(let body) = reply.result, let list = try? body.decode(WireListAccountsReply.self) {
                    listed = list.accounts.map(\.accountName)
                }
            }
        }
        let now = house.bus.clock.now
        _ = socket.send(
            RequestEnvelope(
                method: "CreateAccount", id: OperationID(at: now), body: Frame(encoding: createAccount("one"))
            ).encoded())
        _ = socket.send(
            RequestEnvelope(
                method: "ListAccounts", id: OperationID(at: now), body: Frame(encoding: WireListAccounts())
            ).encoded())
        house.bus.settle()
        #expect(codes == [.storageFailure, nil])
        #expect(listed == [])
        house.identityEngine.failsCommits = false
        #expect(try names == [])
    }

    @Test func preparedWorkRunsOnceForRepeats() throws {
        var request = WireSignIn()
        request.accountName = "one"
        let id = OperationID(at: house.bus.clock.now)
        let envelope = RequestEnvelope(method: "SignIn", id: id, body: Frame(encoding: request))
        var count = 0
        let socket = try house.rawSocket { count += $0.count }
        _ = socket.send(envelope.encoded())
        _ = socket.send(envelope.encoded())
        house.bus.settle()
        _ = socket.send(envelope.encoded())
        house.bus.settle()
        #expect(house.identity.preparations == 1)
        #expect(count == 2)
        #expect(try names == ["ONE"])
    }

    @Test func anotherRequestUnderAnIdThatIsBeingPreparedIsRefused() throws {
        let id = OperationID(at: house.bus.clock.now)
        var codes: [CloudError.Code?] = []
        let socket = try house.rawSocket { messages in
            codes += messages.compactMap { try? ReplyEnvelope(decoding: $0) }.filter { $0.id != nil }.map(\.result.code)
        }
        for name in ["one", "two"] {
            var request = WireSignIn()
            request.accountName = name
            _ = socket.send(
                RequestEnvelope(method: "SignIn", id: id, body: Frame(encoding: request)).encoded())
        }
        house.bus.settle()
        #expect(codes.count == 2 && codes.contains(.operationReused) && codes.contains(nil), "\(codes)")
        #expect(try names == ["ONE"])
    }

    @Test func anotherRequestUnderAnUsedIdIsRefused() throws {
        let id = OperationID(at: house.bus.clock.now)
        _ = try #require(client.ask(createAccount("one"), on: house.bus, id: id)).get()
        #expect(client.ask(createAccount("two"), on: house.bus, id: id)?.code == .operationReused)
        #expect(try names == ["one"])
        #expect(house.identity.runs == 1)
    }

    @Test func garbageGetsTypedErrors() throws {
        var codes: [CloudError.Code] = []
        let socket = try house.rawSocket { messages in
            for message in messages {
                if let code = (try? ReplyEnvelope(decoding: message))?.result.code { codes.append(code) }
            }
        }
        let now = house.bus.clock.now
        var wrongVersion = WireRequest()
        wrongVersion.version = 77
        wrongVersion.requestID = .init(OperationID(at: now).bytes)
        let messages: [Message] = [
            [Frame([0xff, 0x03, 0x99])],
            [Frame(encoding: wrongVersion)],
            RequestEnvelope(method: "NoSuch", id: OperationID(at: now), body: Frame([])).encoded(),
            RequestEnvelope(method: "CreateAccount", id: OperationID(at: now), body: Frame([0xff, 0xff])).encoded(),
            RequestEnvelope(
                method: "CreateAccount", id: OperationID(at: now), body: Frame([UInt8](repeating: 0, count: 2000))
            ).encoded(),
            RequestEnvelope(
                method: "CreateAccount", id: OperationID(at: now.advanced(by: .seconds(-25 * 3600))), body: Frame([])
            ).encoded(),
            RequestEnvelope(
                method: "CreateAccount", id: OperationID(at: now.advanced(by: .seconds(2 * 3600))), body: Frame([])
            ).encoded(),
            RequestEnvelope(method: "RevokeDevice", id: OperationID(at: now), body: Frame([])).encoded(),
            RequestEnvelope(method: "ReadPositions", id: OperationID(at: now), body: Frame([])).encoded(),
        ]
        for message in messages {
            _ = socket.send(message)
            house.bus.settle()
        }
        #expect(
            codes == [
                .malformedRequest, .incompatibleVersion, .unknownMethod, .malformedRequest,
                .limitExceeded, .operationExpired, .operationExpired, .permissionFailure, .permissionFailure,
            ])
        let body = try #require(client.ask(WireCheckHealth(), on: house.bus)).get()
        let health = try body.decode(WireCheckHealthReply.self)
        #expect(health.counters["failures.malformedRequest"] == 2)
        #expect(health.counters["failures.unknownMethod"] == 1)
    }

    @Test func fullPeerGetsItsRepliesWhenItAsksAgain() throws {
        house.bus.network.repliesMax = 5
        var count = 0
        for index in 0..<10 { client.send(createAccount("\(index)")) { if $0.code == nil { count += 1 } } }
        house.bus.settle()
        #expect(count == 5)
        house.bus.run(for: .seconds(3))
        #expect(count == 10)
        #expect(house.identity.runs == 10)
    }

    @Test func operatorMayDoWhatOthersMayNot() throws {
        let client = try house.client(house.operatorKeys)
        #expect(client.ask(WireRevokeDevice(), on: house.bus)?.code == nil)
        #expect(client.ask(WireReadPositions(), on: house.bus)?.code == nil)
    }
}
