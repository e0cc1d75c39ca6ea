import Foundation
import GRDB
import NephosCore
import Testing

@testable import NephosKit

@Suite struct TransactionTests {
    @Test func nilDeletesInATransaction() async throws {
        try await withStore { store in
            try store.set("kept", forKey: "old")
            try store.transaction { $0["old"] = nil }
            #expect(try store.read("old") == .absent)
        }
    }

    @Test func aTransactionReadsWritesAndRemoves() async throws {
        try await withStore { store in
            try store.set(41, forKey: "n")
            try store.set("x", forKey: "old")
            let before = try store.transaction { t in
                let n = t.integer(forKey: "n") ?? 0
                try t.set(n + 1, forKey: "n")
                t.removeValue(forKey: "old")
                return n
            }
            #expect(before == 41)
            #expect(store.dictionaryRepresentation == ["n": 42])
        }
    }

    @Test func aTransactionSeesItsOwnWritesAndNobodyElseDoesBeforeItsEnd() async throws {
        try await withStore { store in
            try store.set("gone", forKey: "old")
            // Two spellings that Swift takes for one.
            try store.set("composed", forKey: "\u{e9}")
            try store.transaction { t in
                try t.set(1, forKey: "a")
                t["b"] = "two"
                t.removeObject(forKey: "old")
                t["e\u{301}"] = nil
                #expect(t.integer(forKey: "a") == 1)
                #expect(t["b"] == "two")
                #expect(try t.read("old") == .absent)
                #expect(t["\u{e9}"] == nil)
                #expect(try t.dictionary() == ["a": 1, "b": "two"])
                #expect(store.dictionaryRepresentation == ["old": "gone", "\u{e9}": "composed"])
                // What is written last counts.
                t["b"] = 3
                for index in 0..<3 { t["c"] = .integer(Int64(index)) }
            }
            #expect(store.dictionaryRepresentation == ["a": 1, "b": 3, "c": 2])
        }
    }

    @Test func whatTheBodyThrowsLeavesNothingAndIsThrownOn() async throws {
        struct Mine: Error, Equatable { var number: Int }
        try await withStore { store in
            try store.set("kept", forKey: "old")
            #expect(throws: Mine(number: 7)) {
                try store.transaction { t in
                    try t.set(1, forKey: "a")
                    t.removeValue(forKey: "old")
                    throw Mine(number: 7)
                }
            }
            #expect(store.dictionaryRepresentation == ["old": "kept"])
        }
    }

    @Test func whatIsRefusedAtTheEndLeavesNothing() async throws {
        try await withStore { store in
            try store.set("kept", forKey: "old")
            let large = Data(count: KeyValueLimits.standard.valueBytesMax + 1)
            let full = #expect(throws: CloudError.self) {
                try store.transaction { t in
                    try t.set(1, forKey: "a")
                    t.removeValue(forKey: "old")
                    try t.set(large, forKey: "large")
                }
            }
            #expect(full?.code == .quotaExceeded && full?.details["key"] == "large")
            let nameless = #expect(throws: CloudError.self) {
                try store.transaction { t in
                    t["a"] = 1
                    t[""] = 2
                }
            }
            #expect(nameless?.code == .invalidArguments)
            #expect(store.dictionaryRepresentation == ["old": "kept"])
        }
    }

    @Test func aStoreThatIsWrittenInsideItsOwnTransactionSaysSo() async throws {
        try await withStore { store in
            let attempts: [(KeyValueStore) throws -> Void] = [
                { try $0.set(1, forKey: "b") }, { try $0.removeObject(forKey: "b") },
                { try $0.transaction { $0["b"] = 1 } }, { try $0.dismissRefused() },
            ]
            for attempt in attempts {
                let error = #expect(throws: CloudError.self) {
                    try store.transaction { t in
                        t["a"] = 1
                        try attempt(store)
                    }
                }
                #expect(error?.code == .constraintViolation)
            }
            // What only reads is served, and nothing traps.
            try store.transaction { t in
                t["a"] = 1
                #expect(store["a"] == nil)
                _ = store.synchronize()
            }
            #expect(store.dictionaryRepresentation == ["a": 1])
        }
    }

    @Test func whatCouldNotBeReadIsNotTakenForNothing() async throws {
        try await withStore { store in
            try store.set(41, forKey: "n")
            try store.session.local.write { try $0.execute(sql: "UPDATE items SET value = x'ff' WHERE key = 'n'") }
            let error = #expect(throws: CloudError.self) {
                try store.transaction { t in try t.set((t.integer(forKey: "n") ?? 0) + 1, forKey: "next") }
            }
            #expect(error?.code == .storageFailure)
            #expect(try store.read("next") == .absent)
        }
    }

    @Test func nobodyWritesInBetween() async throws {
        try await withStore { store in
            // Another process of the same home, as far as the database can tell.
            let other = try await Session.open(home: store.session.home)
            defer { other.close() }
            let stores = [store, try other.keyValueStore(app: store.app)]
            try await withThrowingTaskGroup { group in
                for task in 0..<8 {
                    let store = stores[task % 2]
                    group.addTask {
                        for _ in 0..<10 {
                            try store.transaction { t in try t.set((t.integer(forKey: "n") ?? 0) + 1, forKey: "n") }
                        }
                    }
                }
                try await group.waitForAll()
            }
            #expect(store.integer(forKey: "n") == 80)
        }
    }

    @Test func aTransactionReachesAnotherDeviceWhole() async throws {
        try await withSessionCloud { house in
            let (one, two) = (try await house.openSignedIn(), try await house.openSignedIn())
            let (mine, theirs) = (try one.keyValueStore(), try two.keyValueStore())
            try await house.wait {
                try await mine.ready()
                try await theirs.ready()
            }
            try mine.set("x", forKey: "old")
            try await house.wait { try await mine.waitUntilSent() }
            house.run(for: .seconds(1))
            var listener = theirs.changes.makeAsyncIterator()
            try mine.transaction { t in
                try t.set(1, forKey: "n")
                t["old"] = nil
            }
            house.run(for: .seconds(1))
            let change = try #require(await listener.next())
            #expect(Set(change.changedKeys) == ["n", "old"])
            #expect(theirs.dictionaryRepresentation == ["n": 1])
        }
    }
}

/// A store of a home of its own, where nobody is signed in.
func withStore(_ body: (KeyValueStore) async throws -> Void) async throws {
    let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
    defer { try? FileManager.default.removeItem(atPath: home) }
    let session = try await Session.open(home: URL(fileURLWithPath: home))
    defer { session.close() }
    try await body(session.keyValueStore(app: AppID("app.one")))
}
