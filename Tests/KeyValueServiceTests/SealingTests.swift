import Core
import Crypto
import Storage
import TestKit
import Testing
import Wire

import struct Foundation.Data
import class Foundation.FileManager
import struct Foundation.URL
import struct Foundation.UUID

@testable import KeyValueService
@testable import ServiceKit

struct SealingTests {
    private static let masterKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

    @Test func databaseFilesDoNotContainTheValues() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("keyvalue-\(UUID())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let engine = try SQLiteEngine(path: folder.appendingPathComponent("keyvalue.sqlite").path)
        let house = try KeyValueHouse(engine: engine)
        let marker = "plain-text-marker"
        let values: [PropertyValue] = [
            .string(marker), .data(Data(marker.utf8)), [.string(marker)], ["k": .string(marker)], [ItemName(marker): 1],
        ]
        for (index, value) in values.enumerated() {
            try house.push(house.write("k\(index)", value, after: .seconds(1)), by: house.caller("dev_a"))
            // A loser (in the history, and the winner in its stored reply), and one overwritten.
            try house.push(house.write("k\(index)", .string("other " + marker)), by: house.caller("dev_b"))
            try house.push(
                house.write("k\(index)", .string("new " + marker), after: .seconds(2)), by: house.caller("dev_c"))
        }
        #expect(try house.history(house.caller("dev_a")).count == 2 * values.count)
        for file in try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil) {
            #expect(try Data(contentsOf: file).range(of: Data(marker.utf8)) == nil)
        }
        // The names are there, so the files are the right ones and already written.
        let wal = try Data(contentsOf: folder.appendingPathComponent("keyvalue.sqlite-wal"))
        #expect(wal.range(of: Data("dev_a".utf8)) != nil)
        engine.close()
    }

    @Test func aClosedAccountIsGoneFromTheFiles() throws {
        let path = FileManager.default.temporaryDirectory.path + "/nephos-closed-\(UUID().uuidString).sqlite"
        let files = [path, path + "-wal", path + "-shm", path + ".lock"]
        defer { for file in files + [path + "-reserve"] { try? FileManager.default.removeItem(atPath: file) } }
        let engine = try SQLiteEngine(path: path)
        let house = try KeyValueHouse(engine: engine)
        let account = try house.account("acct_one")
        // More than goes in one step.
        for part in 0..<3 {
            let writes = (0..<200).map { house.write("name-of-a-key-\(part * 200 + $0)", "value") }
            _ = try house.call(house.push(writes), by: house.caller("dev_a"), WirePushKeysReply.self)
        }
        let select = SQL("SELECT wrapped FROM owner_keys WHERE owner = ?1")
        let wrapped = try engine.write { try $0.first(select, [.text(account.rawValue)]) { $0.blob(0) } }
        func found(_ bytes: [UInt8]) -> Bool {
            files.contains { file in
                guard let data = FileManager.default.contents(atPath: file) else { return false }
                return data.range(of: Data(bytes)) != nil
            }
        }
        let key = try #require(wrapped)
        #expect(found(key) && found(Array("name-of-a-key-7".utf8)))
        var close = WireCloseAccount()
        close.accountName = "acct_one"
        try house.cloud.operate("CloseAccount", close, as: WireCloseAccountReply.self)
        house.pass(.seconds(10))
        #expect(!found(key))
        #expect(!found(Array("name-of-a-key".utf8)))
        engine.close()
        #expect(!found(key))
    }

    @Test func sealedValueOpensOnlyInItsPlace() throws {
        let key = OwnerKey.random()
        let sealed = try key.seal([1, 2, 3], boundTo: "here")
        #expect(sealed.bytes.count == 3 + Sealed.overhead)
        #expect(try key.open(sealed, boundTo: "here") == [1, 2, 3])
        #expect(failure { _ = try key.open(sealed, boundTo: "there") } != nil)
        #expect(failure { _ = try OwnerKey.random().open(sealed, boundTo: "here") } != nil)
        #expect(failure { _ = try key.open(Sealed(bytes: [1]), boundTo: "here") } != nil)
        #expect(try key.seal([1, 2, 3], boundTo: "here") != sealed)
    }

    /// Whichever of the two libraries sealed it, the other opens it.
    @Test func bothImplementationsAgree() throws {
        let secret = SymmetricKey(size: .bits256)
        let prepared = OwnerKey(secret)
        let plain = OwnerKey(unprepared: secret)
        for count in [0, 1, 15, 16, 17, 100, 4096, 100_000] {
            let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) }
            for context in ["", "account/store/value/key", "ключ"] {
                for (one, other) in [(prepared, plain), (plain, prepared), (prepared, prepared)] {
                    var sealed = try one.seal(bytes, boundTo: context)
                    #expect(try other.open(sealed, boundTo: context) == bytes)
                    #expect(failure { _ = try other.open(sealed, boundTo: context + "x") } != nil)
                    sealed.bytes[sealed.bytes.count / 2] ^= 1
                    #expect(failure { _ = try other.open(sealed, boundTo: context) } != nil)
                    #expect(failure { _ = try other.open(Sealed(bytes: []), boundTo: context) } != nil)
                }
            }
        }
    }

    private struct Undone: Error {}

    /// A database for accounts' keys alone.
    private func keyEngine() throws -> SQLiteEngine {
        let engine = try SQLiteEngine.inMemory()
        try engine.migrate(OwnerKeys.migrations)
        return engine
    }

    @Test func keyWhoseMakingWasRolledBackIsNeverUsedAgain() throws {
        let engine = try keyEngine()
        let keys = try OwnerKeys(masterKeys: [Self.masterKey])
        let account = Owner("acct_new")
        var lost: [UInt8] = []
        _ = try? engine.write { transaction in
            lost = try keys.key(of: account, in: transaction).bytes
            #expect(try keys.key(of: account, in: transaction).bytes == lost)
            throw Undone()
        }
        let kept = try engine.write { try keys.key(of: account, in: $0).bytes }
        #expect(kept != lost)
        let fresh = try OwnerKeys(masterKeys: [Self.masterKey])
        #expect(try engine.write { try fresh.existingKey(of: account, in: $0)?.bytes } == kept)
    }

    @Test func masterKeyCanBeRotated() throws {
        let engine = try keyEngine()
        let newKey = Data(repeating: 9, count: 32).base64EncodedString()
        let account = Owner("acct_one")
        let old = try OwnerKeys(masterKeys: [Self.masterKey])
        let bytes = try engine.write { try old.key(of: account, in: $0).bytes }
        let both = try OwnerKeys(masterKeys: [newKey, Self.masterKey])
        #expect(try !engine.write { try both.rewrap(limit: 10, in: $0) })
        let new = try OwnerKeys(masterKeys: [newKey])
        #expect(try engine.write { try new.existingKey(of: account, in: $0)?.bytes } == bytes)
        let stale = try OwnerKeys(masterKeys: [Self.masterKey])
        let error = failure { _ = try engine.write { try stale.existingKey(of: account, in: $0) } }
        #expect(error?.code == .configurationInvalid)
    }

    @Test func destroyedKeyLeavesNothingReadable() throws {
        let engine = try keyEngine()
        let keys = try OwnerKeys(masterKeys: [Self.masterKey])
        let account = Owner("acct_one")
        try engine.write { transaction in
            _ = try keys.key(of: account, in: transaction)
            try keys.destroy(account, in: transaction)
            let left = try keys.existingKey(of: account, in: transaction)
            #expect(left == nil)
        }
    }

    @Test(arguments: [[], ["short"], ["AAAA"]])
    func malformedMasterKeysAreRefused(_ masterKeys: [String]) {
        #expect(failure { _ = try OwnerKeys(masterKeys: masterKeys) }?.code == .configurationInvalid)
    }
}
