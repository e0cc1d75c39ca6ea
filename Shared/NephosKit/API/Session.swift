public import Foundation
public import Logging
package import NephosBus
public import NephosCore
internal import NephosWire
private import NephosZeroMQ
private import Synchronization

/// A device of a Nephos deployment: its home on disk, the account that is signed in, and the stores that it follows.
///
/// Several processes may open the same home at once. Safe to use from any task.
public final class Session: Sendable {
    /// The folder that holds the device's database and secrets.
    public let home: URL
    let local: LocalStore
    let engine: EngineHandle
    /// Called where it saves something; see ``DeviceOptions/fault``.
    let fault: (@Sendable (String) throws -> Void)?
    let events = EventBroadcast()

    /// The default home: `$NEPHOS_HOME`, or `~/.nephos`.
    public static var defaultHome: URL {
        if let home = SessionSurroundings.current?.home { return home }
        let environment = ProcessInfo.processInfo.environment
        let path = environment["NEPHOS_HOME"] ?? (environment["HOME"] ?? ".") + "/.nephos"
        return URL(fileURLWithPath: path, isDirectory: true)
    }

    /// Opens a home, signed in or not, and creates it if it does not exist.
    /// Needs no network.
    ///
    /// - Parameters:
    ///   - home: The device's folder. Its database and secrets are its user's alone.
    ///   - logger: Gets the session's log, which never contains stored data.
    /// - Throws: ``CloudError`` `.storageFailure` or `.configurationInvalid`; the details name the path.
    public static func open(
        home: URL = Session.defaultHome, logger: Logger = Logger(label: "nephos.device")
    ) async throws(CloudError) -> Session {
        try await open(home: home, transport: nil, options: nil, logger: logger)
    }

    /// The same, over another transport than ZeroMQ, or behaving as tests want it.
    package static func open(
        home: URL = Session.defaultHome, transport: (any Transport)? = nil, options: DeviceOptions?,
        logger: Logger = Logger(label: "nephos.device")
    ) async throws(CloudError) -> Session {
        let around = SessionSurroundings.current
        return try Session(
            home: home, transport: transport ?? around?.transport ?? ZeroMQTransport(),
            options: options ?? around?.makeOptions(), logger: logger)
    }

    private init(
        home folder: URL, transport: any Transport, options: DeviceOptions?, logger: Logger
    ) throws(CloudError) {
        home = folder
        let home = try LocalPath(folder).text
        do {
            try FileManager.default.createDirectory(
                atPath: home, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw Self.unusable(home)
        }
        let local = try LocalStore(
            path: home + "/device.sqlite", temporaryFolder: options?.temporaryFolder, fault: options?.fault)
        let secrets = SecretFile(home: home, sealingKey: options?.sealingKey, fault: options?.fault)
        fault = options?.fault
        var options = options ?? DeviceOptions()
        if options.foreignPoll == nil, !options.isAlone { options.foreignPoll = .milliseconds(250) }
        if options.makeWay == nil, !options.isAlone, !options.isOffline, transport is ZeroMQTransport {
            options.makeWay = { UnixHomeWay(home: home, loop: $0) }
        }
        self.local = local
        let events = events
        engine = try EngineHandle(transport: transport, seed: options.seed) { [options] loop in
            let engine = DeviceEngine(
                loop: loop, local: local, secrets: secrets, options: options, logger: logger,
                makeKeyPair: { try transport.makeKeyPair() })
            engine.onEvent = { events.send($0) }
            options.onMade?(engine)
            return engine
        }
    }

    private static func unusable(_ home: String) -> CloudError {
        var isFolder: ObjCBool = false
        let details = ["home": home]
        if FileManager.default.fileExists(atPath: home, isDirectory: &isFolder), !isFolder.boolValue {
            return CloudError(
                .configurationInvalid, "The device's home is a folder, and this is a file. Name another.",
                details: details)
        }
        return CloudError(
            .storageFailure, "The device's home cannot be created. Check where it is to be, and who may write there.",
            details: details)
    }

    deinit { close() }

    /// Ends the session's work. Pending changes stay on disk, and the next session of this home sends them. Present and
    /// later calls throw ``CloudError`` `.operationCancelled`, and streams of events end.
    public func close() {
        engine.stop()
        events.finish()
        local.changed.end()
    }

    // MARK: Who is signed in

    /// The account that is signed in on this home; nil: none. Needs no network.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public var account: SessionRecord? {
        get throws(CloudError) {
            let session = try local.read { try Facts($0).session }
            return session?.signedIn == true && session?.isPublic != true ? session : nil
        }
    }

