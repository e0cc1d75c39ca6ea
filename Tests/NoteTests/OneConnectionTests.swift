import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import Testing

/// Several subscriptions over one connection: what becomes of one leaves the others as they are, and is told truly.
@Suite struct OneConnectionTests {
    private static let app = "T.notes"
    private static let otherApp = "T.other"

    private let cloud: TestCloud
    /// The connection that is looked at.
    private let reader: TestClient
    private let writer: TestClient
    private let token: String
    private let writersToken: String

    init() throws {
        cloud = try TestCloud(seed: 1, factories: [.records: { _ in NotesService() }])
        for (app, container) in [(Self.app, "T.notes"), (Self.otherApp, "T.elsewhere")] {
            var wire = WireApp()
            wire.appID = app
            wire.containerIds = [container]
            try cloud.createApp(wire)
        }
        reader = try cloud.makeClient()
        writer = try cloud.makeClient()
        token = try Self.signIn(reader)
        writersToken = try Self.signIn(writer)
    }

    private static func signIn(_ client: TestClient, as account: String = TestCloud.accountName) throws -> String {
        var request = WireSignIn()
        request.accountName = account
        request.password = TestCloud.password
        request.deviceName = "bare"
        request.appID = app
        return try client.call("SignIn", request, at: .requests(.identity), as: WireSignInReply.self).accessToken.token
    }

    private func otherAppsToken() throws -> String {
        var request = WireIssueToken()
        request.appID = Self.otherApp
        return try reader.call(
            "IssueToken", request, at: .requests(.identity), accessToken: token, as: WireIssueTokenReply.self
        ).accessToken.token
    }

    private func subscribe(_ scopes: [String], _ token: String? = nil) throws -> TestClient.Answer {
        var request = WireSubscribe()
        request.scopes = scopes.map { scope in
            var wire = WireSubscribedScope()
            wire.service = ServiceName.records.rawValue
            wire.scope = scope
            return wire
        }
        return try reader.begin("Subscribe", request, at: .subscriptions, accessToken: token ?? self.token)
    }

    private func code(_ answer: TestClient.Answer) -> CloudError.Code? {
        guard case .failure(let error) = answer.result else { return nil }
        return error.code
    }

    private func isGranted(_ answer: TestClient.Answer) -> Bool {
        guard case .success(let reply) = answer.result.map({ $0.decoded(as: WireSubscribeReply.self) }) else {
            return false
        }
        return reply.heads.allSatisfy { !$0.unknown }
    }

    /// Whether the reader is told of a change within less than a heartbeat.
    private func isTold() throws -> Bool {
        let before = reader.notifications.count
        try writer.call(
            "Change", Note(name: "n\(before)", text: [1]).wire, at: .requests(.records), accessToken: writersToken,
            as: WireNotification.self)
        cloud.network.run(for: .seconds(1))
        return reader.notifications.count > before
    }

    @Test(arguments: [false, true]) func whatOneAppIsRefusedTheOtherGoesOnFollowing(isAtOnce: Bool) throws {
        defer { cloud.close() }
        let other = try otherAppsToken()
        let own = try subscribe(["T.notes"])
        if !isAtOnce { cloud.network.run(for: .seconds(1)) }
        let refused = try subscribe(["T.notes"], other)
        cloud.network.run(for: .seconds(1))
        #expect(isGranted(own) && code(refused) == .missingEntitlement)
        #expect(try isTold())
        // The other way round.
        let late = try subscribe(["T.elsewhere"], other)
        let foreign = try subscribe(["T.elsewhere"])
        cloud.network.run(for: .seconds(1))
        #expect(isGranted(late) && code(foreign) == .missingEntitlement)
        cloud.network.run(for: .seconds(6))
        #expect(reader.deliveries.last?.scopeCount == 2)
    }

    @Test func whatIsRefusedTakesNothingWithItThatWasAskedForBesides() throws {
        defer { cloud.close() }
        cloud.crash(.records)
        let mixed = try subscribe(["T.notes", "there is none"])
        let good = try subscribe(["T.notes"])
        cloud.network.run(for: .milliseconds(500))
        try cloud.start(.records)
        cloud.network.run(for: .seconds(3))
        #expect(code(mixed) == .missingEntitlement)
        #expect(isGranted(good))
        #expect(try isTold())
        // Alone it takes all with it that it asked for.
        let alone = try subscribe(["T.other", "T.notes"])
        cloud.network.run(for: .seconds(6))
        #expect(code(alone) == .missingEntitlement)
        #expect(reader.deliveries.last?.scopeCount == 1)
    }

    @Test func whoseSubscriptionEndsWhileItIsMadeIsNotToldThatItFollows() throws {
        defer { cloud.close() }
        cloud.crash(.records)
        let answer = try subscribe(["T.notes"])
        cloud.network.run(for: .milliseconds(500))
        var lock = WireLockAccount()
        lock.accountName = TestCloud.accountName
        lock.locked = true
        try cloud.operate("LockAccount", lock, as: WireLockAccountReply.self)
        cloud.network.run(for: .seconds(10))
        let ends = reader.deliveries.filter(\.hasEnded)
        #expect(!ends.isEmpty)
        #expect(code(answer) == .accountTemporarilyUnavailable)
    }

    /// What is asked of a service that does not answer is not asked for ever more.
    @Test func whatOneAccountAsksKeepsNobodyElsesQuestionWaiting() throws {
        defer { cloud.close() }
        try cloud.createAccount("guest")
        let guest = try cloud.makeClient()
        let guestsToken = try Self.signIn(guest, as: "guest")
        cloud.crash(.records)
        for round in 0..<60 {
            var subscribe = WireSubscribe()
            subscribe.scopes = (0..<200).map { number in
                var scope = WireSubscribedScope()
                scope.service = ServiceName.records.rawValue
                scope.owner = "o\(round)-\(number)"
                scope.scope = "s"
                return scope
            }
            var unsubscribe = WireUnsubscribe()
            unsubscribe.scopes = subscribe.scopes
            _ = try guest.begin("Subscribe", subscribe, at: .subscriptions, accessToken: guestsToken)
            _ = try guest.begin("Unsubscribe", unsubscribe, at: .subscriptions, accessToken: guestsToken)
        }
        cloud.network.run(for: .milliseconds(200))
        let honest = try subscribe(["T.notes"])
        cloud.network.run(for: .milliseconds(500))
        try cloud.start(.records)
        cloud.network.run(for: .seconds(3))
        #expect(isGranted(honest))
        #expect(try isTold())
    }
}
