import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Synchronization
import Testing

@testable import NephosKit

/// What the processes of a home know of each other, while one of them comes, goes, or has another session.
@Suite struct HomeRoleTests {
    private func makeHome(_ cloud: TestCloud, fault: (@Sendable (String) throws -> Void)? = nil) throws -> [TestDevice]
    {
        let first = try cloud.addDevice(isShared: true, fault: fault)
        return [first, try cloud.addProcess(of: first)]
    }

    @Test func whatAClientWritesAsItStartsIsSentAtOnce() throws {
        let cloud = try TestCloud(seed: 1)
        defer { cloud.close() }
        let first = try cloud.addDevice(isShared: true)
        let other = try cloud.addDevice()
        #expect(cloud.settle())
        cloud.network.run(for: .milliseconds(2300))
        let second = try cloud.addProcess(of: first)
        try second.store?.set(.integer(1), forKey: "early")
        #expect(cloud.network.run(within: .milliseconds(100)) { other.values["early"] != nil })
    }

    @Test func whatIsWrittenWhileAClientStartsIsSeenByItAtOnce() throws {
        let cloud = try TestCloud(seed: 2)
        defer { cloud.close() }
        let first = try cloud.addDevice(isShared: true)
        #expect(cloud.settle())
        let second = try cloud.addProcess(of: first)
        // It is not known to the leader yet.
        try first.engine?.changeSession { session, _ in session.deviceName = "renamed" }
        #expect(cloud.network.run(within: .milliseconds(50)) { second.session?.deviceName == "renamed" })
    }

    @Test func whatAClientHastensAsItStartsIsHastened() throws {
        let cloud = try TestCloud(seed: 3)
        defer { cloud.close() }
        let first = try cloud.addDevice(isShared: true)
        #expect(cloud.settle())
        cloud.crash(.keyValue)
        try first.store?.set(.integer(1), forKey: "late")
        cloud.network.run(for: .seconds(300))
        try cloud.start(.keyValue)
        let second = try cloud.addProcess(of: first)
        second.store?.driver.synchronize()
        #expect(cloud.network.run(within: .seconds(3)) { (try? first.store?.status().pending.isEmpty) == true })
    }

    @Test func noticesOfThePlanAreToldOnceAndOfNoOtherAccount() throws {
        let warehouses = Warehouses()
        let cloud = try TestCloud(seed: 4, factories: warehouses.factories)
        defer { cloud.close() }
        try cloud.savePlan("small", bytes: 1000)
        let owner = Owner(try cloud.createAccount("ann", plan: "small"))
        try cloud.createAccount("bob", plan: "small")
        let first = try cloud.addDevice(to: "ann", isShared: true)
        let second = try cloud.addProcess(of: first)
        cloud.network.run(for: .seconds(2))
        var isStored = false
        warehouses[.documents]?.store(1, 850, for: owner) { isStored = $0 == nil }
        #expect(cloud.network.run(within: .seconds(60)) { isStored && !second.storageNotices.isEmpty })
        first.stop()
        cloud.network.run(for: .seconds(10))
        #expect(second.engine?.home.role == .leader && second.storageNotices.map(\.level) == [80])
        try first.start()
        cloud.network.run(for: .seconds(5))
        try second.signIn(as: "bob")
        cloud.network.run(for: .seconds(1))
        let late = try cloud.addProcess(of: first)
        cloud.network.run(for: .seconds(5))
        #expect(late.storageNotices.isEmpty)
    }

    @Test func whatTheLeaderLearnsOfTheClockItsClientsKnow() throws {
        let cloud = try TestCloud(seed: 6)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        #expect(cloud.settle())
        processes[0].setClockOffset(.seconds(7200))
        try processes[0].store?.set(.integer(1), forKey: "a")
        #expect(cloud.settle())
        cloud.network.run(for: .milliseconds(100))
        let learned = try processes.map { try #require($0.engine?.serverTime.offset) }
        #expect(learned[0] < .seconds(-7000) && learned[1] == learned[0])
    }

    /// Also where the leader itself has nothing to write.
    @Test func aSignOutByAClientIsSeenByTheOthersAtOnce() throws {
        let cloud = try TestCloud(seed: 7)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        let third = try cloud.addProcess(of: processes[0])
        #expect(cloud.settle())
        try processes[1].signOut()
        #expect(cloud.network.run(within: .milliseconds(50)) { third.session?.signedIn == false })
    }

    @Test func whoHasWaitedKnowsWhatCame() throws {
        let cloud = try TestCloud(seed: 8)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        let other = try cloud.addDevice()
        #expect(cloud.settle())
        cloud.crash(.notifications)
        cloud.network.run(for: .milliseconds(100))
        try other.store?.set(.integer(1), forKey: "theirs")
        cloud.network.run(for: .seconds(1))
        let told = Outcome()
        var atEnd: [[ItemName]] = []
        try #require(processes[1].store).driver.wait(for: nil, timeout: .seconds(10)) {
            told.result = $0
            atEnd = processes[1].changes.map(\.changedKeys)
        }
        #expect(cloud.network.run(within: .seconds(10)) { told.result != nil })
        #expect(atEnd.last == ["theirs"])
    }

    @Test func whatAClientWroteLastIsSentAtOnce() throws {
        let cloud = try TestCloud(seed: 9)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        let other = try cloud.addDevice()
        #expect(cloud.settle())
        try processes[1].store?.set(.integer(1), forKey: "last")
        processes[1].stop()
        #expect(cloud.network.run(within: .milliseconds(100)) { other.values["last"] != nil })
    }

