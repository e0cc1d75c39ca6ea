import Foundation
import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosWire
import NephosZeroMQ
import SwiftProtobuf
import Synchronization

/// Where a service answers, and what proves that it is the one.
struct ServerAddress: Sendable {
    var endpoint: String
    var key: PublicKey
}

/// A device that was signed in for a run.
struct LoadDevice: Sendable {
    var keys: KeyPair
    var accessToken: String
    var refreshToken: String
}

/// An account and an app of their own in the deployment under load, with a
/// fresh store, and the devices that are signed in to it.
struct Enrolment {
    let store: String
    let keyValue: ServerAddress
    let subscriptions: ServerAddress
    let identity: ServerAddress
    let documents: ServerAddress
    let records: ServerAddress
    /// What the app keeps records in.
    let container: String
    /// Where documents take and give content.
    let bulk: ServerAddress
    let account: String
    private let transport: ZeroMQTransport
    private let client: OperatorClient
    private let others = Others()
    /// Removes account and app; nil: the deployment goes with them.
    private let cleanup: Int?
    static let password = "a password for measuring"

    /// Makes the account and the app, as the operator.
    ///
    /// - Throws: ``CloudError`` of the deployment's files, and of the calls.
    init(in deployment: LoadDeployment, transport: ZeroMQTransport) throws {
        let files = DeploymentFiles(directory: deployment.directory)
        let roster = try files.roster()
        self.transport = transport
        identity = try Self.address(of: .identity, in: roster) { $0.publicRequests ?? $0.requests }
        keyValue = try Self.address(of: .keyValue, in: roster) { $0.publicRequests ?? $0.requests }
        subscriptions = try Self.address(of: .notifications, in: roster) { $0.publicSubscriptions ?? $0.subscriptions }
        documents = try Self.address(of: .documents, in: roster) { $0.publicRequests ?? $0.requests }
        records = try Self.address(of: .records, in: roster) { $0.publicRequests ?? $0.requests }
        bulk = try Self.address(of: .documents, in: roster) { $0.publicBulk ?? $0.bulk }
        var generator = SystemRandomNumberGenerator()
        let name = LoadNames.prefix + String(UInt64.random(in: 0..<1 << 48, using: &generator), radix: 32)
        account = name.lowercased()
        store = name
        container = name
        let client = OperatorClient(identity: identity, keys: try files.operatorKeys(), transport: transport)
        self.client = client
        let (account, others) = (account, others)
        cleanup =
            deployment.isOwn
            ? nil
            : Cleanup.shared.add {
                for other in others.names.withLock({ $0 }) { client.close(account: other) }
                client.remove(account: account, app: name)
            }
        do {
            var app = WireCreateApp()
            app.app.appID = name
            app.app.storeID = name
            app.app.containerIds = [name]
            _ = try client.call(app, returning: WireCreateAppReply.self)
            try Self.make(account, by: client)
        } catch {
            close()
            throw error
        }
    }

    private static func make(_ account: String, by client: OperatorClient) throws {
        var person = WireCreateAccount()
        person.accountName = account
        person.password = password
        _ = try client.call(person, returning: WireCreateAccountReply.self)
    }

    /// Removes the accounts and the app.
    func close() {
        if let cleanup { Cleanup.shared.run(cleanup) }
    }

    private static func address(
        of service: ServiceName, in roster: Roster, _ endpoint: (Roster.Entry) -> String?
    ) throws -> ServerAddress {
        let entry = try roster.entry(of: service)
        guard let endpoint = endpoint(entry) else {
            throw CloudError(
                .configurationInvalid, "The roster has no such address.", details: ["service": service.rawValue])
        }
        return ServerAddress(endpoint: endpoint, key: try entry.key)
    }

    /// Signs in as many devices, each with a key pair of its own.
    ///
    /// - Parameter eachOfAnotherAccount: Of an account that is made for it, but for the first.
    func devices(_ count: Int, eachOfAnotherAccount: Bool = false) throws -> [LoadDevice] {
        try (0..<count).map { index in
            let keys = try transport.makeKeyPair()
            var request = WireSignIn()
            request.accountName = eachOfAnotherAccount && index > 0 ? try makeAnother() : account
            request.password = Self.password
            request.deviceName = "load \(index)"
            request.appID = store
            let reply = try call(request, keys: keys, returning: WireSignInReply.self)
            return LoadDevice(keys: keys, accessToken: reply.accessToken.token, refreshToken: reply.refreshToken)
        }
    }

    /// Accounts that were made besides.
    private final class Others: Sendable {
        let names = Mutex<[String]>([])
    }

    private func makeAnother() throws -> String {
        let name = others.names.withLock { names in
            names.append("\(account)-\(names.count + 1)")
            return names[names.count - 1]
        }
        try Self.make(name, by: client)
        return name
    }

    /// What a device of the SDK needs to sign in.
    func signIn(deviceName: String) -> SignInRequest {
        SignInRequest(
            identity: SessionRecord.Service(
                service: ServiceName.identity.rawValue, publicKey: identity.key.z85, requests: [identity.endpoint],
                subscriptions: []),
            accountName: account, password: Self.password, deviceName: deviceName, app: AppID(store))
    }

    /// The whole store, as the server has it now, under a fresh token of the device.
    func pull(
        as device: inout LoadDevice
    ) throws -> (values: [ItemName: PropertyValue], head: ChangeToken, digest: SetDigest) {
        var renewal = WireRefreshToken()
        renewal.refreshToken = device.refreshToken
        renewal.appID = store
        let tokens = try call(renewal, keys: device.keys, returning: WireRefreshTokenReply.self)
        device.accessToken = tokens.accessToken.token
        device.refreshToken = tokens.refreshToken
        var reading = ChangesReading(.scope(store), after: .zero)
        var values: [ItemName: PropertyValue] = [:]
        var reply: WireReadChangesReply
        repeat {
            reply = try call(
                reading.request, to: keyValue, keys: device.keys, accessToken: device.accessToken,
                returning: WireReadChangesReply.self)
            for change in reply.changes {
                let item = try KeyValueItem(WireKeyValueItem(serializedBytes: change.body))
                values[item.key] = item.value
            }
        } while try !reading.take(reply)
        guard let digest = SetDigest(bytes: Array(reply.digest)) else {
            throw CloudError(.internalError, "The server's digest is not one.")
        }
        return (values, ChangeToken(reply.token), digest)
    }

    func call<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ request: Request, to service: ServerAddress? = nil, keys: KeyPair, accessToken: String = "",
        returning: Response.Type
    ) throws -> Response {
        try Call.make(
            request, to: service ?? identity, keys: keys, accessToken: accessToken, transport: transport,
            returning: Response.self)
    }
}
