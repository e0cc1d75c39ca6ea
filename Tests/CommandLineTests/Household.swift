import Foundation
import NephosCore
import NephosServiceKit
import Synchronization
import Testing

/// A deployment in a folder of its own, with one account.
///
/// For tests that stop, damage, configure or count parts of the deployment, or make apps; others share one (``Tenant``).
final class Household: Resident {
    static let accountName = "ann"
    // Tests of one run at the same time take different ports.
    private static let nextPort = Atomic(10_000 + Int(getpid()) % 400 * 50)

    let folder: String
    let nephos: Program
    private let caretaker: Caretaker
    var accountName: String { Self.accountName }
    var deployment: String { folder + "/deployment" }
    var run: RunFolder { RunFolder(deployment: deployment) }
    var connection: String {
        get async throws {
            try await nephos.run("status", "--connection").output.trimmingCharacters(in: .whitespacesAndNewlines)
        }
    }

    /// - Parameter options: Further ones of `nephos init`.
    init(_ options: [String] = []) async throws {
        folder = NSTemporaryDirectory() + "nephos-test-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        nephos = Program(
            name: "nephos",
            environment: ["NEPHOS_DEPLOYMENT": folder + "/deployment", "NEPHOS_HOME": folder + "/home"])
        caretaker = try Caretaker(of: nephos, folder)
        let start = Self.nextPort.wrappingAdd(Deployment.portCount, ordering: .relaxed).newValue
        let port = try #require(LocalPorts.firstFree(from: start))
        let made = try await nephos.run(["init", "--port", "\(port)", "--web-port", "0"] + options)
        try #require(made.status == 0, "\(made.errors)")
    }

    /// Stops what runs, and removes everything.
    func close() async { await caretaker.end() }

    /// Starts the services.
    ///
    /// - Parameters:
    ///   - settings: What the services take from the environment.
    ///   - lifetime: Seconds that an access token lives.
    func start(_ settings: [String: String] = [:], lifetime: Int = 900) async throws {
        var operatorProgram = person
        operatorProgram.environment["NEPHOS_IDENTITY_ACCESS_TOKEN_LIFETIME_SECONDS"] = "\(lifetime)"
        operatorProgram.environment.merge(settings) { $1 }
        let up = try await operatorProgram.run("up")
        try #require(up.status == 0, "\(up.errors)")
    }

    /// The same, and signs a person in.
    func begin(_ settings: [String: String] = [:], lifetime: Int = 900) async throws {
        try await start(settings, lifetime: lifetime)
        try await moveIn()
    }

    func holder(_ place: RunFolder.Place) throws -> pid_t { try #require(run.holder(of: place)) }

    func holder(_ service: ServiceName) throws -> pid_t { try holder(.service(service)) }

    /// The places that are held.
    var held: [RunFolder.Place] { RunFolder.Place.all.filter { run.holder(of: $0) != nil } }
}

/// Runs the body with a deployment, and takes it away whatever happens.
func withHousehold(_ options: [String] = [], _ body: (Household) async throws -> Void) async throws {
    let household = try await Household(options)
    do { try await body(household) } catch {
        await household.close()
        throw error
    }
    await household.close()
}

/// A process that takes a deployment away when it is told to, or when the tests' process ends, however that ends: both
/// close the pipe that it reads.
private struct Caretaker: Sendable {
    private let process: Program.Running
    private let line: Int32

    init(of nephos: Program, _ folder: String) throws {
        let pipe = folder + "/alive"
        try #require(mkfifo(pipe, 0o600) == 0)
        // Programs that are started do not get it.
        line = open(pipe, O_RDWR | O_CLOEXEC)
        try #require(line >= 0)
        // In a session of its own: Ctrl-C is for the tests.
        process = try nephos.start(
            [folder], input: pipe, before: ["setsid", "sh", "-c", #"cat; "$0" down; rm -rf "$1""#])
        process.dropOutput()
    }

    func end() async {
        close(line)
        _ = await process.outcome()
    }
}

extension RunFolder.Place {
    /// Those of a deployment without the web's program, which tests of other things do not start.
    static var ofServices: [Self] { [.supervisor] + ServiceName.all.map { .service($0) } }
}
