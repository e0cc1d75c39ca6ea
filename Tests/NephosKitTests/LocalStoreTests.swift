import Foundation
import GRDB
import NephosCore
import NephosWire
import Testing

@testable import NephosKit

/// Two stores on one file are what two processes of a home are: neither knows
/// of the other but through the disk.
@Suite struct LocalStoreTests {
    private let app = AppID("app.one")
    private let now = Timestamp(milliseconds: 1_800_000_000_000)

    private func withHome(_ body: (String) throws -> Void) throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: home) }
        try body(home)
    }

    private func signedIn(_ local: LocalStore) throws {
        let service = SessionRecord.Service(service: "identity", publicKey: "", requests: [], subscriptions: [])
        let session = SessionRecord(
            accountID: AccountID("acc_one"), accountName: "anna", deviceID: DeviceID("dev_here"), deviceName: "here",
            identityToken: "token", signedIn: true, defaultApp: app, storeIDs: ["app.one": "store.one"], services: [],
            identity: service, revoked: false)
        try local.write { try Facts($0).setSession(session) }
    }

    @Test func writesOfManyThreadsAndTwoConnectionsAreAllKept() async throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: home) }
        let stores = [try LocalStore(path: home + "/device.sqlite"), try LocalStore(path: home + "/device.sqlite")]
        try signedIn(stores[0])
        try await withThrowingTaskGroup(of: Void.self) { group in
            for writer in 0..<4 {
                group.addTask {
                    for number in 0..<25 {
                        try stores[writer % 2].accept(
                            [LocalWrite(key: "\(writer)-\(number)", value: 1)], app: app,
                            id: OperationID(at: now), writer: Int64(writer), now: now)
                    }
                }
            }
            try await group.waitForAll()
        }
        #expect(try stores[0].dictionary(app: app).count == 100)
        let scope = StoreScope(account: AccountID("acc_one"), store: StoreID("store.one"))
        let timestamps = try stores[1].read { try StoreTransaction($0, scope).pending() }.flatMap(\.writes).map(
            \.timestamp)
        // One clock for all: no two writes have the same time, and the order is that of the queue.
        #expect(Set(timestamps).count == 100)
        #expect(timestamps == timestamps.sorted())
    }

    @Test func anotherConnectionsWriteIsNoticed() throws {
        try withHome { home in
            let first = try LocalStore(path: home + "/device.sqlite")
            let second = try LocalStore(path: home + "/device.sqlite")
            let before = try first.foreignVersion()
            try first.accept([LocalWrite(key: "a", value: 1)], app: app, id: OperationID(at: now), writer: 1, now: now)
            #expect(try first.foreignVersion() == before)
            try second.accept([LocalWrite(key: "b", value: 1)], app: app, id: OperationID(at: now), writer: 2, now: now)
            #expect(try first.foreignVersion() != before)
        }
    }

    @Test func operationThatWasSentIsNotChangedByALaterWrite() throws {
        let local = try LocalStore()
        try signedIn(local)
        let scope = StoreScope(account: AccountID("acc_one"), store: StoreID("store.one"))
        func write(_ value: PropertyValue) throws {
            try local.accept(
                [LocalWrite(key: "a", value: value)], app: app, id: OperationID(at: now), writer: 1, now: now)
        }
        try write(1)
        try write(2)
        #expect(try local.read { try StoreTransaction($0, scope).rows.operationCount() } == 1)
        try local.write { database in
            let store = StoreTransaction(database, scope)
            _ = try store.rows.freeze(
                try #require(try store.pending().first).operation, makeID: { OperationID(at: now) })
        }
        try write(3)
        let pending = try local.read { try StoreTransaction($0, scope).pending() }
        #expect(pending.map(\.writes[0].value) == [2, 3])
    }

    @Test func ofTwoSpellingsOfOneTimeTheFirstByBytesStandsForBoth() throws {
        let local = try LocalStore()
        // Many, since one would be right by chance.
        for number in 0..<40 {
            try local.accept(
                [
                    LocalWrite(key: ItemName("caf\u{e9} \(number)"), value: "composed"),
                    LocalWrite(key: ItemName("cafe\u{301} \(number)"), value: "decomposed"),
                ],
                app: app, id: OperationID(at: now), writer: 1, now: now)
        }
        for number in 0..<40 {
            #expect(try local.read(text: "caf\u{e9} \(number)", app: app) == .value("decomposed"))
            #expect(try local.texts(app: app)["caf\u{e9} \(number)"] == "decomposed")
            #expect(try local.spellings(of: "caf\u{e9} \(number)", app: app).count == 2)
        }
    }

    @Test func databaseFlushesItsWrites() throws {
        try withHome { home in
            let local = try LocalStore(path: home + "/device.sqlite")
            let mode = try local.write { try Int.fetchOne($0, sql: "PRAGMA synchronous") ?? -1 }
            #expect(mode == 2)
        }
    }

    @Test func secretsAreReadableByTheirOwnerAlone() throws {
        try withHome { home in
            let file = SecretFile(home: home)
            var secrets = DeviceSecrets()
            secrets.refreshToken = "token"
            try file.save(secrets, as: "one")
            #expect(try file.load("one").refreshToken == "token")
            let attributes = try FileManager.default.attributesOfItem(atPath: home + "/device.one.secret.json")
            #expect(attributes[.posixPermissions] as? Int == 0o600)
            try file.save(DeviceSecrets(), as: "two")
            #expect(file.hasOthers(than: "two"))
            file.removeOthers(than: "two")
            #expect(try !file.hasOthers(than: "two") && file.load("one").refreshToken == nil)
        }
    }

    @Test func onlyOneHolderGetsTheRefreshLock() throws {
        try withHome { home in
            let first = SecretFile(home: home)
            let second = SecretFile(home: home)
            let taken = try [first.tryLock(), second.tryLock()]
            #expect(taken == [true, false])
            first.unlock()
            #expect(try second.tryLock())
        }
    }

    @Test func aRefreshLockThatNobodyCanTakeIsAnErrorOfFiles() throws {
        try withHome { home in
            try FileManager.default.createDirectory(
                atPath: home + "/refresh.lock", withIntermediateDirectories: false)
            let refused = #expect(throws: CloudError.self) { try SecretFile(home: home).tryLock() }
            #expect(refused?.code == .storageFailure && refused?.details["reason"] == "Is a directory")
        }
    }

    @Test(arguments: [true, false]) func defaultsFileKeepsItsTypes(json: Bool) throws {
        var values: [ItemName: PropertyValue] = [
            "bool": true, "zero": 0, "one": 1, "text": "x", "half": 0.5, "list": [1, "two", false],
            "nested": ["a": ["b": 2]],
        ]
        if !json {
            values["date"] = .date(Date(timeIntervalSince1970: 1_000_000))
            values["data"] = .data(Data([1, 2, 3]))
        }
        #expect(try DefaultsFile.decode(DefaultsFile.encode(values, json: json), json: json) == values)
    }
}
