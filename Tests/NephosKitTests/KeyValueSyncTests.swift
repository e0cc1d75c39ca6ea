import GRDB
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

@Suite struct KeyValueSyncTests {
    @Test func firstPullFinishesWithInitialSyncAlsoForAnEmptyStore() throws {
        let device = try Device()
        device.cloud.overrides["ReadChanges"] = { _ in .failure(CloudError(.internalError, "Not yet.")) }
        try device.signIn()
        #expect(try device.store.read("a") == .notDownloadedYet)
        device.cloud.overrides = [:]
        device.network.run(for: .seconds(5))
        #expect(try device.store.read("a") == .absent)
        #expect(device.changes.filter { $0.reason == .initialSyncChange }.count == 1)
        #expect(try device.store.status().initialSyncFinished)
    }

    @Test func aProcessThatSleptThroughMoreThanIsKeptReadsEverythingAgain() throws {
        let device = try Device.ready()
        try device.store.set(1, forKey: "a")
        device.network.run(for: .milliseconds(200))
        let scope = try #require(device.store.scope)
        try device.local.write { database in
            let store = StoreTransaction(database, scope)
            for _ in 0...News.entriesMax {
                try store.rows.tell(ChangeNotification(reason: .serverChange, changedKeys: []))
            }
            #expect(try Int.fetchOne(database, sql: "SELECT count(*) FROM news") == News.entriesMax)
        }
        device.store.foreignWrite()
        #expect(device.changes.first?.changedKeys == ["a"] && device.changes.first?.items.first?.value == 1)
    }

    @Test func whatIsLargeIsToldWithTheItemsAsTheyAreThen() throws {
        let device = try Device.ready()
        let large = PropertyValue.string(String(repeating: "x", count: News.itemBytesMax + 1))
        device.cloud.deliver([device.cloud.write("a", large, at: device.now)])
        device.network.run(for: .seconds(1))
        #expect(device.changes.map { $0.items.map(\.value) } == [[large]])
        let bytes = try device.local.read { try Int.fetchOne($0, sql: "SELECT max(length(notification)) FROM news") }
        #expect((bytes ?? .max) < 1000)
    }

