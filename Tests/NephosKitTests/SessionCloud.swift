import Bus
import Core
import Foundation
import NephosKit
import Synchronization
import TestKit
import Testing

/// A ``TestCloud`` with devices that are used as an app uses them: by ``Session``, from tasks, while the simulation
/// runs on the test's thread.
final class SessionCloud {
    let cloud: TestCloud
    private let root = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
    private var transports: [HandedOverTransport] = []
    private var sessions: [Session] = []

    init(seed: UInt64 = 1) throws { cloud = try TestCloud(seed: seed) }

    /// Another device, on which nobody is signed in.
    func open() async throws -> Session {
        let name = "device-\(sessions.count)"
        let transport = HandedOverTransport(name: name, InProcessTransport(cloud.network))
        transports.append(transport)
        let session = try await Session.open(home: root + "/" + name, transport: transport)
        sessions.append(session)
        return session
    }

    /// Another device, signed in to the account.
    func openSignedIn() async throws -> Session {
        let session = try await open()
        let connection = try cloud.connection.description
        try await wait {
            try await session.signIn(
                connection: connection, account: TestCloud.accountName, password: TestCloud.password)
        }
        return session
    }

    /// Runs the simulation until the body has ended.
    @discardableResult
    func wait<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) async throws -> Value {
        let task = Task { try await body() }
        let ended = Mutex(false)
        let watch = Task {
            _ = await task.result
            ended.withLock { $0 = true }
        }
        while !ended.withLock({ $0 }) {
            run(for: .milliseconds(20))
            try await Task.sleep(for: .microseconds(200))
        }
        await watch.value
        return try await task.value
    }

    /// Lets a task that was just started come as far as it can by itself.
    func letBegin() async throws {
        for _ in 0..<50 {
            try await Task.sleep(for: .milliseconds(2))
            run(for: .milliseconds(20))
        }
    }

    /// Lets this much time pass.
    func run(for duration: Duration) {
        let end = cloud.network.now + duration
        while cloud.network.now < end {
            for transport in transports { transport.handOver() }
            cloud.network.run(for: min(.milliseconds(20), end - cloud.network.now))
        }
    }

    func close() {
        for session in sessions { session.close() }
        cloud.close()
        try? FileManager.default.removeItem(atPath: root)
    }
}

/// Hands what other threads want done over to the one that runs the simulation.
private final class HandedOverTransport: Transport {
    private let name: String
    private let inner: InProcessTransport
    private let handed = Mutex<[@Sendable () -> Void]>([])

    init(name: String, _ inner: InProcessTransport) {
        self.name = name
        self.inner = inner
    }

    func startLoop(
        named _: String, _ setUp: @escaping @Sendable (any BusLoop) throws -> Void
    ) throws -> any LoopHandle {
        Handle(transport: self, inner: try inner.startLoop(named: name, setUp))
    }

    func makeKeyPair() throws -> KeyPair { try inner.makeKeyPair() }

    func handOver() {
        let work = handed.withLock { handed in
            defer { handed = [] }
            return handed
        }
        for work in work { work() }
    }

    private struct Handle: LoopHandle {
        let transport: HandedOverTransport
        let inner: any LoopHandle

        func execute(_ work: @escaping @Sendable (any BusLoop) -> Void) {
            transport.handed.withLock { $0.append { inner.execute(work) } }
        }

        func stop() { inner.stop() }
    }
}

func withSessionCloud(_ body: (SessionCloud) async throws -> Void) async throws {
    let cloud = try SessionCloud()
    defer { cloud.close() }
    try await body(cloud)
}
