import Foundation
import GRDB
import NephosCore
import Synchronization
import Testing

@testable import NephosKit

/// A mirror is one account's: what is in its file becomes no other's, and nobody else's becomes the file's.
@Suite struct MirrorAccountTests {
    private static func record(_ account: String) -> SessionRecord {
        SessionRecord(
            accountID: AccountID(account), accountName: account, deviceID: DeviceID("dev_" + account),
            deviceName: "device", identityToken: "token of " + account, signedIn: true, defaultApp: AppID("app.one"),
            storeIDs: ["app.one": "app.one"], services: [],
            identity: SessionRecord.Service(service: "identity", publicKey: "", requests: [], subscriptions: []),
            revoked: false)
    }

    /// Another process signs somebody else in after the mirror has looked who is signed in, and before it writes.
    @Test(arguments: [true, false]) func whoSignsInMeanwhileGetsNothingOfTheFile(isEdited: Bool) async throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: home) }
        let path = home + "/defaults.json"
        let other = try LocalStore(path: home + "/device.sqlite")
        try other.write { try Facts($0).setSession(Self.record("anna")) }
        // On which thread the next save is the mirror's: the session's loop may save something of its own meanwhile.
        let armed = Mutex<pthread_t?>(nil)
        var options = DeviceOptions()
        // The engine looks rarely: that somebody else is signed in, the mirror has to find out by itself.
        options.foreignPoll = .seconds(3600)
        options.fault = { name in
            let isNow =
                name == "save"
                && armed.withLock { armed in
                    guard armed == pthread_self() else { return false }
                    armed = nil
                    return true
                }
            if isNow { try other.write { try Facts($0).setSession(Self.record("bert")) } }
        }
        let session = try await Session.open(home: URL(fileURLWithPath: home), options: options)
        defer { session.close() }
        let store = try session.keyValueStore()
        try store.set("anna's", forKey: "k")
        let mirror = DefaultsMirror(store: store, file: URL(fileURLWithPath: path))
        try mirror.merge()
        if isEdited { try Data(#"{"k":"edited"}"#.utf8).write(to: URL(fileURLWithPath: path)) }
        let before = try Data(contentsOf: URL(fileURLWithPath: path))
        // Something to do for the mirror in either case.
        if !isEdited { try store.set("more", forKey: "l") }
        armed.withLock { $0 = pthread_self() }
        let error = #expect(throws: CloudError.self) { try mirror.merge() }
        #expect(error?.code == .notSignedIn)
        #expect(armed.withLock { $0 } == nil)
        #expect(try Data(contentsOf: URL(fileURLWithPath: path)) == before)
        let written = try other.read {
            try Int.fetchOne($0, sql: "SELECT count(*) FROM pending_writes WHERE account = 'bert'")
        }
        #expect(written == 0)
    }
}
