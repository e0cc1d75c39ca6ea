import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// What was begun under one sign-in does not go on under another.
@Suite struct SwitchedAccountTests {
    /// A device, and how another process of its home is made.
    private struct Home {
        let name = "nephos-switched-\(UUID().uuidString)"
        let secrets = MemorySecrets()
        let device: Device

        init() throws {
            device = try Device(local: try LocalStore(inMemory: name), secrets: secrets)
            device.cloud.lifetime = 60_000
            try device.signIn()
            device.network.run(for: .seconds(1))
            device.changes = []
            device.cloud.requests = []
        }

        func other() throws -> Device {
            try Device(
                cloud: device.cloud, name: "other", local: try LocalStore(inMemory: name),
                secrets: MemorySecrets(sharing: secrets))
        }

        /// How many rows of the account the table has.
        func count(_ table: String, of account: String = "acc_one") throws -> Int {
            try device.local.read {
                try Int.fetchOne($0, sql: "SELECT count(*) FROM \(table) WHERE account = ?", arguments: [account]) ?? 0
            }
        }
    }

    private func becomeAnother(_ cloud: ScriptedCloud) {
        cloud.account = "acc_two"
        cloud.items = [:]
        cloud.head = ChangeToken(epoch: 1, sequence: 0)
    }

    @Test(arguments: [false, true])
    func aCallThatWaitsForATokenEndsWithItsSignIn(isOtherProcess: Bool) throws {
        let home = try Home()
        let device = home.device
        let lock = MemorySecrets(sharing: home.secrets)
        #expect(lock.tryLock())
        device.network.run(for: .seconds(70))
        while !device.engine.tokens.refreshing { device.network.run(for: .milliseconds(100)) }
        try device.store.set("of the first", forKey: "a")
        var ended: CloudError.Code?
        device.engine.call(
            .keyValue, WirePushKeys(), as: WirePushKeysReply.self, app: device.store.app
        ) { result, _ in if case .failure(let error) = result { ended = error.code } }
        device.network.run(for: .milliseconds(100))
        #expect(device.engine.tokens.refreshing && device.cloud.requests("PushKeys").isEmpty)
        becomeAnother(device.cloud)
        if isOtherProcess {
            try home.other().signIn("bert", discardsUnsent: true)
            device.engine.checkForeign()
        } else {
            try device.signIn("bert", discardsUnsent: true)
        }
        lock.unlock()
        device.network.run(for: .seconds(20))
        #expect(device.engine.session?.accountName == "bert")
        #expect(ended == .operationCancelled)
        #expect(device.cloud.requests("PushKeys").isEmpty && device.cloud.items.isEmpty)
        // Whoever asks under the new one is served.
        try device.store.set("of the second", forKey: "b")
        device.network.run(for: .seconds(1))
        #expect(device.cloud.items["b"]?.value == "of the second")
    }

    @Test func pagesThatComeLateBringNoAccountBackThatWasDiscarded() throws {
        let home = try Home()
        let device = home.device
        device.cloud.write("a", "before", at: device.now)
        device.store.driver.pull()
        device.network.run(for: .seconds(1))
        #expect(try device.store.read("a") == .value("before"))
        // What is on its way when another process signs another account in, and is answered after that.
        device.cloud.write("b", "late", at: device.now)
        device.cloud.lossy = ["ReadChanges"]
        device.store.driver.pull()
        device.network.run(for: .milliseconds(10))
        let other = try home.other()
        device.cloud.account = "acc_two"
        try other.signIn("bert", discardsUnsent: true)
        other.engine.stop()
        #expect(try home.count("items") == 0 && home.count("scopes") == 0)
        device.cloud.account = "acc_one"
        device.cloud.lossy = []
        device.network.run(for: .seconds(60))
        #expect(device.engine.session?.accountID == AccountID("acc_one"))
        #expect(try home.count("items") == 0 && home.count("scopes") == 0)
        device.engine.checkForeign()
        #expect(device.engine.session?.accountID == AccountID("acc_two"))
    }

    @Test func pagesContinueOnlyACopyThatIsThere() throws {
        let device = try Device.ready()
        device.cloud.write("a", "before", at: device.now)
        device.store.driver.pull()
        device.network.run(for: .seconds(1))
        let head = try device.state().head
        try device.local.write { try ScopeTransaction.removeAll(of: AccountID("acc_one"), $0) }
        var last = WireReadChangesReply()
        last.token = WireChangeToken(ChangeToken(epoch: head.epoch, sequence: head.sequence + 1))
        let pages = PulledPages(last: last, isStaged: false, after: head, isListing: false, isComparing: false)
        let applied = try device.store.driver.write { try device.store.driver.apply(pages, in: $0) }
        #expect(applied.needsEverything)
        #expect(try !device.state().synced)
    }