    @Test func aRefusedWriteIsListedUntilItIsDismissed() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.quotaExceeded, "Too much.")) }
        for key: ItemName in ["a", "b"] { try device.store.set(1, forKey: key) }
        device.network.run(for: .seconds(1))
        device.cloud.overrides = [:]
        try device.restart()
        device.network.run(for: .seconds(5))
        #expect(try device.store.status().refused.map(\.key) == ["a", "b"])
        #expect(try !device.store.status().isInSync)
        #expect(try device.local.dismissRefused(["a", "c"], app: device.store.app) == ["a"])
        #expect(try device.store.status().refused.map(\.key) == ["b"])
        #expect(try device.local.dismissRefused(nil, app: device.store.app) == ["b"])
        #expect(try device.store.status().isInSync)
    }

    @Test func whatIsRefusedForItsTimeIsTriedAgainWithGrowingPausesWhenTheServerSaysNoTime() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.operationExpired, "Too old.")) }
        try device.store.set(1, forKey: "a")
        device.network.run(for: .seconds(600))
        #expect((5...30).contains(device.cloud.requests("PushKeys").count))
        #expect(Set(device.cloud.requests("PushKeys").map(\.id)).count == device.cloud.requests("PushKeys").count)
    }

    @Test func aFetchEndsAfterAllThatItBrought() throws {
        let device = try Device()
        try device.signIn()
        device.network.run(for: .seconds(5))
        #expect(device.changes.map(\.reason) == [.accountChange, .initialSyncChange])
        #expect(!device.changesAtFetches.isEmpty)
        #expect(device.changesAtFetches.allSatisfy { $0 == 2 })
    }

    @Test func writesAreHeldUntilTheFirstPull() throws {
        let device = try Device()
        device.cloud.overrides["ReadChanges"] = { _ in .failure(CloudError(.internalError, "Not yet.")) }
        try device.signIn()
        try device.store.set("mine", forKey: "a")
        device.network.run(for: .milliseconds(500))
        #expect(device.cloud.pushes().isEmpty)
        #expect(try device.store.read("a") == .value("mine"))
        device.cloud.overrides = [:]
        device.network.run(for: .seconds(5))
        #expect(device.cloud.items["a"]?.value == "mine")
    }

    @Test func acceptedWriteAdvancesTheHeadWithoutAPullAndWithoutAnEvent() throws {
        let device = try Device.ready()
        try device.store.set(1, forKey: "a")
        device.network.run(for: .milliseconds(200))
        #expect(try device.state().head == device.cloud.head)
        #expect(try device.state().digest == device.cloud.digest)
        #expect(device.cloud.requests("ReadChanges").isEmpty)
        #expect(device.changes.isEmpty)
        #expect(try device.store.status().isInSync)
    }

    @Test func offlineWritesAreKeptCoalescedAndSentLater() throws {
        let device = try Device.ready()
        device.cloud.online = false
        try device.store.set(0, forKey: "a")
        device.network.run(for: .milliseconds(50))
        for value in 1...10 { try device.store.set(.integer(Int64(value)), forKey: "a") }
        device.network.run(for: .seconds(20))
        try device.restart()
        let pending = try device.store.status().pending
        #expect(pending.count == 2)
        // Nothing was there to send them to.
        #expect(pending.allSatisfy { $0.attempts == 0 })
        device.cloud.online = true
        device.network.run(for: .seconds(90))
        #expect(device.cloud.items["a"]?.value == 10)
        #expect(try device.store.status().isInSync)
    }

    @Test func lostReplyIsRepeatedUnderTheSameOperationID() throws {
        let device = try Device.ready()
        device.cloud.lossy = ["PushKeys"]
        try device.store.set("x", forKey: "a")
        device.network.run(for: .seconds(11))
        try device.store.set("y", forKey: "a")
        device.cloud.lossy = []
        device.network.run(for: .seconds(30))
        let ids = device.cloud.requests("PushKeys").map(\.id)
        #expect(Set(ids).count == 2)
        #expect(ids.count > 2)
        #expect(device.cloud.head.sequence == 2)
        #expect(try device.store.read("a") == .value("y"))
        #expect(try device.store.status().isInSync)
    }

    @Test func notificationThatContinuesTheHeadIsAppliedWithoutAPull() throws {
        let device = try Device.ready()
        device.cloud.deliver([device.cloud.write("a", "theirs", at: device.now)])
        device.network.run(for: .milliseconds(20))
        #expect(try device.store.read("a") == .value("theirs"))
        #expect(device.changes.map(\.reason) == [.serverChange])
        #expect(device.changes.first?.changedKeys == ["a"])
        #expect(device.changes.first?.device == DeviceID("dev_other"))
        #expect(device.cloud.requests("ReadChanges").isEmpty)
    }

    @Test func gapIsFilledByAPull() throws {
        let device = try Device.ready()
        device.cloud.write("missed", 1, at: device.now)
        device.cloud.deliver([device.cloud.write("seen", 2, at: device.now)])
        device.network.run(for: .milliseconds(200))
        #expect(try device.store.dictionary() == ["missed": 1, "seen": 2])
        #expect(device.cloud.requests("ReadChanges").count == 1)
        #expect(try device.state().head == device.cloud.head)
    }

    @Test func overtakenNotificationsNeedNoPull() throws {
        let device = try Device.ready()
        let first = device.cloud.write("a", 1, at: device.now)
        let second = device.cloud.write("b", 2, at: device.now)
        device.cloud.deliver([second])
        device.network.run(for: .milliseconds(10))
        device.cloud.deliver([first])
        device.network.run(for: .milliseconds(200))
        #expect(try device.state().head == device.cloud.head)
        #expect(device.cloud.requests("ReadChanges").isEmpty)
    }

    @Test func heartbeatThatIsAheadCausesAPull() throws {
        let device = try Device.ready()
        device.cloud.write("a", 1, at: device.now)
        device.cloud.deliver { $0.heads = [device.cloud.scopeHead] }
        device.network.run(for: .milliseconds(100))
        #expect(try device.store.read("a") == .value(1))
    }

    @Test func supersededWriteAdoptsTheWinnerAndTellsTheApp() throws {
        let device = try Device.ready()
        device.cloud.write("a", "winner", at: device.now.advanced(by: .seconds(30)))
        try device.store.set("loser", forKey: "a")
        device.network.run(for: .milliseconds(300))
        #expect(try device.store.read("a") == .value("winner"))
        #expect(device.changes.map(\.changedKeys) == [["a"]])
        #expect(try device.store.status().isInSync)
    }

    @Test func quotaRefusalKeepsThePreviousValueAndTellsTheApp() throws {
        let device = try Device.ready()
        try device.store.set("before", forKey: "a")
        device.network.run(for: .milliseconds(200))
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.quotaExceeded, "Full.")) }
        try device.store.set("after", forKey: "a")
        device.network.run(for: .milliseconds(200))
        #expect(try device.store.read("a") == .value("before"))
        #expect(device.changes.map(\.reason) == [.quotaViolationChange])
        #expect(device.changes.first?.changedKeys == ["a"])
        let status = try device.store.status()
        #expect(status.pending.isEmpty)
        #expect(status.refused.map(\.key) == ["a"])
    }

    @Test func limitsAreCheckedBeforeAnythingIsStored() throws {
        let device = try Device.ready()
        #expect(throws: CloudError.self) {
            try device.store.set(1, forKey: ItemName(String(repeating: "k", count: 65)))
        }
        try device.store.set(.string(String(repeating: "x", count: 900_000)), forKey: "a")
        #expect(throws: CloudError.self) {
            try device.store.set(.string(String(repeating: "x", count: 200_000)), forKey: "b")
        }
        #expect(try device.store.read("b") == .absent)
        try device.store.set(nil, forKey: "a")
        try device.store.set(.string(String(repeating: "x", count: 200_000)), forKey: "b")
    }

    @Test func expiredOperationIsRenewedWithItsOriginalTime() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { [weak cloud = device.cloud] _ in
            cloud?.requests("PushKeys").count == 1 ? .failure(CloudError(.operationExpired, "Too old.")) : nil
        }
        try device.store.set(1, forKey: "a")
        device.network.run(for: .seconds(1))
        let requests = device.cloud.requests("PushKeys")
        #expect(requests.count == 2)
        #expect(Set(requests.map(\.id)).count == 2)
        #expect(Set(device.cloud.pushes().map(\.writes[0].timestamp)).count == 1)
    }

    @Test func rateLimitIsWaitedForWhileWritesCoalesce() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { _ in
            .failure(CloudError(.requestRateLimited, "Slowly.", retryAfter: .seconds(60)))
        }
        try device.store.set(0, forKey: "a")
        device.network.run(for: .milliseconds(200))
        device.cloud.overrides = [:]
        for value in 1...5 { try device.store.set(.integer(Int64(value)), forKey: "a") }
        device.network.run(for: .seconds(5))
        // What was sent stays as it is, under its id; what came after it is one write.
        let pending = try device.store.status().pending
        #expect(pending.count == 2)
        #expect(pending.first?.blocker == .server)
        #expect(pending.first?.nextAttempt != nil)
        #expect(device.cloud.requests("PushKeys").count == 1)
        device.network.run(for: .seconds(60))
        #expect(device.cloud.items["a"]?.value == 5)
        #expect(device.cloud.requests("PushKeys").count == 3)
    }

    /// Whatever it says, nothing waits for longer than an hour.
    @Test func aServerCannotPutAWriteOffForDays() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { _ in
            .failure(CloudError(.serviceBusy, "Later.", retryAfter: .seconds(30 * 86_400)))
        }
        try device.store.set(1, forKey: "a")
        device.network.run(for: .seconds(60))
        let count = device.cloud.requests("PushKeys").count
        device.cloud.overrides = [:]
        device.network.run(for: .seconds(3400))
        #expect(device.cloud.requests("PushKeys").count == count)
        device.network.run(for: .seconds(200))
        #expect(device.cloud.requests("PushKeys").count == count + 1)
        #expect(device.cloud.items["a"]?.value == 1)
    }

    @Test func whoWouldWaitInVainIsToldAtOnceAndSynchronizeTriesAgain() throws {
        let device = try Device.ready()
        let locked = CloudError(.accountTemporarilyUnavailable, "Locked.", retryAfter: .seconds(60))
        device.cloud.overrides = ["PushKeys": { _ in .failure(locked) }, "ReadChanges": { _ in .failure(locked) }]
        var results: [Result<Void, CloudError>] = []
        try device.store.set(1, forKey: "a")
        device.store.whenSent(timeout: .seconds(10)) { results.append($0) }
        device.store.whenCurrent(timeout: .seconds(10)) { results.append($0) }
        device.store.whenCurrent(timeout: .seconds(100)) { results.append($0) }
        device.network.run(for: .seconds(1))
        #expect(results.count == 2)
        for result in results {
            guard case .failure(let error) = result else { throw CloudError(.internalError, "It is locked.") }
            #expect(error == locked)
        }
        device.cloud.overrides = [:]
        device.network.run(for: .seconds(1))
        #expect(device.cloud.items["a"] == nil)
        device.store.synchronize()
        device.network.run(for: .seconds(1))
        #expect(device.cloud.items["a"]?.value == 1)
        #expect(results.count == 3 && (try? results.last?.get()) != nil)
    }

    /// Nobody tells a device whose account is unlocked, and nothing may have changed for it meanwhile.
    @Test func whatAnAccountsLockHeldUpGoesOutByItselfWithinItsPause() throws {
        let device = try Device.ready()
        let locked = CloudError(.accountTemporarilyUnavailable, "Locked.", retryAfter: .seconds(60))
        device.cloud.overrides = ["PushKeys": { _ in .failure(locked) }]
        try device.store.set(1, forKey: "a")
        device.network.run(for: .seconds(1))
        device.cloud.overrides = [:]
        device.network.run(for: .seconds(1))
        #expect(device.cloud.items["a"] == nil)
        device.network.run(for: .seconds(60))
        #expect(device.cloud.items["a"]?.value == 1)
    }

    @Test func smallBudgetSpacesWritesOut() throws {
        let device = try Device.ready()
        device.cloud.budget = Budget(capacity: 10, remaining: 3, refill: .seconds(2))
        try device.store.set(0, forKey: "a")
        device.network.run(for: .milliseconds(100))
        for value in 1...20 {
            try device.store.set(.integer(Int64(value)), forKey: "a")
            device.network.run(for: .milliseconds(100))
        }
        device.network.run(for: .seconds(10))
        #expect(device.cloud.items["a"]?.value == 20)
        #expect(device.cloud.requests("PushKeys").count <= 4)
    }

    @Test func transactionTravelsWhole() throws {
        let device = try Device.ready()
        try device.store.write([LocalWrite(key: "a", value: 1), LocalWrite(key: "b", value: 2)])
        try device.store.set(3, forKey: "a")
        device.network.run(for: .milliseconds(200))
        #expect(device.cloud.pushes().map { $0.writes.map(\.key) } == [["a", "b"], ["a"]])
        #expect(try device.store.dictionary() == ["a": 3, "b": 2])
    }

    @Test func expiredChangeTokenFetchesEverythingAndKeepsUnsentWrites() throws {
        let device = try Device.ready()
        try device.store.set("early", forKey: "c")
        device.network.run(for: .milliseconds(200))
        device.cloud.write("a", 1, at: device.now)
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.internalError, "Later.")) }
        try device.store.set("mine", forKey: "b")
        device.cloud.overrides["ReadChanges"] = { request in
            (try? request.body.decode(WireReadChanges.self))?.after.sequence == 0
                ? nil : .failure(CloudError(.changeTokenExpired, "Too old."))
        }
        device.store.pull()
        device.network.run(for: .milliseconds(200))
        #expect(try device.store.dictionary() == ["a": 1, "b": "mine", "c": "early"])
    }

    @Test func restoredServerIsOfferedWhatItLost() throws {
        let device = try Device.ready()
        try device.store.set("old", forKey: "kept")
        device.network.run(for: .milliseconds(200))
        let backup = device.cloud.items
        let sequence = device.cloud.head.sequence
        try device.store.set("lost", forKey: "new")
        device.network.run(for: .milliseconds(200))
        device.cloud.deliver([device.cloud.write("foreign", "lost too", at: device.now)])
        device.network.run(for: .milliseconds(200))
        let before = device.cloud.items
        device.cloud.restore(to: backup, sequence: sequence)
        device.cloud.deliver { $0.heads = [device.cloud.scopeHead] }
        device.network.run(for: .seconds(2))
        #expect(device.cloud.items.mapValues(\.value) == before.mapValues(\.value))
        #expect(device.cloud.items.mapValues(\.timestamp) == before.mapValues(\.timestamp))
        #expect(device.cloud.items["foreign"]?.deviceID == DeviceID("dev_other"))
        #expect(try device.state().digest == device.cloud.digest)
    }

    @Test func wrongDigestIsCuredByOneFullFetch() throws {
        let device = try Device.ready()
        try device.store.set(1, forKey: "a")
        device.network.run(for: .milliseconds(200))
        let scope = try #require(device.store.scope)
        try device.local.write { try $0.execute(sql: "UPDATE scopes SET digest = zeroblob(32)") }
        device.store.pull()
        device.network.run(for: .milliseconds(200))
        #expect(device.cloud.requests("ReadChanges").count == 2)
        #expect(try device.local.read { try StoreTransaction($0, scope).state().digest } == device.cloud.digest)
        #expect(try device.store.status().problem == nil)
    }

    @Test func lastingDifferenceIsReportedAfterOneFullFetch() throws {
        let device = try Device.ready()
        device.cloud.overrides["ReadChanges"] = { [weak cloud = device.cloud] request in
            var reply = WireReadChangesReply()
            reply.token = WireChangeToken(cloud?.head ?? .zero)
            reply.complete = (try? request.body.decode(WireReadChanges.self))?.after.sequence == 0
            return .success(Frame(encoding: reply))
        }
        device.store.pull()
        device.network.run(for: .milliseconds(500))
        #expect(device.cloud.requests("ReadChanges").count == 2)
        #expect(try device.store.status().problem?.code == .storeOutOfStep)
    }
}
