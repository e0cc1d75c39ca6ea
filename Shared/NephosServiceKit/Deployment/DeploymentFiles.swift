internal import Crypto
internal import Foundation
public import NephosBus
public import NephosCore
internal import NephosFiles

/// The files of a deployment directory: one roster for all, one secret for each
/// service, and the operator's.
public struct DeploymentFiles: Sendable {
    public let directory: String
    /// Called before each file is written; a test ends what writes several there by throwing.
    var fault: (@Sendable (_ path: String) throws(CloudError) -> Void)?

    public init(directory: String) { self.directory = directory }

    public var rosterPath: String { "\(directory)/roster.json" }
    public func secretsPath(of service: ServiceName) -> String { "\(directory)/\(service).secret.json" }
    public var operatorPath: String { "\(directory)/operator.secret.json" }
    /// The public half of the key that the deployment's secrets are sealed to when they are backed up.
    public var recoveryPath: String { "\(directory)/recovery.json" }

    /// The operator's key pair, as `operator.secret.json` has it, in Z85.
    private struct OperatorSecret: Codable {
        var publicKey: String
        var secretKey: String
    }

    // MARK: Reading

    /// - Throws: ``CloudError`` `.configurationInvalid`; the message names the cure.
    public func roster() throws(CloudError) -> Roster {
        try read(Roster.self, at: rosterPath, isSecret: false)
    }

    /// - Throws: ``CloudError`` `.configurationInvalid`, also when others may read the file.
    public func secrets(of service: ServiceName) throws(CloudError) -> ServiceSecrets {
        try requirePermissions(secretsPath(of: service), isSecret: true)
        return try readSecrets(of: service)
    }

    /// The same, whoever may read the file.
    func readSecrets(of service: ServiceName) throws(CloudError) -> ServiceSecrets {
        let secrets = try read(ServiceSecrets.self, at: secretsPath(of: service), isSecret: nil)
        guard secrets.service == service.rawValue else {
            throw CloudError(
                .configurationInvalid, "The secret file belongs to another service.",
                details: ["file": secretsPath(of: service), "service": secrets.service])
        }
        return secrets
    }

    /// - Throws: ``CloudError`` `.configurationInvalid`, also when others may read the file.
    public func operatorKeys() throws(CloudError) -> KeyPair {
        let secret = try read(OperatorSecret.self, at: operatorPath, isSecret: true)
        guard let publicKey = PublicKey(z85: secret.publicKey), let secretKey = SecretKey(z85: secret.secretKey) else {
            throw CloudError(
                .configurationInvalid, "The operator's keys are not in Z85.", details: ["file": operatorPath])
        }
        return KeyPair(publicKey: publicKey, secretKey: secretKey)
    }

