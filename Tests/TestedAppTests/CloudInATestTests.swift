import Foundation
import NephosKit
import NephosTestKit
import Testing

/// The cloud's time, its network and its seeds.
@Suite struct CloudInATestTests {
    @Test func timeStandsStillBetweenThoseWhoWait() async throws {
        let cloud = try await TestCloud()
        let store = try await cloud.openSession(account: "anna").keyValueStore()
        try await cloud.settle()
        let (before, history) = (cloud.now, cloud.history)
        try store.set("x", forKey: "k")
        try await Task.sleep(for: .milliseconds(30))
        #expect(cloud.now == before && cloud.history == history)
        await cloud.advance(by: .seconds(3600))
        #expect(cloud.now.since(before) == .seconds(3600))
    }

    @Test func aWaitEndsWithWhatItWaitedFor() async throws {
        let cloud = try await TestCloud()
        let session = try await cloud.openSession(account: "anna", device: "phone")
        let store = try session.keyValueStore()
        try await store.ready()
        cloud.disconnect(session)
        try store.set("x", forKey: "k")
        let before = cloud.now
        let error = await #expect(throws: CloudError.self) { try await store.waitUntilSent(timeout: .seconds(45)) }
        #expect(error?.code == .deadlineExceeded)
        #expect(cloud.now.since(before) >= .seconds(45) && cloud.now.since(before) < .seconds(46))
        cloud.connect(session)
        try await store.waitUntilSent(timeout: .seconds(3600))
        #expect(cloud.now.since(before) < .seconds(300))
    }

    @Test func aTestMayHoldTheTimeWhileItsAppWaits() async throws {
        let cloud = try await TestCloud(waitingPassesTime: false)
        try cloud.createAccount("anna")
        let session = try await cloud.openSession(device: "phone")
        let signIn = Task {
            try await session.signIn(
                connection: cloud.connectionString, account: "anna", password: TestCloud.password)
        }
        try await Task.sleep(for: .milliseconds(20))
        #expect(try session.account == nil)
        // However late the task begins.
        while try session.account == nil {
            await cloud.advance(by: .milliseconds(100))
            await Task.yield()
        }
        #expect(try await signIn.value.accountName == "anna")
    }

    /// What happens with a seed.
    private func history(_ seed: UInt64) async throws -> String {
        let cloud = try await TestCloud(seed: seed, network: .bad)
        var stores: [KeyValueStore] = []
        for _ in 0..<3 { stores.append(try await cloud.openSession(account: "anna").keyValueStore()) }
        for round in 0..<12 {
            try stores[round % 3].set(round, forKey: "k\(round % 5)")
            if round == 5 { cloud.crash(.keyValue) }
            if round == 7 { try cloud.start(.keyValue) }
            await cloud.advance(by: .milliseconds(150))
        }
        try await cloud.settle()
        let contents = stores.map { $0.dictionaryRepresentation.sorted { $0.key < $1.key } }
        #expect(contents.allSatisfy { "\($0)" == "\(contents[0])" })
        return "\(cloud.history) \(contents[0])"
    }

    @Test func theSameSeedGivesTheSameHistory() async throws {
        var histories: Set<String> = []
        for seed: UInt64 in [1, 2, 3] {
            let (first, second) = (try await history(seed), try await history(seed))
            #expect(first == second)
            histories.insert(first)
        }
        #expect(histories.count == 3)
    }

    @Test func whatIsSeparatedComesTogetherWhenItIsJoined() async throws {
        let cloud = try await TestCloud()
        let phone = try await cloud.openSession(account: "anna", device: "phone")
        let laptop = try await cloud.openSession(account: "anna", device: "laptop")
        try await cloud.settle()
        cloud.separate([phone], from: [.keyValue])
        try phone.keyValueStore().set("x", forKey: "k")
        try laptop.keyValueStore().set("y", forKey: "l")
        let error = await #expect(throws: NotSettled.self) { try await cloud.settle(within: .seconds(60)) }
        #expect(error?.left.isEmpty == false)
        #expect(try phone.keyValueStore()["l"] == nil || laptop.keyValueStore()["k"] == nil)
        // Identity is not among what it cannot reach.
        #expect(try await phone.whoAmI().accountName == "anna")
        cloud.joinAll()
        try await cloud.settle()
        for session in [phone, laptop] {
            #expect(try session.keyValueStore().dictionaryRepresentation == ["k": "x", "l": "y"])
        }
    }

    /// One device believes to be in step, and nobody else is there to compare it with.
    @Test func nothingIsSettledThatADeviceHasNotHeardOf() async throws {
        let cloud = try await TestCloud()
        let phone = try await cloud.openSession(account: "anna", device: "phone")
        let laptop = try await cloud.openSession(account: "anna", device: "laptop")
        try await cloud.settle()
        try cloud.faults.fail("notifications.send", times: .max)
        let store = try phone.keyValueStore()
        try store.set("x", forKey: "k")
        try await store.waitUntilSent()
        phone.close()
        #expect(try laptop.keyValueStore()["k"] == nil)
        let error = await #expect(throws: NotSettled.self) { try await cloud.settle(within: .milliseconds(100)) }
        #expect(error?.description.contains("laptop") == true)
        try cloud.faults.clear()
        try await cloud.settle()
        #expect(try laptop.keyValueStore().string(forKey: "k") == "x")
    }

