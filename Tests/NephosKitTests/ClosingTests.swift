import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// What becomes of those who wait for a session that is closed.
@Suite(.timeLimit(.minutes(5))) struct ClosingTests {
    enum Wait: CaseIterable {
        case ready, current, sent, verification, history, account, devices, password, token
    }

    private static func wait(for wait: Wait, _ session: Session) async throws {
        let store = try session.keyValueStore()
        switch wait {
        case .ready: try await store.ready(timeout: .seconds(300))
        case .current: try await store.waitUntilCurrent(timeout: .seconds(300))
        case .sent: try await store.waitUntilSent(timeout: .seconds(300))
        case .verification: _ = try await store.verify(timeout: .seconds(300))
        case .history: _ = try await store.history(timeout: .seconds(300))
        case .account: _ = try await session.whoAmI()
        case .devices: _ = try await session.devices(timeout: .seconds(300))
        case .password: _ = try await session.changePassword(from: "a", to: "b", timeout: .seconds(300))
        // What has no token yet asks for one first.
        case .token:
            _ = try await session.call(
                .identity, WireWhoAmI(), as: WireWhoAmIReply.self, app: AppID("app.other"), timeout: .seconds(300))
        }
    }

    // No time passes from the closing on: nothing but the closing itself can end the waiting.
    @Test(arguments: Wait.allCases)
    func whoeverWaitsIsTold(_ what: Wait) async throws {
        try await withSessionCloud { house in
            let session = try await house.openSignedIn()
            house.cloud.network.setOffline("device-0", true)
            try session.keyValueStore().set(1, forKey: "a")
            let waiting = Task { try await Self.wait(for: what, session) }
            try await house.letBegin()
            session.close()
            let error = await #expect(throws: CloudError.self) { try await waiting.value }
            #expect(error?.code == .operationCancelled)
            let late = await #expect(throws: CloudError.self) { try await Self.wait(for: what, session) }
            #expect(late?.code == .operationCancelled)
            // What was accepted is here, and more is accepted.
            #expect(try session.keyValueStore().longLong(forKey: "a") == 1)
            try session.keyValueStore().set(2, forKey: "a")
        }
    }

    @Test func whoeverSignsInOrOutIsTold() async throws {
        try await withSessionCloud { house in
            let connection = try house.cloud.connection.description
            let session = try await house.open()
            house.cloud.network.setOffline("device-0", true)
            let signIn = Task {
                _ = try await session.signIn(
                    connection: connection, account: TestCloud.accountName, password: TestCloud.password)
            }
            try await house.letBegin()
            session.close()
            #expect(await #expect(throws: CloudError.self) { try await signIn.value }?.code == .operationCancelled)
            let other = try await house.openSignedIn()
            house.cloud.network.setOffline("device-1", true)
            let signOut = Task { _ = try await other.signOut(timeout: .seconds(30)) }
            try await house.letBegin()
            other.close()
            #expect(await #expect(throws: CloudError.self) { try await signOut.value }?.code == .operationCancelled)
        }
    }

    @Test func whoeverWaitsForACloudThatIsClosedIsTold() async throws {
        let house = try SessionCloud()
        let session = try await house.openSignedIn()
        house.cloud.network.setOffline("device-0", true)
        let store = try session.keyValueStore()
        let waiting = Task { try await store.ready(timeout: .seconds(300)) }
        let call = Task { _ = try await session.devices(timeout: .seconds(300)) }
        while house.waiterCount < 2 { try await Task.sleep(for: .milliseconds(1)) }
        house.run(for: .seconds(1))
        house.closeCloud()
        #expect(await #expect(throws: CloudError.self) { try await waiting.value }?.code == .operationCancelled)
        #expect(await #expect(throws: CloudError.self) { try await call.value }?.code == .operationCancelled)
        #expect(await #expect(throws: CloudError.self) { try await store.ready() }?.code == .operationCancelled)
        house.close()
    }

    @Test func streamsOfAClosedSessionEnd() async throws {
        try await withSessionCloud { house in
            let session = try await house.openSignedIn()
            let store = try session.keyValueStore()
            let early = (session.accountChanges, session.storageNotices, store.changes)
            session.close()
            for streams in [early, (session.accountChanges, session.storageNotices, store.changes)] {
                for await _ in streams.0 {}
                for await _ in streams.1 {}
                for await _ in streams.2 {}
            }
        }
    }

    /// A server that is connected to and says nothing.
    private final class SilentServer {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var port: UInt16 = 0

        init() throws {
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = inet_addr("127.0.0.1")
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let isListening = withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, length) == 0 && listen(descriptor, 8) == 0
                        && getsockname(descriptor, $0, &length) == 0
                }
            }
            try #require(isListening)
            port = UInt16(bigEndian: address.sin_port)
        }

        deinit { Glibc.close(descriptor) }

        /// Waits for somebody to connect.
        func accept() throws { try #require(Glibc.accept(descriptor, nil, nil) >= 0) }
    }

    @Test func whoeverWaitsOverTheRealTransportIsTold() async throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: home) }
        let server = try SilentServer()
        let key = try #require(PublicKey(bytes: [UInt8](repeating: 9, count: 32)))
        let connection = try ConnectionString(endpoint: "tcp://127.0.0.1:\(server.port)", key: key)
        weak var closed: Session?
        do {
            let session = try await Session.open(home: URL(fileURLWithPath: home))
            closed = session
            let waiting = Task {
                _ = try await session.signIn(
                    connection: connection, account: "anna", password: "x", deviceName: "here", timeout: .seconds(300))
            }
            try server.accept()
            session.close()
            #expect(await #expect(throws: CloudError.self) { try await waiting.value }?.code == .operationCancelled)
        }
        #expect(closed == nil)
    }
}
