import Foundation
import NephosCore
import NephosWire
import Testing

@testable import NephosKit

@Suite struct SessionTests {
    @Test func sessionWorksOverTheRealTransportWithoutAServer() async throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: home) }
        let session = try await Session.open(home: URL(fileURLWithPath: home))
        let store = try session.keyValueStore(app: AppID("app.one"))
        try store.set("x", forKey: "a")
        try store.transaction {
            $0["b"] = 2
            $0["c"] = true
        }
        #expect(store.string(forKey: "a") == "x")
        #expect(store.longLong(forKey: "b") == 2)
        #expect(store.bool(forKey: "c"))
        #expect(!store.synchronize())
        #expect(try await store.status().problem?.code == .notSignedIn)
        #expect(await #expect(throws: CloudError.self) { try await store.ready() }?.code == .notSignedIn)
        await #expect(throws: CloudError.self) { try await session.whoAmI() }
        session.close()
        let again = try await Session.open(home: URL(fileURLWithPath: home))
        #expect(try again.keyValueStore(app: AppID("app.one")).string(forKey: "a") == "x")
        again.close()
    }

    @Test(arguments: [nil, "", "{", "[1]", "{\"k0\": 1"])
    func aFileOfDefaultsThatSaysNothingDeletesNothing(_ content: String?) async throws {
        try await withMirror { store, mirror, path in
            for index in 0..<10 { try store.set(Int64(index), forKey: "k\(index)") }
            try mirror.merge()
            if let content {
                try Data(content.utf8).write(to: URL(fileURLWithPath: path))
            } else {
                try FileManager.default.removeItem(atPath: path)
            }
            let problem = #expect(throws: DefaultsMirror.Unreadable.self) { try mirror.exchange(readFile: true) }
            #expect(problem?.error.code == (content == nil ? .storageFailure : .invalidArguments))
            #expect(store.dictionaryRepresentation.count == 10)
        }
    }

    @Test func aFileOfDefaultsDeletesManyKeysOnlyWhenAsked() async throws {
        for deletesMany in [false, true] {
            try await withMirror(deletesMany: deletesMany) { store, mirror, path in
                for index in 0..<11 { try store.set(Int64(index), forKey: "k\(index)") }
                try mirror.merge()
                try Data(#"{"k0": 0, "k1": 1, "k2": 2, "k3": 3, "k4": 5}"#.utf8).write(to: URL(fileURLWithPath: path))
                if deletesMany {
                    try mirror.exchange(readFile: true)
                    #expect(store.dictionaryRepresentation == ["k0": 0, "k1": 1, "k2": 2, "k3": 3, "k4": 5])
                } else {
                    let problem = #expect(throws: DefaultsMirror.Unreadable.self) {
                        try mirror.exchange(readFile: true)
                    }
                    #expect(problem?.error.code == .constraintViolation && problem?.isFinal == true)
                    #expect(store.dictionaryRepresentation.count == 11)
                    #expect(store.longLong(forKey: "k4") == 4)
                }
            }
        }
    }

    private func withMirror(
        deletesMany: Bool = false, _ body: (KeyValueStore, DefaultsMirror, String) async throws -> Void
    ) async throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: home) }
        let session = try await Session.open(home: URL(fileURLWithPath: home))
        defer { session.close() }
        let store = try session.keyValueStore(app: AppID("app.one"))
        let path = home + "/defaults.json"
        try await body(
            store, DefaultsMirror(store: store, file: URL(fileURLWithPath: path), deletesMany: deletesMany), path)
    }
}
