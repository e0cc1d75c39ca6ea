import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosWire
import NephosZeroMQ
import SwiftProtobuf
import Synchronization

/// How what this program makes in a deployment is called.
enum LoadNames {
    /// Apps; accounts begin with the same in lower case.
    static let prefix = "LOAD."
}

/// Identity, as the operator of the deployment under load speaks with it.
struct OperatorClient: Sendable {
    let identity: ServerAddress
    let keys: KeyPair
    let transport: ZeroMQTransport

    init(identity: ServerAddress, keys: KeyPair, transport: ZeroMQTransport) {
        self.identity = identity
        self.keys = keys
        self.transport = transport
    }

    /// - Throws: ``CloudError`` of the deployment's files.
    init(directory: String, transport: ZeroMQTransport) throws {
        let files = DeploymentFiles(directory: directory)
        let entry = try files.roster().entry(of: .identity)
        self.init(
            identity: ServerAddress(endpoint: entry.publicRequests ?? entry.requests, key: try entry.key),
            keys: try files.operatorKeys(), transport: transport)
    }

    func call<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ request: Request, returning: Response.Type
    ) throws -> Response {
        try Call.make(request, to: identity, keys: keys, transport: transport, returning: Response.self)
    }

    /// Removes an account and an app, as far as they are there.
    func close(account: String) {
        var person = WireCloseAccount()
        person.accountName = account
        _ = try? call(person, returning: WireCloseAccountReply.self)
    }

    func remove(account: String, app: String) {
        close(account: account)
        var removal = WireRemoveApp()
        removal.appID = app
        _ = try? call(removal, returning: WireRemoveAppReply.self)
    }
}

/// Calls over a connection of its own, each waited for.
final class Call: Sendable {
    private let loop: any LoopHandle
    private let client: LoopBound<RequestClient>

    /// - Throws: ``CloudError`` of the address.
    init(to service: ServerAddress, keys: KeyPair, transport: ZeroMQTransport) throws {
        let made = Mutex<LoopBound<RequestClient>?>(nil)
        loop = try transport.startLoop(named: "calls") { loop in
            let client = try RequestClient(
                loop: loop,
                socket: RequestSocketOptions(endpoints: [service.endpoint], serverKey: service.key, keys: keys))
            made.withLock { $0 = LoopBound(client, to: loop) }
        }
        guard let client = made.withLock({ $0 }) else {
            throw CloudError(.internalError, "A connection was not made.")
        }
        self.client = client
    }

    func close() { loop.stop() }

    func make<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ request: Request, accessToken: String = "", returning: Response.Type
    ) throws -> Response {
        let answer = Mutex<Result<Frame, CloudError>?>(nil)
        let answered = DispatchSemaphore(value: 0)
        let method = String(Request.protoMessageName.split(separator: ".").last ?? "")
        let body = Frame(encoding: request)
        loop.execute { [client] loop in
            client.withValue(on: loop) { client in
                _ = client.call(method, body: body, accessToken: accessToken, timeout: .seconds(30)) { reply in
                    answer.withLock { $0 = reply.result }
                    answered.signal()
                }
            }
        }
        answered.wait()
        guard let result = answer.withLock({ $0 }) else {
            throw CloudError(.internalError, "A call ended without an answer.")
        }
        return try result.get().decode(Response.self)
    }

    /// One over a connection that is made for it.
    static func make<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ request: Request, to service: ServerAddress, keys: KeyPair, accessToken: String = "",
        transport: ZeroMQTransport, returning: Response.Type
    ) throws -> Response {
        let line = try Call(to: service, keys: keys, transport: transport)
        defer { line.close() }
        return try line.make(request, accessToken: accessToken, returning: returning)
    }
}
