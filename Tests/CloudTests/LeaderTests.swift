import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// One process of a home speaks with the server for all of them.
@Suite struct LeaderTests {
    private func makeHome(_ cloud: TestCloud, _ count: Int = 2) throws -> [TestDevice] {
        let first = try cloud.addDevice(isShared: true)
        return try [first] + (1..<count).map { _ in try cloud.addProcess(of: first) }
    }

    private func roles(_ processes: [TestDevice]) -> [HomeRole?] { processes.map { $0.engine?.home.role } }

    private func wait(_ process: TestDevice, _ goal: ScopeWaiter.Goal?, within timeout: Duration) throws -> () ->
        Result<
            Void, CloudError
        >?
    {
        let outcome = Outcome()
        let driver = try #require(process.store).driver
        driver.wait(for: goal, timeout: timeout, isImpatient: true) { outcome.result = $0 }
        return { outcome.result }
    }

    private final class Outcome {
        var result: Result<Void, CloudError>?
    }

    @Test func aClientHasNoConnectionsOfItsOwn() throws {
        let cloud = try TestCloud(seed: 1)
        defer { cloud.close() }
        let processes = try makeHome(cloud, 3)
        let other = try cloud.addDevice()
        #expect(cloud.settle())
        #expect(roles(processes) == [.leader, .client, .client])
        for client in processes.dropFirst() {
            try client.store?.set(.string(client.name), forKey: ItemName(client.name))
        }
        #expect(cloud.network.run(within: .milliseconds(100)) { other.values.count == 2 })
        // Its leader is told first, and says so at once.
        try other.store?.set(.integer(1), forKey: "theirs")
        #expect(cloud.network.run(within: .milliseconds(100)) { processes.allSatisfy { $0.values["theirs"] != nil } })
        cloud.network.run(for: .milliseconds(20))
        for process in processes {
            #expect(process.changes.last?.changedKeys == ["theirs"])
            #expect(try process.store?.status().isInSync == true && process.store?.status().isFollowing == true)
        }
        for client in processes.dropFirst() { #expect(client.engine?.clients.isEmpty == true) }
    }

    @Test func whoWaitsInAClientIsToldWhatItsLeaderKnows() throws {
        let cloud = try TestCloud(seed: 2)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        #expect(cloud.settle())
        let current = try wait(processes[1], nil, within: .seconds(30))
        #expect(cloud.network.run(within: .seconds(1)) { current() != nil })
        #expect(throws: Never.self) { try current()?.get() }
        cloud.crash(.keyValue)
        try processes[1].store?.set(.integer(1), forKey: "a")
        let sent = try wait(processes[1], .sent, within: .seconds(30))
        #expect(cloud.network.run(within: .seconds(5)) { sent() != nil })
        #expect(throws: CloudError.self) { try sent()?.get() }
        // Why it waits is the same in both.
        cloud.network.run(for: .seconds(2))
        let reasons = try processes.map { try #require($0.store?.status().pending.first?.reason) }
        #expect(reasons[0] == reasons[1])
        #expect(try processes[0].store?.status().problem == processes[1].store?.status().problem)
        #expect(try processes[1].store?.status().problem != nil)
        try cloud.start(.keyValue)
        let again = try wait(processes[1], .sent, within: .seconds(60))
        #expect(cloud.network.run(within: .seconds(60)) { again() != nil })
        #expect(cloud.settle())
    }

    // What the leader found out a while ago is no answer to somebody who begins to wait now.
    @Test(arguments: [ScopeWaiter.Goal.sent, nil])
    func whatWasCuredIsTriedAnewForWhoeverBeginsToWait(_ goal: ScopeWaiter.Goal?) throws {
        let cloud = try TestCloud(seed: 8)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        #expect(cloud.settle())
        func setLocked(_ isLocked: Bool) throws {
            var request = WireLockAccount()
            request.accountName = TestCloud.accountName
            request.locked = isLocked
            try cloud.operate("LockAccount", request, as: WireLockAccountReply.self)
        }
        func found() throws -> CloudError.Code? { try processes[0].store?.status().problem?.code }
        try setLocked(true)
        try processes[1].store?.set(.integer(1), forKey: "a")
        processes[0].store?.pull()
        cloud.network.run(for: .seconds(20))
        #expect(try processes[1].store?.status().pending.count == 1)
        try setLocked(false)
        cloud.network.run(for: .milliseconds(100))
        // Nobody has said that it was cured.
        #expect(try found() == .accountTemporarilyUnavailable)
        let outcome = try wait(processes[1], goal, within: .seconds(30))
        #expect(cloud.network.run(within: .seconds(10)) { outcome() != nil })
        #expect(throws: Never.self) { try outcome()?.get() }
        #expect(try found() == nil)
    }

    @Test(arguments: 1...10) func aClientTakesOverAtOnce(_ seed: UInt64) throws {
        let cloud = try TestCloud(seed: seed)
        defer { cloud.close() }
        let processes = try makeHome(cloud, 3)
        let other = try cloud.addDevice()
        #expect(cloud.settle())
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(20)))
        try processes[1].store?.set(.integer(1), forKey: "a")
        let sent = try wait(processes[1], .sent, within: .seconds(30))
        let current = try wait(processes[2], nil, within: .seconds(30))
        cloud.network.run(for: .milliseconds(Int64(seed) * 3))
        processes[0].stop()
        cloud.network.run(for: .milliseconds(30))
        #expect(roles(Array(processes[1...])).filter { $0 == .leader }.count == 1)
        #expect(cloud.network.run(within: .seconds(5)) { sent() != nil && current() != nil })
        #expect(throws: Never.self) {
            try sent()?.get()
            try current()?.get()
        }
        #expect(other.values["a"] == .integer(1) || cloud.network.run(within: .seconds(2)) { !other.values.isEmpty })
        try processes[0].start()
        #expect(cloud.settle())
        #expect(processes[0].engine?.home.role == .client)
    }

    @Test func whoeverWaitsInAProcessThatEndsIsToldAndTheOthersWaitOn() throws {
        let cloud = try TestCloud(seed: 9)
        defer { cloud.close() }
        let processes = try makeHome(cloud, 3)
        #expect(cloud.settle())
        processes[0].setOffline(true)
        for process in processes { try process.store?.set(.string(process.name), forKey: ItemName(process.name)) }
        let waits = try processes.map {
            try (wait($0, nil, within: .seconds(60)), wait($0, .sent, within: .seconds(60)))
        }
        cloud.network.run(for: .seconds(1))
        func codes(_ process: Int) -> [CloudError.Code?] {
            [waits[process].0(), waits[process].1()].map { result in
                if case .failure(let error) = result { error.code } else { nil }
            }
        }
        // A client, and then the leader.
        for ending in [2, 0] {
            processes[ending].stop()
            #expect(codes(ending) == [.operationCancelled, .operationCancelled])
            cloud.network.run(for: .seconds(1))
            #expect(waits[1].0() == nil && waits[1].1() == nil)
        }
        processes[1].setOffline(false)
        #expect(cloud.network.run(within: .seconds(50)) { waits[1].0() != nil && waits[1].1() != nil })
        #expect(codes(1) == [nil, nil])
    }

    @Test func aLeaderThatDoesNotAnswerIsDoneWithout() throws {
        let cloud = try TestCloud(seed: 3)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        let other = try cloud.addDevice()
        #expect(cloud.settle())
        cloud.network.stall(processes[0].name, for: .seconds(60))
        try processes[1].store?.set(.integer(1), forKey: "a")
        try other.store?.set(.integer(2), forKey: "theirs")
        #expect(
            cloud.network.run(within: .seconds(5)) { other.values["a"] != nil && processes[1].values["theirs"] != nil })
        #expect(processes[1].engine?.home.role == .alone)
        cloud.network.run(for: .seconds(61))
        #expect(roles(processes) == [.leader, .client])
        #expect(cloud.settle())
    }

    @Test func aSignInByAClientIsTheWholeHomes() throws {
        let cloud = try TestCloud(seed: 4)
        defer { cloud.close() }
        try cloud.createAccount("other")
        let processes = try makeHome(cloud)
        #expect(cloud.settle())
        try processes[1].signIn(as: "other")
        let friend = try cloud.addDevice(to: "other")
        try friend.store?.set(.integer(1), forKey: "theirs")
        #expect(cloud.network.run(within: .seconds(1)) { processes.allSatisfy { $0.values["theirs"] != nil } })
        try processes[1].store?.set(.integer(2), forKey: "ours")
        #expect(cloud.network.run(within: .seconds(1)) { friend.values["ours"] != nil })
        try processes[1].signOut()
        cloud.network.run(for: .seconds(1))
        for process in processes { #expect(try process.store?.status().problem?.code == .notSignedIn) }
    }

    @Test func aFullPlanIsToldInEveryProcess() throws {
        let warehouses = Warehouses()
        let cloud = try TestCloud(seed: 5, factories: warehouses.factories)
        defer { cloud.close() }
        try cloud.savePlan("small", bytes: 1000)
        let owner = Owner(try cloud.createAccount("ann", plan: "small"))
        let first = try cloud.addDevice(to: "ann", isShared: true)
        let second = try cloud.addProcess(of: first)
        cloud.network.run(for: .seconds(2))
        var isStored = false
        warehouses[.documents]?.store(1, 850, for: owner) { isStored = $0 == nil }
        #expect(cloud.network.run(within: .seconds(60)) { isStored && !first.storageNotices.isEmpty })
        cloud.network.run(for: .milliseconds(50))
        #expect(second.storageNotices == first.storageNotices && second.storageNotices.map(\.level) == [80])
        let late = try cloud.addProcess(of: first)
        cloud.network.run(for: .seconds(1))
        #expect(late.storageNotices == first.storageNotices)
    }

    @Test func whatAClientOpensIsClosedWithIt() throws {
        let cloud = try TestCloud(seed: 6)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        #expect(cloud.settle())
        let scopes = { try processes[0].engine?.standings().count }
        #expect(try scopes() == 1)
        _ = processes[1].engine?.keyValue(AppID("another"))
        cloud.network.run(for: .seconds(1))
        #expect(try scopes() == 2)
        let waiting = try #require(processes[1].engine).keyValue(AppID("another")).driver
        waiting.wait(for: .downloaded, timeout: .seconds(100)) { _ in }
        cloud.network.run(for: .seconds(1))
        processes[1].stop()
        cloud.network.run(for: .seconds(1))
        #expect(try scopes() == 1)
        try processes[1].start()
        #expect(cloud.settle())
    }
}
