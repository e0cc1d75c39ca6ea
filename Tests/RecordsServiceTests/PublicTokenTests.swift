import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// Devices without an account: what their tokens are good for, how many they get, and how they end.
@Suite struct PublicTokenTests {
    private let house: PublicHouse
    private let here: RecordDevice

    init() throws {
        house = try PublicHouse()
        here = try house.device()
    }

    private func code(_ body: () throws -> Void) -> CloudError.Code? {
        do { try body() } catch { return CloudError(wrapping: error).code }
        return nil
    }

    private func subscribe(
        _ device: RecordDevice, container: String = RecordHouse.container, owner: String = RecordHouse.app
    ) throws {
        var scope = WireSubscribedScope()
        scope.service = ServiceName.records.rawValue
        scope.owner = Owner(AppID(owner)).rawValue
        scope.scope = "\(container)/\(RecordLimits.defaultZone)"
        var request = WireSubscribe()
        request.scopes = [scope]
        try device.client.call(
            "Subscribe", request, at: .subscriptions, accessToken: device.accessToken, as: WireSubscribeReply.self)
    }

    // MARK: What it is good for

    /// All methods that there are, as the protocol has them.
    private static func methods() throws -> [String] {
        let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "Protos/nephos")
        let texts = try FileManager.default.contentsOfDirectory(atPath: folder.path).filter { $0.hasSuffix(".proto") }
            .map { try String(contentsOf: folder.appending(path: $0), encoding: .utf8) }
        let messages = texts.flatMap { $0.split(separator: "\n") }.filter { $0.hasPrefix("message ") }
            .map { String($0.dropFirst("message ".count).prefix { $0.isLetter }) }
        return messages.filter { messages.contains($0 + "Reply") }.sorted()
    }

    @Test func everyOtherMethodOfEveryServiceRefusesIt() throws {
        let stranger = try house.stranger()
        // Those need no token at all, or are what it is for.
        let open: Set<String> = ["SignIn", "RefreshToken", "GetDirectory", "CheckHealth", "IssuePublicToken"]
        let allowed: Set<String> = [
            "FetchRecords", "QueryRecords", "ReadChanges", "Subscribe", "Unsubscribe", "OpenTransfer", "ReadNodes",
        ]
        let methods = try Self.methods()
        #expect(methods.count > 60 && open.union(allowed).isSubset(of: methods))
        var refused = 0
        let services: [ServiceName] = [.identity, .keyValue, .records, .notifications]
        for door in services.map({ TestClient.Door.requests($0) }) + [.subscriptions] {
            for method in methods where !open.contains(method) {
                let answer = try stranger.client.begin(
                    method, WireGetDirectory(), at: door, accessToken: stranger.accessToken)
                house.cloud.network.run(within: .seconds(60)) { answer.result != nil }
                guard case .failure(let error)? = answer.result else {
                    Issue.record("\(method) at \(door) is answered.")
                    continue
                }
                if error.code == .unknownMethod { continue }
                refused += 1
                if allowed.contains(method) {
                    #expect(
                        [.missingEntitlement, .invalidArguments, .permissionFailure].contains(error.code),
                        "\(method) at \(door): \(error)")
                } else {
                    #expect(error.code == .permissionFailure, "\(method) at \(door): \(error)")
                }
            }
        }
        #expect(refused > 60)
    }

    @Test func itReadsAndFollowsOneContainersPublicDatabaseAndNothingElse() throws {
        try here.save("a")
        try house.house.device().save("own")
        let stranger = try house.stranger()
        #expect(try stranger.list().keys.sorted() == ["a"])
        try subscribe(stranger)
        try here.save("b")
        house.cloud.network.run(for: .seconds(1))
        #expect(stranger.client.notifications.flatMap(\.changes).map(\.item) == ["b"])
        // Another container of the same app, which its accounts follow already.
        try subscribe(try house.device(PublicHouse.other), container: "T.shared")
        #expect(code { try subscribe(stranger, container: "T.shared") } == .missingEntitlement)
        let other = stranger.ofPublic(container: "T.shared")
        #expect(code { _ = try other.list() } == .missingEntitlement)
        #expect(code { _ = try other.fetch(["a"]) } == .missingEntitlement)
        // What is an account's.
        stranger.container = RecordHouse.container
        for scope in ["\(RecordHouse.container)/\(RecordLimits.defaultZone)", RecordHouse.container, "account"] {
            for service in [ServiceName.records, .keyValue, .identity] {
                for owner in ["", here.mover.account.rawValue] {
                    var request = WireReadChanges()
                    (request.owner, request.scope) = (owner, scope)
                    let refusal = code {
                        try stranger.client.call(
                            "ReadChanges", request, at: .requests(service), accessToken: stranger.accessToken,
                            as: WireReadChangesReply.self)
                    }
                    #expect(refusal == .missingEntitlement)
                }
            }
        }
    }

    @Test func itIsBoundToItsKeyAndEndsByItself() throws {
        let stranger = try house.stranger()
        let thief = RecordDevice(
            house.house, try house.cloud.makeClient(), token: stranger.accessToken, owner: RecordHouse.app)
        #expect(code { _ = try thief.list() } == .tokenNotBound)
        house.cloud.network.run(for: .seconds(1000))
        #expect(code { _ = try stranger.list() } == .tokenExpired)
    }

    // MARK: How it ends

    @Test func whenTheAppsTokenIsRevokedItEndsEverywhereWithinSeconds() throws {
        let token = try house.makeAppToken()
        let (stranger, other) = (try house.stranger(token.secret), try house.stranger())
        try subscribe(stranger)
        try subscribe(other)
        var revoke = WireRevokeAppToken()
        revoke.tokenID = token.token.tokenID
        try house.cloud.operate("RevokeAppToken", revoke, as: WireRevokeAppTokenReply.self)
        house.cloud.network.run(for: .seconds(1))
        #expect(code { _ = try stranger.list() } == .notAuthenticated)
        #expect(code { try subscribe(stranger) } == .notAuthenticated)
        #expect(code { _ = try house.stranger(token.secret) } == .notAuthenticated)
        #expect(stranger.client.deliveries.contains { $0.hasEnded })
        try here.save("a")
        house.cloud.network.run(for: .seconds(1))
        #expect(stranger.client.notifications.isEmpty)
        // Others go on.
        #expect(other.client.notifications.count == 1)
        #expect(try other.list().count == 1)
        // And a service that begins anew knows it.
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(2))
        #expect(code { _ = try stranger.list() } == .notAuthenticated)
    }

    /// Of what it has fetched some may be on its way still, and its ticket would be good for an hour.
    @Test func aTokenThatIsRevokedFetchesNoMoreAssets() throws {
        let photo = TestContent(seed: 1, chunks: [50_000, 60_000])
        try here.save("sea", ["photo": .asset(photo.asset)], upload: try here.store(photo, for: "sea"), for: "sea")
        let token = try house.makeAppToken()
        let (stranger, other) = (try house.stranger(token.secret), try house.stranger())
        let (mine, theirs) = (try stranger.connectBulk(for: "sea"), try other.connectBulk(for: "sea"))
        for client in [mine, theirs] { #expect(try stranger.fetch(photo.ids[0], by: client) == photo.chunks[0]) }
        var revoke = WireRevokeAppToken()
        revoke.tokenID = token.token.tokenID
        try house.cloud.operate("RevokeAppToken", revoke, as: WireRevokeAppTokenReply.self)
        house.cloud.network.run(for: .seconds(1))
        #expect(code { _ = try stranger.fetch(photo.ids[1], by: mine) } == .notAuthenticated)
        #expect(try stranger.fetch(photo.ids[1], by: theirs) == photo.chunks[1])
    }

    @Test func identityThatForgotARevocationLearnsItAgain() throws {
        let token = try house.makeAppToken()
        let copy = try house.cloud.copyStorage(of: .identity)
        var revoke = WireRevokeAppToken()
        revoke.tokenID = token.token.tokenID
        try house.cloud.operate("RevokeAppToken", revoke, as: WireRevokeAppTokenReply.self)
        house.cloud.network.run(for: .seconds(2))
        try house.cloud.restore(copy, of: .identity)
        house.cloud.network.run(for: .seconds(20))
        #expect(code { _ = try house.stranger(token.secret) } == .notAuthenticated)
    }

    @Test func anAppThatLosesItsContainerTakesItFromThem() throws {
        let token = try house.makeAppToken()
        let stranger = try house.stranger(token.secret)
        #expect(try stranger.list().isEmpty)
        var update = WireUpdateApp()
        update.appID = RecordHouse.app
        update.containers.ids = ["T.shared"]
        try house.cloud.operate("UpdateApp", update, as: WireUpdateAppReply.self)
        house.cloud.network.run(for: .seconds(1))
        #expect(code { _ = try stranger.list() } == .missingEntitlement)
        #expect(code { _ = try house.stranger(token.secret) } == .missingEntitlement)
    }

    @Test func theTokenOfAnAppIsToldOnceAndARepeatTellsTheSame() throws {
        var request = WireCreateAppToken()
        request.appID = RecordHouse.app
        let id = OperationID(at: SimulatedNetwork.epoch.advanced(by: house.cloud.network.now))
        let operatorClient = house.cloud.makeOperator()
        let made = try (0..<2).map { _ in
            try operatorClient.call(
                "CreateAppToken", request, at: .requests(.identity), id: id, as: WireCreateAppTokenReply.self)
        }
        #expect(made[0] == made[1] && !made[0].secret.isEmpty)
        var list = WireListAppTokens()
        list.appID = RecordHouse.app
        let listed: WireListAppTokensReply = try house.cloud.operate("ListAppTokens", list)
        #expect(listed.tokens == [made[0].token])
        // One letter of it is another.
        let wrong = String(made[0].secret.dropLast()) + (made[0].secret.hasSuffix("A") ? "B" : "A")
        for secret in [wrong, "", "nephos-app..", String(repeating: "x", count: 4000)] {
            #expect(code { _ = try house.stranger(secret) } == .notAuthenticated)
        }
        (request.containerID, request.appID) = ("T.elsewhere", RecordHouse.app)
        #expect(
            code { try house.cloud.operate("CreateAppToken", request, as: WireCreateAppTokenReply.self) }
                == .missingEntitlement)
    }

    // MARK: How many

    @Test func oneAddressGetsNoMoreTokensThanItsBudgetHas() throws {
        let budget = AddressBudget(capacity: 3, refillPerSecond: 1)
        let place = AddressBudget.place(of: "192.0.2.1")
        for _ in 0..<3 { try budget.take(place, now: .seconds(1)) }
        #expect(code { try budget.take(place, now: .seconds(1)) } == .requestRateLimited)
        #expect(code { try budget.take(AddressBudget.place(of: "192.0.2.2"), now: .seconds(1)) } == nil)
        #expect(code { try budget.take(place, now: .seconds(2)) } == nil)
        #expect(AddressBudget.place(of: "::ffff:192.0.2.1") == place)
        #expect(AddressBudget.place(of: "2001:db8::1") == AddressBudget.place(of: "2001:db8::ffff:1"))
        #expect(AddressBudget.place(of: "2001:db8:0:1::1") != AddressBudget.place(of: "2001:db8::1"))
        // At identity's door.
        let client = try house.cloud.makeClient()
        client.policy.waitMax = .zero
        let secret = try house.makeAppToken().secret
        var refusal: CloudError.Code?
        for _ in 0..<230 where refusal == nil {
            refusal = code { _ = try house.publicToken(secret, by: client) }
        }
        #expect(refusal == .requestRateLimited)
        #expect(code { _ = try house.stranger(secret) } == nil)
    }

    @Test func allKeysOfOneAddressHaveOneBudgetInAService() throws {
        var budgets = BudgetConfiguration()
        budgets.device = BudgetConfiguration.Limit(capacity: 20, refillPerSecond: 1)
        budgets.account = BudgetConfiguration.Limit(capacity: 60, refillPerSecond: 1)
        let house = try PublicHouse(budgets: budgets)
        let here = try house.device()
        try here.save("a")
        let secret = try house.makeAppToken().secret
        var served = 0
        var refusal: CloudError?
        let first = try house.stranger(secret)
        for _ in 0..<12 where refusal == nil {
            let stranger = try house.stranger(secret, besides: first)
            stranger.client.policy.waitMax = .zero
            // As many as a key has by itself, and no more.
            for number in 0..<15 {
                do {
                    _ = try stranger.fetch(["a"])
                    served += 1
                } catch {
                    // A key that has not asked yet is refused for what the others of its address have asked.
                    refusal = number == 0 ? CloudError(wrapping: error) : refusal
                    break
                }
            }
        }
        #expect(refusal?.code == .requestRateLimited && refusal?.details["budget"] == "account")
        #expect((30...80).contains(served))
        // Whoever has an account has their own, and so has another address.
        #expect(try here.fetch(["a"]).count == 1)
        #expect(try house.stranger(secret).fetch(["a"]).count == 1)
    }

    @Test func aHundredFollowersOfSeveralAccountsAreToldOfOneSaveByOneDelivery() throws {
        for number in 0..<4 { try house.cloud.createAccount("reader-\(number)") }
        // The plan's room is asked for with the first.
        try here.save("first")
        let secret = try house.makeAppToken().secret
        var followers = try (0..<20).map { number in
            number % 5 == 4 ? try house.stranger(secret) : try house.device("reader-\(number % 5)")
        }
        try subscribe(followers[0])
        try subscribe(followers[4])
        house.cloud.network.run(for: .seconds(6))
        let asked = house.cloud.requestCount(.records)
        for follower in followers where follower !== followers[0] && follower !== followers[4] {
            try subscribe(follower)
        }
        // Its service was asked once for all accounts, and once for all without.
        #expect(house.cloud.requestCount(.records) == asked)
        while followers.count < 100 {
            let follower = try house.stranger(secret)
            try subscribe(follower)
            followers.append(follower)
        }
        #expect(house.cloud.requestCount(.records) == asked)
        try here.save("a", ["title": .string("Sea")])
        house.cloud.network.run(for: .seconds(1))
        #expect(house.cloud.requestCount(.records) == asked + 1)
        for follower in followers {
            #expect(follower.client.notifications.flatMap(\.changes).map(\.item) == ["a"])
        }
        // What not everyone may read is delivered to nobody.
        try house.setRoles(of: "Report", everyone: .none)
        _ = try here.modify([.save("secret", type: "Report")])
        house.cloud.network.run(for: .seconds(1))
        for follower in followers { #expect(follower.client.notifications.flatMap(\.changes).count == 1) }
    }
}