    @Test func whoWaitsNoMoreIsForgottenByTheLeader() throws {
        let cloud = try TestCloud(seed: 10)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        #expect(cloud.settle())
        cloud.crash(.keyValue)
        let drivers = try processes.map { try #require($0.store).driver }
        try processes[1].store?.set(.integer(1), forKey: "a")
        let number = drivers[1].wait(for: .sent, timeout: .seconds(1000)) { _ in }
        cloud.network.run(for: .milliseconds(100))
        #expect(drivers[0].sync.waiters.count == 1)
        drivers[1].endWaiter(number, .failure(CloudError(.operationCancelled, "Nobody waits.")))
        cloud.network.run(for: .milliseconds(100))
        #expect(drivers[0].sync.waiters.isEmpty)
        drivers[1].wait(for: .sent, timeout: .seconds(1000)) { _ in }
        cloud.network.run(for: .milliseconds(100))
        #expect(drivers[0].sync.waiters.count == 1)
        processes[1].stop()
        cloud.network.run(for: .milliseconds(100))
        #expect(drivers[0].sync.waiters.isEmpty)
    }

    /// A leader may take a client for one that has ended, where it cannot see which processes there are.
    @Test func removedWantsAreWrittenAgain() throws {
        let cloud = try TestCloud(seed: 14)
        defer { cloud.close() }
        let other = try cloud.addDevice()
        let home = try makeHome(cloud)
        #expect(cloud.settle())
        cloud.network.run(for: .milliseconds(100))
        try home[0].local.write { _ = try Want.deleteAll($0) }
        cloud.network.run(for: .seconds(2))
        #expect(try home[0].local.read { try Want.fetchCount($0) } == 1)
        #expect(home[1].engine?.home.role == .client)
        try other.store?.set(.integer(1), forKey: "later")
        #expect(cloud.network.run(within: .seconds(2)) { home[1].values["later"] != nil })
    }

    @Test func rowsForOtherProcessesAreThereAsLongAsThereAreAny() throws {
        let cloud = try TestCloud(seed: 13)
        defer { cloud.close() }
        let first = try cloud.addDevice(isShared: true)
        func rows() throws -> [Int] {
            try first.local.read { [try Want.fetchCount($0), try LeaderStanding.fetchCount($0)] }
        }
        try first.store?.set(.integer(1), forKey: "a")
        #expect(cloud.settle())
        #expect(try rows() == [0, 0])
        let second = try cloud.addProcess(of: first)
        #expect(cloud.settle())
        cloud.network.run(for: .milliseconds(100))
        #expect(try rows() == [1, 1])
        second.stop()
        cloud.network.run(for: .milliseconds(100))
        #expect(try rows() == [0, 0])
        // What a home's image has of processes that were there then.
        try first.local.write { database in
            let scope = ScopeID(app: AppID("another"), service: .keyValue)
            try Want(process: "gone", reader: 1, waiter: 0, scope: scope, goal: .open).insert(database)
            try LeaderStanding(scope: scope).insert(database)
        }
        first.stop()
        try first.start()
        cloud.network.run(for: .milliseconds(100))
        #expect(try rows() == [0, 0])
    }

    /// It has nothing new to say when it goes on.
    @Test func aLeaderThatWasStoppedSaysAgainWhereItStands() throws {
        let cloud = try TestCloud(seed: 11)
        defer { cloud.close() }
        let processes = try makeHome(cloud)
        #expect(cloud.settle())
        cloud.network.stall(processes[0].name, for: .seconds(4))
        cloud.network.run(for: .milliseconds(3900))
        #expect(processes[1].engine?.home.role == .alone)
        cloud.network.run(for: .milliseconds(300))
        #expect(processes[1].engine?.home.role == .client)
        #expect(try processes[1].store?.status().isInSync == true)
    }

    @Test func whatIsSaidOfAnotherSignInIsNotBelieved() throws {
        let cloud = try TestCloud(seed: 12)
        defer { cloud.close() }
        let client = try makeHome(cloud)[1]
        #expect(cloud.settle())
        let driver = try #require(client.store).driver
        #expect(try driver.status().isInSync)
        try client.engine?.changeSession { session, _ in session.secrets = "another" }
        #expect(try !driver.status().isInSync && driver.status().isFollowing == false)
    }

    private final class Outcome {
        var result: Result<Void, CloudError>?
    }

    /// The leader cannot read who has signed in, and has nothing of that account that waits.
    @Test func whatAnotherAccountHasSentIsNotTakenForOnesOwn() throws {
        let cloud = try TestCloud(seed: 5)
        defer { cloud.close() }
        try cloud.createAccount("other")
        let fails = Fault()
        let processes = try makeHome(cloud) { name in
            if fails.areOn, name == "read" { throw POSIXError(.EIO) }
        }
        let neighbour = try cloud.addDevice()
        #expect(cloud.settle())
        fails.areOn = true
        try processes[1].signIn(as: "other")
        let friend = try cloud.addDevice(to: "other")
        try processes[1].store?.set(.integer(1), forKey: "a")
        let sent = Outcome()
        processes[1].store?.driver.wait(for: .sent, timeout: .seconds(30)) { sent.result = $0 }
        cloud.network.run(for: .milliseconds(1))
        fails.areOn = false
        try neighbour.store?.set(.integer(1), forKey: "elsewhere")
        #expect(cloud.network.run(within: .seconds(10)) { sent.result != nil })
        #expect(throws: Never.self) { try sent.result?.get() }
        #expect(cloud.network.run(within: .milliseconds(300)) { friend.values["a"] == .integer(1) })
    }

    private final class Fault: Sendable {
        private let value = Atomic<Bool>(false)
        var areOn: Bool {
            get { value.load(ordering: .relaxed) }
            set { value.store(newValue, ordering: .relaxed) }
        }
    }
}