    private func read<Value: Decodable>(
        _ type: Value.Type, at path: String, isSecret: Bool?
    ) throws(CloudError) -> Value {
        if let isSecret { try requirePermissions(path, isSecret: isSecret) }
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw errno == EACCES
                ? CloudError(
                    .permissionFailure, "This user may not read a deployment file. Run this as its owner.",
                    details: ["file": path])
                : CloudError(
                    .configurationInvalid,
                    "A deployment file is missing. Restore it from a copy, or make a deployment with: nephos init",
                    details: ["file": path])
        }
        let data: Data
        do { data = try FileHandle(fileDescriptor: descriptor, closeOnDealloc: true).readToEnd() ?? Data() } catch {
            throw CloudError(
                .configurationInvalid, "A deployment file cannot be read. Restore it from a copy.",
                details: ["file": path])
        }
        do { return try JSONDecoder().decode(type, from: data) } catch {
            throw CloudError(
                .configurationInvalid, "A deployment file is damaged. Restore it from a copy.",
                details: ["file": path])
        }
    }

    /// Nobody else may read a secret, or write what a service believes.
    func requirePermissions(_ path: String, isSecret: Bool) throws(CloudError) {
        guard let mode = Self.mode(of: path) else { return }
        guard !isSecret || mode & 0o077 == 0 else {
            throw CloudError(
                .configurationInvalid, "Others may read a secret file. Run: chmod 600 FILE",
                details: ["file": path, "mode": String(mode, radix: 8)])
        }
        guard mode & 0o022 == 0 else {
            throw CloudError(
                .configurationInvalid, "Others may write a deployment file. Run: chmod go-w FILE",
                details: ["file": path, "mode": String(mode, radix: 8)])
        }
        try requireOwnFolder()
    }

    /// Requires that nobody else may write in the deployment's folder.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`; the message names the cure.
    public func requireOwnFolder() throws(CloudError) {
        guard let folder = Self.mode(of: directory), folder & 0o022 == 0 else {
            throw CloudError(
                .configurationInvalid, "Others may write in the deployment's folder. Run: chmod go-w FOLDER",
                details: ["folder": directory])
        }
    }

    /// Requires that nobody but its owner has access to a service's data.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`; the message names the cure.
    public static func requirePrivateFolder(_ path: String) throws(CloudError) {
        guard let mode = mode(of: path), mode & 0o077 == 0 else {
            throw CloudError(
                .configurationInvalid, "Others have access to the data folder. Run: chmod 700 FOLDER",
                details: ["folder": path])
        }
    }

    static func mode(of path: String) -> Int? {
        let attributes = try? FileManager.default.attributesOfItem(atPath: path)
        return (attributes?[.posixPermissions] as? NSNumber).map { $0.intValue & 0o777 }
    }

    // MARK: Writing

    /// Writes the roster, readable by everyone.
    public func write(_ roster: Roster) throws(CloudError) { try write(roster, to: rosterPath, mode: 0o644) }

    /// Writes a service's secrets, readable by their owner alone.
    public func write(_ secrets: ServiceSecrets) throws(CloudError) {
        try write(secrets, to: secretsPath(of: ServiceName(secrets.service)), mode: 0o600)
    }

    /// Writes the operator's keys, readable by their owner alone.
    public func write(operatorKeys keys: KeyPair) throws(CloudError) {
        try write(
            OperatorSecret(publicKey: keys.publicKey.z85, secretKey: keys.secretKey.z85), to: operatorPath, mode: 0o600)
    }

    private func write(_ value: some Encodable, to path: String, mode: mode_t) throws(CloudError) {
        try fault?(path)
        do {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
            var data = try encoder.encode(value)
            data.append(UInt8(ascii: "\n"))
            // Flushed before what rests on it is stored elsewhere: a database whose keys are sealed with a master key
            // that a loss of power has undone could never be read again.
            try AtomicFile.write(data, to: path, mode: mode)
        } catch {
            throw CloudError(
                .configurationInvalid, "A deployment file cannot be written. Check the folder's owner and space.",
                details: ["file": path])
        }
    }
}

/// A new deployment: its roster and all secrets, and what a device needs to know.
public struct Deployment: Sendable {
    public var roster: Roster
    public var secrets: [ServiceSecrets]
    public var operatorKeys: KeyPair
    public var connection: ConnectionString

    /// Those that move content, in the order of their ports for it.
    public static let contentServices: [ServiceName] = [.documents, .records]

    /// Ports that a deployment takes from its base port on: two for each service, one for subscriptions, and one for
    /// each that moves content.
    public static let portCount = ServiceName.all.count * 2 + 1 + contentServices.count

    /// How far a service's port for content is from the base port; nil: it moves none.
    static func bulkPort(of service: String) -> Int? {
        contentServices.firstIndex { $0.rawValue == service }.map { portCount - contentServices.count + $0 }
    }