    /// Heartbeats are always on their way then, and bring nothing new.
    @Test(arguments: [1, 2]) func aSlowLineSettles(seconds: Int) async throws {
        let latency = Duration.milliseconds(900 * seconds)...(.seconds(seconds))
        let cloud = try await TestCloud(network: NetworkConditions(latency: latency))
        var stores: [KeyValueStore] = []
        for _ in 0..<6 { stores.append(try await cloud.openSession(account: "anna").keyValueStore()) }
        try await cloud.settle()
        try stores[0].set("x", forKey: "k")
        let before = cloud.now
        try await cloud.settle()
        #expect(stores.allSatisfy { $0.string(forKey: "k") == "x" })
        #expect(cloud.now.since(before) < .seconds(60))
    }

    @Test func aDeviceThatIsRevokedHasHeardOfItWhenAllIsSettled() async throws {
        let cloud = try await TestCloud()
        let phone = try await cloud.openSession(account: "anna", device: "phone")
        let laptop = try await cloud.openSession(account: "anna", device: "laptop")
        try await cloud.settle()
        try await phone.revoke(try #require(try laptop.account?.deviceID))
        try await cloud.settle()
        #expect(try await laptop.keyValueStore().status().problem?.code == .deviceRevoked)
    }

    @Test func aRefusedWriteIsToldAndSettled() async throws {
        let cloud = try await TestCloud()
        let phone = try await cloud.openSession(account: "anna", device: "phone").keyValueStore()
        let laptop = try await cloud.openSession(account: "anna", device: "laptop")
        try await cloud.settle()
        cloud.disconnect(laptop)
        let store = try laptop.keyValueStore()
        let half = String(repeating: "x", count: 600_000)
        try store.set(half, forKey: "theirs")
        try phone.set(half, forKey: "mine")
        try await phone.waitUntilSent()
        cloud.connect(laptop)
        try await cloud.settle()
        #expect(try await store.status().refused.map(\.key) == ["theirs"])
        #expect(store.dictionaryRepresentation.keys.sorted() == ["mine"])
    }

    @Test func aWrongClockIsTheDevicesOwn() async throws {
        let cloud = try await TestCloud()
        let phone = try await cloud.openSession(account: "anna", device: "phone")
        let laptop = try await cloud.openSession(account: "anna", device: "laptop")
        try await cloud.settle()
        cloud.setClock(of: phone, ahead: .seconds(-3600))
        try laptop.keyValueStore().set("earlier", forKey: "k")
        try await cloud.settle()
        try phone.keyValueStore().set("later", forKey: "k")
        try await cloud.settle()
        // It has seen the earlier one, so its own is newer whatever its clock says.
        #expect(try laptop.keyValueStore().string(forKey: "k") == "later")
        let pending = try await phone.keyValueStore().status()
        #expect(pending.isInSync)
    }

    @Test func accountsAndAppsAreApart() async throws {
        let cloud = try await TestCloud()
        let app = AppID("T.notes")
        try cloud.createApp(app)
        let anna = try await cloud.openSession(account: "anna").keyValueStore()
        let notes = try await cloud.openSession(account: "anna", app: app).keyValueStore()
        let bert = try await cloud.openSession(account: "bert", password: "another long password").keyValueStore()
        try anna.set("anna's", forKey: "k")
        try await cloud.settle()
        #expect(notes["k"] == nil && bert["k"] == nil && notes.app == app)
        let error = #expect(throws: CloudError.self) { try cloud.createAccount("bert") }
        #expect(error != nil)
    }

    @Test func homesAreGoneWithTheirCloud() async throws {
        var cloud: TestCloud? = try await TestCloud()
        let session = try await cloud?.openSession(account: "anna", device: "phone")
        let home = try #require(session?.home)
        #expect(FileManager.default.fileExists(atPath: home.path))
        cloud = nil
        #expect(!FileManager.default.fileExists(atPath: home.path))
        // Who still holds a session is told, and nothing hangs.
        let error = await #expect(throws: CloudError.self) { _ = try await session?.whoAmI() }
        #expect(error?.code == .operationCancelled)
    }

    @Test func aNameThatTheCloudMakesUpIsNobodysElse() async throws {
        let cloud = try await TestCloud()
        let named = try await cloud.openSession(account: "anna", device: "device-0")
        let other = try await cloud.openSession(account: "anna")
        #expect(cloud.name(of: other) != cloud.name(of: named))
    }

    @Test func aDevicesNameIsAName() async throws {
        let cloud = try await TestCloud()
        for name in ["", "../phone", "a b", "content", "keyvalue/x", "keyvalue"] {
            await #expect(throws: CloudError.self) { try await cloud.openSession(device: name) }
        }
    }

    @Test func allFiveServicesAreThere() async throws {
        let cloud = try await TestCloud()
        let session = try await cloud.openSession(account: "anna")
        let storage = try await session.storage()
        #expect(Set(storage.services.map(\.service)) == [.keyValue, .documents, .records])
        for service in [ServiceName.identity, .keyValue, .notifications, .documents, .records] {
            cloud.crash(service)
            try cloud.start(service)
        }
        try await cloud.settle()
    }
}

/// A test of an app makes many clouds, and closes each or lets it go.
@Suite struct LettingGoTests {
    @Test(arguments: [true, false])
    func aCloudThatNobodyHoldsIsGone(_ isClosed: Bool) async throws {
        weak var session: Session?
        // Held by all that is in the cloud.
        weak var faults: FaultPlan?
        try await {
            let cloud = try await TestCloud()
            faults = cloud.faults
            let opened = try await cloud.openSession(account: "anna")
            session = opened
            try opened.keyValueStore().set("x", forKey: "k")
            try await cloud.settle()
            if isClosed {
                opened.close()
                cloud.close()
            }
        }()
        // Whatever the cloud's own thread does last.
        for _ in 0..<5000 where session != nil || faults != nil { try await Task.sleep(for: .milliseconds(1)) }
        #expect(session == nil)
        #expect(faults == nil)
    }
}
