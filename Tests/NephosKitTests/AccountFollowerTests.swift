import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

@Suite struct AccountFollowerTests {
    @Test func thePlanIsFollowedAgainAfterIdentityWasAwayForLongerThanATokenLives() throws {
        let device = try Device()
        var (isAway, followed) = (true, 0)
        device.cloud.overrides["Subscribe"] = { request in
            guard let wire = try? request.body.decode(WireSubscribe.self), wire.scopes.first?.service == "identity"
            else { return nil }
            guard !isAway else { return .failure(CloudError(.serviceUnavailable, "Away.")) }
            guard request.accessToken != "access-1" else { return .failure(CloudError(.tokenExpired, "Old.")) }
            followed += 1
            return nil
        }
        device.cloud.lifetime = 60_000
        try device.signIn()
        // The connection stays.
        func pass(seconds: Int) {
            for _ in 0..<(seconds / 4) {
                device.network.run(for: .seconds(4))
                device.cloud.deliver { ($0.heartbeat, $0.scopeCount) = (true, 10) }
            }
        }
        pass(seconds: 200)
        #expect(followed == 0)
        isAway = false
        pass(seconds: 32)
        #expect(followed == 1)
        pass(seconds: 60)
        #expect(followed == 1)
    }

    @Test func aStoresNextTokenFollowsThePlanAtOnce() throws {
        let device = try Device()
        var tokens: [String] = []
        device.cloud.overrides["Subscribe"] = { request in
            guard let wire = try? request.body.decode(WireSubscribe.self), wire.scopes.first?.service == "identity"
            else { return nil }
            tokens.append(request.accessToken)
            return request.accessToken == "access-1" ? .failure(CloudError(.permissionFailure, "Not this.")) : nil
        }
        device.cloud.lifetime = 60_000
        try device.signIn()
        // The connection stays, and the next attempt would be after a minute.
        for _ in 0..<12 {
            device.network.run(for: .seconds(4))
            device.cloud.deliver { ($0.heartbeat, $0.scopeCount) = (true, 10) }
        }
        #expect(tokens == ["access-1", "access-1", "access-2"])
    }

    /// A cloud whose identity says how full the plan is.
    private final class Plan {
        var level: UInt32 = 80
        var isAway = false
        var reads = 0
        /// Called once the next answer is made, and before it is sent.
        var answered: (() -> Void)?
        /// As notifications has it.
        var head = WireScopeHead()

        init(_ cloud: ScriptedCloud) {
            head.service = "identity"
            head.owner = cloud.account
            head.scope = "account"
            cloud.overrides["Subscribe"] = { [unowned self] request in
                guard let wire = try? request.body.decode(WireSubscribe.self), wire.scopes.first?.service == "identity"
                else { return nil }
                var reply = WireSubscribeReply()
                reply.heartbeatMilliseconds = 5000
                reply.heads = [head]
                return .success(Frame(encoding: reply))
            }
            cloud.overrides["ReadStorage"] = { [unowned self] _ in
                reads += 1
                guard !isAway else { return .failure(CloudError(.serviceUnavailable, "Away.")) }
                var reply = WireReadStorageReply()
                reply.plan.sizeBytes = 1000
                reply.level = level
                answered?()
                answered = nil
                return .success(Frame(encoding: reply))
            }
        }

        func notice(level: UInt32, _ cloud: ScriptedCloud) throws -> WireNotification {
            var notice = WireNotification()
            (notice.service, notice.owner, notice.scope) = ("identity", cloud.account, "account")
            notice.token = head.token
            notice.changes = [WireChange()]
            notice.changes[0].item = "storage"
            var state = WireStorageState()
            (state.planBytes, state.level) = (1000, level)
            notice.changes[0].body = try state.serializedData()
            return notice
        }
    }