    /// Makes all keys of a deployment, in memory.
    ///
    /// - Parameters:
    ///   - host: Where services bind and reach each other, such as `127.0.0.1`, or `0.0.0.0` for all addresses; nil:
    ///     each at a host that is named like it, such as `keyvalue`, and binds where its environment says
    ///     (`NEPHOS_LISTEN_HOST`).
    ///   - advertisedHost: Where devices reach them; nil: at `host`.
    ///   - basePort: The first of ``portCount`` ports.
    /// - Throws: ``CloudError`` `.invalidArguments` for a host or port that cannot be one.
    public init(host: String?, advertisedHost: String? = nil, basePort: Int, transport: some Transport) throws {
        guard (1...65_535 - Self.portCount + 1).contains(basePort) else {
            throw CloudError(
                .invalidArguments, "A deployment takes thirteen ports, and there are 65535.",
                details: ["port": "\(basePort)", "port_max": "\(65_535 - Self.portCount + 1)"])
        }
        var entries: [Roster.Entry] = []
        var secrets: [ServiceSecrets] = []
        var connection: ConnectionString?
        let signingKey = Curve25519.Signing.PrivateKey()
        var generator = SystemRandomNumberGenerator()
        let signingKeyID = DeploymentKeyID.random(prefix: "key", using: &generator).rawValue
        for (index, service) in ServiceName.all.enumerated() {
            let keys = try transport.makeKeyPair()
            let host = host ?? service.rawValue
            let port = basePort + index * 2
            // Checks the host and the port for all.
            let address = try ConnectionString(host: host, port: port, key: keys.publicKey)
            if service == .identity {
                connection = try ConnectionString(host: advertisedHost ?? host, port: port, key: keys.publicKey)
            }
            entries.append(
                Roster.Entry(
                    service: service.rawValue, publicKey: keys.publicKey.z85, requests: address.endpoint,
                    events: try ConnectionString(
                        host: Roster.eventsHost(host), port: port + 1, key: keys.publicKey
                    ).endpoint,
                    subscriptions: service == .notifications
                        ? try ConnectionString(host: host, port: port + 2, key: keys.publicKey).endpoint : nil,
                    bulk: try Self.bulkPort(of: service.rawValue).map {
                        try ConnectionString(host: host, port: basePort + $0, key: keys.publicKey).endpoint
                    }))
            secrets.append(
                ServiceSecrets(
                    service: service.rawValue, secretKey: keys.secretKey.z85, masterKeys: [Self.makeMasterKey()],
                    historyKey: Self.makeHistoryKey(),
                    tokenSigningKey: service == .identity
                        ? signingKey.rawRepresentation.base64EncodedString() : nil,
                    tokenSigningKeyID: service == .identity ? signingKeyID : nil))
        }
        guard let connection else { throw CloudError(.internalError, "A deployment has an identity service.") }
        operatorKeys = try transport.makeKeyPair()
        roster = Roster(
            deployment: DeploymentKeyID.random(prefix: "dep", using: &generator).rawValue, services: entries,
            operatorKey: operatorKeys.publicKey.z85,
            tokenKeys: [signingKeyID: signingKey.publicKey.rawRepresentation.base64EncodedString()])
        if let advertisedHost { try roster.advertise(advertisedHost) }
        self.secrets = secrets
        self.connection = connection
    }

    static func makeHistoryKey() -> String {
        SymmetricKey(size: .bits128).withUnsafeBytes { Data($0).base64EncodedString() }
    }

    static func makeMasterKey() -> String {
        SymmetricKey(size: .bits256).withUnsafeBytes { Data($0).base64EncodedString() }
    }

    /// Makes a deployment and writes its files.
    ///
    /// - Parameters:
    ///   - check: Gets the roster before anything is written.
    ///   - complete: Writes what else belongs to the deployment.
    /// - Throws: ``CloudError`` `.alreadyExists` if there is one in the directory, `.configurationInvalid` if there is one
    ///   that has lost its roster, and what the check throws.
    public static func create(
        directory: String, host: String?, advertisedHost: String? = nil, basePort: Int, transport: some Transport,
        checking check: (Roster) throws -> Void = { _ in },
        completing complete: (DeploymentFiles) throws -> Void = { _ in }
    ) throws -> Deployment {
        let files = DeploymentFiles(directory: directory)
        try files.requireNoneInTurn()
        let deployment = try Deployment(
            host: host, advertisedHost: advertisedHost, basePort: basePort, transport: transport)
        try check(deployment.roster)
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        // Whoever makes one at the same time has made it now.
        let turn = try files.takeTurn()
        defer { files.endTurn(turn) }
        try files.requireNone()
        try files.beginMaking()
        for secrets in deployment.secrets { try files.write(secrets) }
        try files.write(operatorKeys: deployment.operatorKeys)
        try complete(files)
        files.endMaking()
        // Last, since it is what tells that a deployment is complete.
        try files.write(deployment.roster)
        return deployment
    }
}

