import Crypto
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

import struct Foundation.Data
import class Foundation.FileManager
import struct Foundation.URL
import struct Foundation.UUID

@testable import NephosKeyValue
@testable import NephosServiceKit

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

    /// What was overwritten is told as the write of whom and when it was, or not at all.
    @Test(arguments: ["written = written + 1", "device = 'dev_x'"])
    func anEntryOfTheHistoryOpensUnderItsOwnStampAlone(_ change: String) throws {
        let house = try KeyValueHouse()
        try house.push(house.write("k", "first", after: .seconds(1)), by: house.caller("dev_a"))
        try house.push(house.write("k", "second", after: .seconds(1)), by: house.caller("dev_b"))
        let entries = try house.history(house.caller("dev_a"))
        #expect(entries.map(\.damaged) == [false] && entries[0].item.value.string == "first")
        _ = try house.engine.write { try $0.execute(SQL("UPDATE key_history SET \(change)"), []) }
        let changed = try house.history(house.caller("dev_a"))
        #expect(changed.map(\.damaged) == [true] && !changed[0].item.hasValue)
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
        let rewrapped = try engine.write { try both.rewrap(after: nil, limit: 10, in: $0) }
        #expect(rewrapped.last == nil && rewrapped.damaged.isEmpty && rewrapped.unopened.isEmpty)
        let new = try OwnerKeys(masterKeys: [newKey])
        #expect(try engine.write { try new.existingKey(of: account, in: $0)?.bytes } == bytes)
        let stale = try OwnerKeys(masterKeys: [Self.masterKey])
        let error = failure { _ = try engine.write { try stale.existingKey(of: account, in: $0) } }
        // What a device has written is kept by it until the secret is back.
        #expect(error?.code == .storageFailure)
        #expect(error?.details["master_key_id"] != nil)
    }

    @Test func aDamagedKeyKeepsNoOtherFromBeingWrappedAnew() throws {
        let engine = try keyEngine()
        let newKey = Data(repeating: 9, count: 32).base64EncodedString()
        let old = try OwnerKeys(masterKeys: [Self.masterKey])
        let owners = ["acct_a", "acct_b", "acct_c"].map { Owner($0) }
        let bytes = try owners.map { owner in try engine.write { try old.key(of: owner, in: $0).bytes } }
        let damage = SQL("UPDATE owner_keys SET wrapped = zeroblob(60) WHERE owner = 'acct_b'")
        _ = try engine.write { try $0.execute(damage, []) }
        let both = try OwnerKeys(masterKeys: [newKey, Self.masterKey])
        var damaged: [Owner] = []
        var last: Owner?
        repeat {
            let step = try engine.write { try both.rewrap(after: last, limit: 1, in: $0) }
            #expect(step.unopened.isEmpty)
            damaged += step.damaged
            last = step.last
        } while last != nil
        #expect(damaged == [owners[1]])
        // Who looks again, because others did not open, does not find it a second time.
        #expect(try engine.write { try both.rewrap(after: nil, limit: 10, in: $0) }.damaged.isEmpty)
        // It is known as damaged when the old master key is gone, too, and only it is lost.
        let new = try OwnerKeys(masterKeys: [newKey])
        for (owner, bytes) in zip(owners, bytes) where owner != owners[1] {
            #expect(try engine.write { try new.existingKey(of: owner, in: $0)?.bytes } == bytes)
        }
        let error = failure { _ = try engine.write { try new.existingKey(of: owners[1], in: $0) } }
        #expect(error?.code == .storageFailure && error?.details["reason"] == "damaged")
        #expect(try engine.write { try new.setAside(owners[1], in: $0) })
        #expect(try engine.write { try new.existingKey(of: owners[1], in: $0) } == nil)
        #expect(try !engine.write { try new.setAside(owners[0], in: $0) })
        // With the account goes also what was kept of its key.
        try engine.write { try new.destroy(owners[1], in: $0) }
        let rest = SQL("SELECT COUNT(*) FROM owner_keys_damaged")
        #expect(try engine.write { try $0.first(rest) { $0.integer(0) } } == 0)
    }

    /// A wrong secret makes all of them look alike.
    @Test func keysOfAnotherMasterKeyAreNotTakenForDamaged() throws {
        let engine = try keyEngine()
        let right = try OwnerKeys(masterKeys: [Self.masterKey])
        let wrong = try OwnerKeys(masterKeys: [Data(repeating: 9, count: 32).base64EncodedString()])
        let owners = ["acct_a", "acct_b"].map { Owner($0) }
        for owner in owners { _ = try engine.write { try right.key(of: owner, in: $0) } }
        for owner in owners {
            #expect(failure { _ = try engine.write { try wrong.setAside(owner, in: $0) } }?.code == .storageFailure)
        }
        let step = try engine.write { try wrong.rewrap(after: nil, limit: 10, in: $0) }
        #expect(step.unopened == owners && step.damaged.isEmpty)
        // The name of the master key is all that is damaged.
        _ = try engine.write { try $0.execute(SQL("UPDATE owner_keys SET master_key_id = '0'"), []) }
        let again = try OwnerKeys(masterKeys: [Self.masterKey])
        for owner in owners { #expect(try engine.write { try again.existingKey(of: owner, in: $0) } != nil) }
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