    /// What was read before it is not told after it.
    @Test func aNoticeIsNewerThanWhatWasAskedBeforeIt() throws {
        let device = try Device()
        let plan = Plan(device.cloud)
        plan.head.token = WireChangeToken(ChangeToken(epoch: 1, sequence: 3))
        plan.level = 90
        let notice = try plan.notice(level: 95, device.cloud)
        plan.answered = {
            plan.level = 95
            device.cloud.deliver([notice])
        }
        try device.signIn()
        pass(seconds: 8, device)
        #expect(device.storageNotices.map(\.level) == [95])
        #expect(plan.reads == 2)
    }

    /// The connection stays.
    private func pass(seconds: Int, _ device: Device, _ edit: (inout WireDelivery) -> Void = { _ in }) {
        for _ in 0..<(seconds / 4) {
            device.network.run(for: .seconds(4))
            device.cloud.deliver {
                ($0.heartbeat, $0.scopeCount) = (true, 10)
                edit(&$0)
            }
        }
    }

    @Test func whatThePlanIsWhenNobodyKnewItIsAskedUntilItIsAnswered() throws {
        let device = try Device()
        let plan = Plan(device.cloud)
        (plan.head.unknown, plan.isAway) = (true, true)
        try device.signIn()
        pass(seconds: 120, device)
        // Each is repeated for as long as a call takes, and then rests.
        #expect(device.storageNotices.isEmpty && (1...40).contains(plan.reads))
        plan.isAway = false
        pass(seconds: 60, device)
        #expect(device.storageNotices.map(\.level) == [80])
        let reads = plan.reads
        pass(seconds: 60, device)
        #expect(plan.reads == reads)
    }

    @Test func aHeadOfThePlanIsFetchedOnce() throws {
        let device = try Device()
        let plan = Plan(device.cloud)
        // Nothing was ever said.
        try device.signIn()
        pass(seconds: 8, device)
        #expect(plan.reads == 0)
        plan.head.token = WireChangeToken(ChangeToken(epoch: 1, sequence: 3))
        for level in [95, 100] {
            plan.level = UInt32(level)
            // With each heartbeat, as it is said where nobody knows what a device has heard.
            pass(seconds: 20, device) { $0.heads = [plan.head] }
            #expect(device.storageNotices.last?.level == level)
            plan.head.token.sequence += 1
        }
        #expect(plan.reads == 2 && device.storageNotices.map(\.level) == [95, 100])
        // What the next notice says, nobody has to ask for.
        device.cloud.deliver([try plan.notice(level: 90, device.cloud)])
        pass(seconds: 8, device) { $0.heads = [plan.head] }
        #expect(plan.reads == 2 && device.storageNotices.last?.level == 90)
    }

    @Test(arguments: [false, true])
    func whatADeviceThatLaggedHasMissedOfThePlanIsFetched(hasHeads: Bool) throws {
        let device = try Device()
        let plan = Plan(device.cloud)
        plan.head.token = WireChangeToken(ChangeToken(epoch: 1, sequence: 3))
        try device.signIn()
        device.network.run(for: .seconds(1))
        #expect(device.storageNotices.map(\.level) == [80])
        plan.level = 95
        device.cloud.deliver {
            $0.lagging = true
            if hasHeads { $0.heads = [plan.head] }
        }
        device.network.run(for: .seconds(1))
        #expect(device.storageNotices.map(\.level) == [80, 95])
    }

    /// As an app does that has opened its stores first.
    @Test(.timeLimit(.minutes(30))) func whoListensLateIsToldHowThePlanIs() async throws {
        try await withSessionCloud { house in
            let session = try await house.openSignedIn()
            @Sendable func tell(_ levels: [Int]) async throws {
                try await session.engine.perform { engine, completion in
                    for level in levels {
                        engine.home.hear(StorageNotice(planBytes: 100, usedBytes: UInt64(level), level: level))
                    }
                    completion(.success(()))
                }
            }
            let levels = try await house.wait {
                try await tell([80, 95])
                var levels: [Int] = []
                for await notice in session.storageNotices {
                    levels.append(notice.level)
                    guard levels.count < 2 else { break }
                    try await tell([100])
                }
                return levels
            }
            #expect(levels == [95, 100])
        }
    }
}