// Rotation of the keys that lie in files. After a crash in between, run it again.
extension DeploymentFiles {
    /// Master keys that a service keeps once its newest wraps everything.
    /// Identity keeps the one before: a refresh that is repeated because its
    /// answer was lost may need it.
    private func masterKeysKept(by service: ServiceName) -> Int { service == .identity ? 2 : 1 }

    /// Whether a rotation has begun and was not finished.
    public func isRotatingMasterKey(of service: ServiceName) throws(CloudError) -> Bool {
        try secrets(of: service).masterKeys.count > masterKeysKept(by: service)
    }

    /// Gives a service another master key; the ones before it stay, until ``removeOldMasterKeys(of:)``.
    public func addMasterKey(of service: ServiceName) throws(CloudError) {
        var secrets = try secrets(of: service)
        secrets.masterKeys.insert(Deployment.makeMasterKey(), at: 0)
        try write(secrets)
    }

    /// What the newest master key of a service is called, by which the service tells that it has read it
    /// (`CheckHealthReply.newest_master_key`).
    public func newestMasterKey(of service: ServiceName) throws(CloudError) -> String {
        try OwnerKeys(masterKeys: secrets(of: service).masterKeys).newest
    }

    /// Removes the master keys that a service does not need. Only when its newest wraps everything.
    public func removeOldMasterKeys(of service: ServiceName) throws(CloudError) {
        var secrets = try secrets(of: service)
        secrets.masterKeys = Array(secrets.masterKeys.prefix(masterKeysKept(by: service)))
        try write(secrets)
    }

    /// Makes each service's next CURVE key, so that devices learn it; does nothing where there is one.
    public func announceKeys(_ transport: some Transport, at now: Timestamp) throws {
        try changeKeys { try KeyRotation.announce(&$0, &$1, transport, at: now) }
    }

    /// Makes the announced CURVE keys the services' own.
    ///
    /// - Parameter forced: Whether it does not matter how long ago they were announced.
    /// - Throws: ``CloudError`` `.constraintViolation` when none are announced, or too short a time ago.
    public func switchKeys(at now: Timestamp, forced: Bool) throws {
        try changeKeys { try KeyRotation.makeCurrent(&$0, &$1, at: now, forced: forced) }
    }

    /// Whether keys are announced, and no switch to them was begun that did not come to its end.
    public func awaitsSwitch() throws -> Bool {
        let roster = try roster()
        guard roster.services.contains(where: { $0.nextPublicKey != nil }) else { return false }
        return try roster.services.allSatisfy { try secrets(of: ServiceName($0.service)).nextSecretKey != nil }
    }

    private func changeKeys(_ change: (inout Roster, inout [ServiceSecrets]) throws -> Void) throws {
        var roster = try roster()
        var secrets = try roster.services.map { try self.secrets(of: ServiceName($0.service)) }
        try change(&roster, &secrets)
        for secrets in secrets { try write(secrets) }
        // Last: what a crash leaves without it is done again with the same result.
        try write(roster)
    }

    /// Gives the operator another key.
    public func replaceOperatorKey(_ transport: some Transport) throws {
        let keys = try transport.makeKeyPair()
        var roster = try roster()
        roster.operatorKey = keys.publicKey.z85
        try write(operatorKeys: keys)
        try write(roster)
    }
}

extension DeploymentFiles {
    /// Tells devices another address, from the next renewal of their tokens on.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a host that cannot be one.
    public func advertise(_ host: String) throws {
        var roster = try roster()
        try roster.advertise(host)
        try write(roster)
    }
}

private struct DeploymentKeyID: Identifier {
    let rawValue: String
    init(rawValue: String) { self.rawValue = rawValue }
}
