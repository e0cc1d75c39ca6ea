import Foundation
import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import Testing

/// A ``TestCloud`` with devices that are used as an app uses them: by ``Session``, from tasks. Time passes when a test
/// says so.
final class SessionCloud {
    let cloud: TestCloud
    private let simulation: Simulation
    private let root = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
    private var sessions: [Session] = []

    init(seed: UInt64 = 1) throws {
        let cloud = try TestCloud(seed: seed)
        self.cloud = cloud
        simulation = try Simulation(waitingPassesTime: false) { cloud }
    }

    /// Another device, on which nobody is signed in.
    func open() async throws -> Session {
        let name = "device-\(sessions.count)"
        let session = try await Session.open(
            home: URL(fileURLWithPath: root + "/" + name), transport: simulation.transport(of: name),
            options: simulation.makeOptions(of: name))
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

    /// Lets time pass until the body has ended.
    @discardableResult
    func wait<Value: Sendable>(_ body: @escaping @Sendable () async throws -> Value) async throws -> Value {
        simulation.waitingPassesTime = true
        defer { simulation.waitingPassesTime = false }
        return try await body()
    }

    /// Lets a task that was just started come to where it waits, and time pass.
    func letBegin() async throws {
        while simulation.waiterCount == 0 { try await Task.sleep(for: .milliseconds(1)) }
        run(for: .seconds(1))
    }

    /// How many wait for a session.
    var waiterCount: Int { simulation.waiterCount }

    /// Ends the cloud before its sessions.
    func closeCloud() { simulation.close() }

    /// Lets this much time pass.
    func run(for duration: Duration) { simulation.advance(by: duration) }

    func close() {
        for session in sessions { session.close() }
        simulation.close()
        try? FileManager.default.removeItem(atPath: root)
    }
}

func withSessionCloud(_ body: (SessionCloud) async throws -> Void) async throws {
    let cloud = try SessionCloud()
    defer { cloud.close() }
    try await body(cloud)
}