    /// Whose the home is: who is signed in, or was last; nil: nobody ever was.
    package var lastAccountName: String? {
        get throws(CloudError) {
            let session = try local.read { try Facts($0).session }
            return session?.isPublic == true ? nil : session?.accountName
        }
    }

    /// What this device was called when the account was signed in here last; nil: another was, or nobody.
    package func lastDeviceName(of account: String) throws(CloudError) -> String? {
        let session = try local.read { try Facts($0).session }
        return session?.isNamed(account) == true ? session?.deviceName : nil
    }

    /// A token of the account: equal as long as the same account is signed in, also while offline. Nil: no account is.
    /// ``accountChanges`` delivers each change.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public var ubiquityIdentityToken: UbiquityIdentityToken? {
        get throws(CloudError) { try account?.ubiquityIdentityToken }
    }

    /// Signs this device in.
    ///
    /// - Parameters:
    ///   - connection: From the deployment's operator.
    ///   - account: The account's name.
    ///   - password: The account's password. It is not kept.
    ///   - deviceName: This device's name in the account's list, at most 256 bytes.
    ///   - deviceModel: The kind of device, for users to read; may be empty.
    ///   - policyClass: How the device uses its disk.
    ///   - app: The app to sign in as; nil: the deployment's default app.
    ///   - discardsUnsent: Whether pending, rejected and conflicting changes of another account may be discarded.
    ///   - code: From `nephos devices allow-sign-in` on another device, while someone else guesses the password.
    ///   - timeout: How long to wait for the answer.
    /// - Returns: The new sign-in.
    /// - Throws: ``CloudError`` `.wrongCredentials`; `.requestRateLimited` after too many of those, with the time
    ///   to wait; `.networkFailure` when the server cannot be reached; `.constraintViolation` when changes of
    ///   another account were never sent.
    @discardableResult
    public func signIn(
        connection: ConnectionString, account: String, password: String, deviceName: String, deviceModel: String = "",
        policyClass: DevicePolicyClass = .computer, app: AppID? = nil, discardsUnsent: Bool = false,
        code: String = "", timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> SessionRecord {
        var request = SignInRequest(
            identity: SessionRecord.Service(connection), accountName: account, password: password,
            deviceName: deviceName, deviceModel: deviceModel, platform: "linux", policyClass: policyClass, app: app,
            discardsUnsent: discardsUnsent, code: code)
        request.timeout = timeout
        return try await engine.perform { [request] engine, completion in engine.signIn(request, completion) }
    }

    /// Lets this home read one container's public database without an account, with a token that the app ships (`nephos
    /// app token create`). Use ``recordContainer(_:app:)`` and its public database. Saving is not possible.
    ///
    /// This lasts until an account signs in on the home. Reads need the network, unless a copy is kept
    /// (``RecordDatabase/keepCopy()``).
    ///
    /// - Parameters:
    ///   - connection: From the deployment's operator.
    ///   - appToken: The token's text.
    ///   - timeout: The time that the server has to answer.
    /// - Throws: ``CloudError`` `.notAuthenticated` (the token is wrong, or was revoked), `.constraintViolation` (the
    ///   home has an account, or unsent changes), `.requestRateLimited`, `.networkFailure` and the like.
    public func usePublicDatabase(
        connection: ConnectionString, appToken: String, timeout: Duration = .seconds(30)
    ) async throws(CloudError) {
        let identity = SessionRecord.Service(connection)
        let _: SessionRecord = try await engine.perform { engine, completion in
            engine.usePublic(identity, appToken: appToken, timeout: timeout, completion)
        }
    }

    /// Finds out what can be known of a sign-in before anybody is asked for a password: whether this home can keep it,
    /// and whether somebody answers at the address.
    ///
    /// - Throws: ``CloudError`` as a sign-in does.
    package func requireSignInPossible(
        connection: ConnectionString, account: String, discardsUnsent: Bool, timeout: Duration
    ) async throws(CloudError) {
        var request = SignInRequest(
            identity: SessionRecord.Service(connection), accountName: account, password: "", deviceName: "",
            discardsUnsent: discardsUnsent)
        request.timeout = timeout
        try await engine.perform { [request] engine, completion in
            engine.requireSignInPossible(request, completion)
        }
    }

    /// Moves this device to another address of its deployment, without a password: the server's key proves that it is
    /// the same server. If the server does not answer there, nothing changes.
    ///
    /// - Parameters:
    ///   - connection: The connection string with the new address.
    ///   - account: The account's name.
    ///   - timeout: How long to wait for the answer.
    /// - Returns: The session with its new address. Nil: this device is not signed in to that account of that deployment,
    ///   or its sign-in has ended; sign in.
    /// - Throws: ``CloudError`` `.networkUnavailable`, `.deadlineExceeded`: the server does not answer at this address;
    ///   check it, or try again later. `.storageFailure`.
    public func updateAddress(
        connection: ConnectionString, account: String, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> SessionRecord? {
        let identity = SessionRecord.Service(connection)
        return try await engine.perform { engine, completion in
            engine.updateAddress(identity, account: account, timeout: timeout, completion)
        }
    }

    /// Signs this device out. The account's content stays until another account signs in.
    ///
    /// - Parameters:
    ///   - keepsUnsent: Whether pending changes may stay here unsent, until this account signs in again.
    ///   - timeout: How long to wait for the server, which may not answer; nil: a few seconds at most.
    /// - Returns: Whether the server was notified, and the number of changes that stay here unsent.
    /// - Throws: ``CloudError`` `.constraintViolation` when changes are pending and may not stay.
    @discardableResult
    public func signOut(
        keepsUnsent: Bool = false, timeout: Duration? = nil
    ) async throws(CloudError) -> SignedOut {
        try await engine.perform { engine, completion in
            engine.signOut(keepsUnsent: keepsUnsent, timeout: timeout, completion)
        }
    }

    /// The account and device as the server knows them. Asks the server.
    ///
    /// - Throws: ``CloudError`` `.notSignedIn`, `.deviceRevoked` (sign in); `.networkUnavailable` and the like (try
    ///   again).
    public func whoAmI() async throws(CloudError) -> AccountInformation {
        let reply = try await call(.identity, WireWhoAmI(), as: WireWhoAmIReply.self)
        return AccountInformation(
            accountID: AccountID(reply.accountID), accountName: reply.accountName,
            device: DeviceInformation(reply.device), app: AppID(reply.app.appID), store: StoreID(reply.app.storeID))
    }

    /// The account's devices, those that were revoked included. Asks the server.
    ///
    /// - Parameters:
    ///   - withSignedOut: Whether to list devices that have signed out.
    ///   - timeout: How long to wait for each answer; nil: as long as any call of this session.
    /// - Throws: ``CloudError`` as ``whoAmI()`` does.
    public func devices(
        withSignedOut: Bool = false, timeout: Duration? = nil
    ) async throws(CloudError) -> [DeviceInformation] {
        var devices: [DeviceInformation] = []
        var request = WireListDevices()
        request.withSignedOut = withSignedOut
        while true {
            let reply = try await call(.identity, request, as: WireListDevicesReply.self, timeout: timeout)
            devices += reply.devices.map(DeviceInformation.init)
            guard reply.more, let last = reply.devices.last else { break }
            request.after = last.deviceID
        }
        for device in devices { await noteName(device.name, of: device.id) }
        return devices
    }

    /// Revokes a device: within seconds it can neither read nor write any more.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when the account has no such device; else as ``whoAmI()`` does.
    @discardableResult
    public func revoke(_ device: DeviceID) async throws(CloudError) -> DeviceInformation {
        var request = WireRevokeDevice()
        request.deviceID = device.rawValue
        return DeviceInformation(try await call(.identity, request, as: WireRevokeDeviceReply.self).device)
    }

    // MARK: Stores and events

    /// An app's key-value store; nil: the app that signed in. Needs no network, and is followed from now on.
    ///
    /// - Throws: ``CloudError`` `.notSignedIn` when no app is named and no account has ever signed in.
    public func keyValueStore(app: AppID? = nil) throws(CloudError) -> KeyValueStore {
        var app = app
        if app == nil { app = try local.read { try Facts($0).session }?.defaultApp }
        guard let app else { throw CloudError(.notSignedIn, "Sign in, or name the app.") }
        engine.execute { $0.keyValue(app).connected() }
        return KeyValueStore(app: app, session: self)
    }

    /// Each change of the signed-in account: the new identity token, or nil.
    public var accountChanges: AsyncStream<UbiquityIdentityToken?> {
        let source = events.subscribe {
            if case .accountChanged = $0 { true } else { false }
        }
        return AsyncStream { continuation in
            let task = Task {
                for await event in source {
                    guard case .accountChanged(let session) = event else { continue }
                    continuation.yield(session?.ubiquityIdentityToken)
                }
                continuation.finish()
            }
            continuation.onTermination = { _ in task.cancel() }
        }
    }

    /// - Parameter wants: What of it; all else is not kept for the listener.
    func subscribe(_ wants: @escaping @Sendable (DeviceEvent) -> Bool) -> AsyncStream<DeviceEvent> {
        events.subscribe(wants)
    }
}