    @Test func whatAFormerStoreHasIsKnownStillWhenItsAccountSignsInAgain() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.serviceBusy, "Later.")) }
        try device.store.set("left", forKey: "a")
        device.network.run(for: .seconds(1))
        // The app has another store from the next token on.
        func rename(_ app: inout WireApp) { app.storeID = "store.two" }
        device.cloud.lies["RefreshToken"] = { frame in
            guard var reply = try? frame.decode(WireRefreshTokenReply.self) else { return frame }
            rename(&reply.accessToken.app)
            return Frame(encoding: reply)
        }
        device.cloud.lies["SignIn"] = { frame in
            guard var reply = try? frame.decode(WireSignInReply.self) else { return frame }
            rename(&reply.accessToken.app)
            return Frame(encoding: reply)
        }
        device.network.run(for: .seconds(3000))
        #expect(device.engine.session?.storeIDs == ["app.one": "store.two"])
        func leftBehind() throws -> [[ItemName]] { try device.store.driver.status().leftBehind.map(\.names) }
        #expect(try leftBehind() == [["a"]])
        try device.signIn()
        device.network.run(for: .seconds(1))
        #expect(device.engine.session?.formerStoreIDs == ["app.one": ["store.one"]])
        #expect(try leftBehind() == [["a"]])
    }

    @Test func whatIsKnownOfOtherAppsStaysWhenTheAccountSignsInAgain() throws {
        let device = try Device.ready()
        let other = AppID("app.two")
        try device.engine.changeSession { session, _ in
            session.setStore("store.of.two", of: other)
            session.setContainers(["two.container"], of: other)
            session.containerOwners = ["two.container": other.rawValue]
            var app = WireApp()
            app.appID = "app.three"
            session.setCapabilities(app)
        }
        try device.signIn()
        let session = try #require(device.engine.session)
        #expect(session.storeIDs == ["app.one": "store.one", "app.two": "store.of.two"])
        #expect(session.containers(of: other) == ["two.container"])
        #expect(session.publicOwner(of: "two.container") == Owner(other))
        #expect(!session.mayUseKeyValue(AppID("app.three")))
        device.cloud.account = "acc_two"
        try device.signIn("bert")
        #expect(device.engine.session?.storeIDs == ["app.one": "store.one"])
        #expect(device.engine.session?.containers(of: other) == nil)
    }

    @Test func whatIsWrittenWhileTheServerIsToldOfASignOutIsCounted() throws {
        let device = try Device.ready()
        device.cloud.lossy = ["SignOut", "PushKeys"]
        var ended: Result<SignedOut, CloudError>?
        device.engine.signOut(timeout: .seconds(5)) { ended = $0 }
        device.network.run(for: .seconds(1))
        try device.store.set("late", forKey: "a")
        device.network.run(for: .seconds(6))
        #expect(try ended?.get() == SignedOut(isTold: false, unsentCount: 1))
        device.cloud.lossy = []
        try device.signIn()
        device.network.run(for: .seconds(30))
        #expect(device.cloud.items["a"]?.value == "late")
        device.engine.signOut { ended = $0 }
        device.network.run(for: .seconds(1))
        #expect(try ended?.get() == SignedOut(isTold: true, unsentCount: 0))
    }

    /// What another process learns while the server is told.
    @Test func aSignOutKeepsWhatWasLearnedWhileItWentOn() throws {
        let home = try Home()
        let (device, other, app) = (home.device, try home.other(), AppID("app.two"))
        device.cloud.lossy = ["SignOut"]
        var ended: Result<SignedOut, CloudError>?
        device.engine.signOut(timeout: .seconds(5)) { ended = $0 }
        device.network.run(for: .seconds(1))
        try other.engine.changeSession { session, _ in session.setStore("store.of.two", of: app) }
        device.network.run(for: .seconds(6))
        #expect(try ended?.get().isTold == false)
        #expect(device.engine.session?.signedIn == false)
        #expect(device.engine.session?.storeIDs == ["app.one": "store.one", "app.two": "store.of.two"])
        #expect(try device.local.read { try Facts($0).session } == device.engine.session)
    }

    @Test(arguments: [false, true])
    func aSignOutThatAnotherProcessWasQuickerThanSaysHowTheHomeIs(isAnotherSignIn: Bool) throws {
        let home = try Home()
        let (device, other) = (home.device, try home.other())
        device.cloud.lossy = ["SignOut"]
        var (ended, endedThere): (Result<SignedOut, CloudError>?, Result<SignedOut, CloudError>?)
        device.engine.signOut(timeout: .seconds(5)) { ended = $0 }
        if isAnotherSignIn {
            becomeAnother(device.cloud)
            try other.signIn("bert")
        } else {
            other.engine.signOut(timeout: .seconds(2)) { endedThere = $0 }
        }
        device.network.run(for: .seconds(6))
        if isAnotherSignIn {
            let refusal = #expect(throws: CloudError.self) { try #require(ended).get() }
            #expect(refusal?.code == .operationCancelled)
            #expect(device.engine.session?.accountName == "bert" && device.engine.session?.signedIn == true)
        } else {
            #expect(try ended?.get() == SignedOut(isTold: false, unsentCount: 0) && endedThere?.get() == ended?.get())
            #expect(device.engine.session?.signedIn == false)
        }
    }

    @Test func aLateAnswerSaysNothingOfWhatHasTakenItsOperationsPlace() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.internalError, "Failed.")) }
        device.cloud.latency = .milliseconds(100)
        try device.store.set("1", forKey: "a")
        device.network.run(for: .milliseconds(20))
        var generator = SplitMix64(seed: 9)
        let id = OperationID(at: device.now, using: &generator)
        // Another process was quicker, and waits for a while.
        let later = device.now.advanced(by: .seconds(50))
        try device.local.write {
            try $0.execute(
                sql: "UPDATE outbox SET operation = ?, state = 'unsent', attempts = 0, next_attempt = ?",
                arguments: [Data(id.bytes), Int64(later.milliseconds)])
        }
        func waiting() throws -> OutboxOperation? { try device.store.driver.read { try $0.operations().first } }
        #expect(try waiting()?.id == id)
        device.network.run(for: .seconds(1))
        #expect(device.cloud.requests("PushKeys").count == 1)
        #expect(try waiting()?.id == id && waiting()?.state == .unsent && waiting()?.error == nil)
    }
}
