import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosWire
import NephosZeroMQ
import SwiftProtobuf
import Synchronization

/// The operator's way to the services of a deployment: with the operator's
/// key, from the deployment's folder.
final class OperatorConnection {
    private let roster: Roster
    private let keys: KeyPair
    private let transport: ZeroMQTransport
    private let timeout: Duration

    /// - Throws: ``CloudError`` `.configurationInvalid` when the folder has no
    ///   deployment, or the operator's secret is missing or readable by others.
    init(directory: DeploymentDirectory) throws {
        try directory.requireDeployment()
        let files = DeploymentFiles(directory: directory.path)
        roster = try files.roster()
        keys = try files.operatorKeys()
        transport = ZeroMQTransport()
        timeout = directory.timeout ?? WaitOptions.standard
    }

    /// What devices sign in with.
    var connectionString: ConnectionString {
        get throws { try roster.connectionString() }
    }

    /// Calls one method and waits for its reply; not at all where nobody listens.
    func call<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ service: ServiceName, _ request: Request, returning: Response.Type, timeout: Duration? = nil
    ) throws -> Response {
        try callAll([service], request, returning: Response.self, timeout: timeout ?? self.timeout)[0].get()
    }

    /// Whether there is an account of this name; asked before a person is asked anything.
    func hasAccount(_ name: String) throws -> Bool {
        do { try requireAccount(name) } catch let error as CloudError where error.code == .unknownItem { return false }
        return true
    }

    /// - Throws: ``CloudError`` `.unknownItem` when there is no account of this name.
    func requireAccount(_ name: String) throws {
        var request = WireReadStorage()
        request.accountName = name
        _ = try call(.identity, request, returning: WireReadStorageReply.self)
    }

    /// - Throws: ``CloudError`` `.unknownItem` when there is no plan of this name.
    func requirePlan(_ name: String) throws {
        let plans = try call(.identity, WireListPlans(), returning: WireListPlansReply.self).plans
        guard plans.contains(where: { $0.planID == name }) else {
            throw CloudError(.unknownItem, "There is no such plan. See: nephos plan list")
        }
    }

    struct Health {
        var service: ServiceName
        var reply: WireCheckHealthReply?
    }

    /// Asks all services at once how they are.
    func health(timeout: Duration) throws -> [Health] {
        let results = try callAll(
            ServiceName.all, WireCheckHealth(), returning: WireCheckHealthReply.self, timeout: timeout)
        return zip(ServiceName.all, results).map { Health(service: $0, reply: try? $1.get()) }
    }

    private func callAll<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ services: [ServiceName], _ request: Request, returning: Response.Type, timeout: Duration
    ) throws -> [Result<Response, CloudError>] {
        let answers = Answers(count: services.count)
        let body = Frame(encoding: request)
        let method = String(Request.protoMessageName.split(separator: ".").last ?? "")
        let addresses = try services.map { try roster.entry(of: $0) }
        let keys = keys
        let loop = try transport.startLoop(named: "operator") { loop in
            for (index, address) in addresses.enumerated() {
                let client = try RequestClient(
                    loop: loop,
                    socket: RequestSocketOptions(
                        endpoints: [address.requests], serverKey: try address.key, keys: keys)
                )
                client.call(method, body: body, timeout: timeout, endsWhenRefused: true) { reply in
                    // The pending call keeps its client.
                    withExtendedLifetime(client) { answers.set(index, reply.result) }
                }
            }
        }
        defer { loop.stop() }
        return answers.wait().map { result in
            result.flatMap { frame in
                do {
                    return .success(try frame.decode(Response.self))
                } catch {
                    return .failure(CloudError(wrapping: error))
                }
            }
        }
    }
}

/// Results that arrive on a loop and are waited for on a plain thread.
private final class Answers: Sendable {
    private let results: Mutex<[Result<Frame, CloudError>?]>
    private let arrived = DispatchSemaphore(value: 0)
    private let count: Int

    init(count: Int) {
        results = Mutex(Array(repeating: nil, count: count))
        self.count = count
    }

    func set(_ index: Int, _ result: Result<Frame, CloudError>) {
        results.withLock { $0[index] = result }
        arrived.signal()
    }

    /// Every call has a timeout, so each of them signals.
    func wait() -> [Result<Frame, CloudError>] {
        for _ in 0..<count { arrived.wait() }
        return results.withLock { $0.compactMap { $0 } }
    }
}
