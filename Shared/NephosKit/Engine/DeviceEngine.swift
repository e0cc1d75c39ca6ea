package import Crypto
internal import GRDB
package import Logging
package import NephosBus
package import NephosCore
internal import NephosWire
package import SwiftProtobuf

/// What a device tells those who listen.
package enum DeviceEvent: Sendable {
    case change(ScopeID, ChangeNotification)
    /// Somebody signed in or out.
    case accountChanged(SessionRecord?)
    /// The plan has passed a threshold.
    case storage(StorageNotice)
    /// A fetch has ended; what it brought was told before.
    case didFetchChanges(ScopeID, StoreStatus)
}

/// How an engine behaves.
package struct DeviceOptions: Sendable {
    /// No server is asked for anything: what is here is read, and what is written waits for another session.
    package var isOffline = false
    /// Whoever waits for contents is told at once that nobody listens at the server's address, unless it has been heard:
    /// it may come back.
    package var isImpatient = false
    /// How long one request to a service may take before it counts as failed.
    package var timeout: Duration = .seconds(10)
    /// No other process uses this home, so none is looked for.
    package var isAlone = false
    /// How often to look for what other processes of this home have written; nil: there are none.
    package var foreignPoll: Duration?
    /// Pushes in flight per store.
    package var pushesInFlightMax = 32
    /// How long to wait for what may just have been overtaken before fetching it.
    package var gapGrace: Duration = .milliseconds(50)
    /// Items of one page of what is fetched; 0: as many as the service gives (4096).
    package var pageItemsMax: UInt32 = 0
    /// Where operation ids and jitter come from; nil: the system's random numbers.
    package var seed: UInt64?
    /// Called at each named step between two things that are saved, and before the home's files are read and written:
    /// a test ends the process there by throwing, or has the disk fail by a `POSIXError`.
    package var fault: (@Sendable (String) throws -> Void)?
    /// The folder whose disk has to have room for what is read from the server until all of it has come; nil: SQLite's
    /// own.
    package var temporaryFolder: String?
    /// How this process finds the others of its home; nil: there is no way, and each does for itself.
    package var makeWay: (@Sendable (any BusLoop) -> any HomeWay)?
    /// Services that this device reaches at other addresses than those that the server sends, as within a container network.
    package var addresses: [SessionRecord.Service] = []
    /// Seals the file with the home's secrets; nil: it is not sealed.
    package var sealingKey: SymmetricKey?
    /// Gets a session's engine, on its loop, before it starts.
    package var onMade: (@Sendable (DeviceEngine) -> Void)?

    package init() {}
}

/// Where one of the things that a device keeps in step stands.
package struct ScopeStatus: Sendable {
    package var app: AppID
    package var service: ServiceName
    /// Nil: the server has not told it yet, or nobody is signed in.
    package var scope: ScopeName?
    package var status: StoreStatus
}

/// The device side of Nephos on one bus loop: the session, its tokens, its
/// subscription and its stores.
///
/// Synchronous, with callbacks on the loop, so that a seeded simulation can
/// drive it. The `async` face is ``Session``.
package final class DeviceEngine {
    package let local: LocalStore
    let loop: any BusLoop
    let secrets: any SecretStore
    let options: DeviceOptions
    let logger: Logger
    let makeKeyPair: () throws -> KeyPair

    /// Gets every event, on the loop.
    package var onEvent: (DeviceEvent) -> Void = { _ in }

    /// Who is signed in, or was last.
    package internal(set) var session: SessionRecord?
    private var generator: SplitMix64
    /// Marks what this process has written, among all that share the home.
    let writer: Int64
    private(set) var clients: [ServiceName: RequestClient] = [:]
    private var stores: [AppID: KeyValueSync] = [:]
    lazy var home = HomeProcesses(self)
    /// What is kept in step, in an order that does not depend on chance.
    private(set) var scopes: [ScopeDriver] = []
    /// What it knows to keep in step.
    var kinds: [any ScopeKind] = [KeyValueKind(), DocumentsKind(), RecordsKind()]
    private var readerCount = 0
    package private(set) var stopped = false
    /// What ``checkForeign()`` has seen last.
    var foreignVersion = 0
    /// It will be said that the server has turned this device away, unless another process has signed out.
    package internal(set) var isTurningAway = false
    let serverTime = ServerTime()
    private(set) lazy var tokens = TokenKeeper(self)
    private(set) lazy var router = SubscriptionRouter(self)
    private(set) lazy var contents = ContentConnections(self)
    /// Uploads that the service is about to be asked to end.
    var endedUploads: [EndedUpload] = []
    /// Set while contents that nobody needs are yet to be removed: somebody stages.
    var sweeping: (any LoopTimer)?
    /// Set while it is about to be looked whether too many contents are here.
    var trimming: (any LoopTimer)?
    private(set) lazy var uploadRate = TransferRate(loop)
    private(set) lazy var downloadRate = TransferRate(loop)

    /// - Parameter makeKeyPair: A fresh CURVE key pair, for the first sign-in.
    package init(
        loop: any BusLoop, local: LocalStore, secrets: any SecretStore, options: DeviceOptions = DeviceOptions(),
        logger: Logger, makeKeyPair: @escaping () throws -> KeyPair
    ) {
        self.loop = loop
        self.local = local
        self.secrets = secrets
        self.options = options
        self.logger = logger
        self.makeKeyPair = makeKeyPair
        generator = SplitMix64(seed: options.seed ?? SystemRandomNumberGenerator().seed)
        writer = Int64(bitPattern: generator.next())
    }

    /// Reads who is signed in, and begins to follow the stores opened so far.
    package func start() throws(CloudError) {
        session = try local.read { try Facts($0).session }
        if secrets.hasOthers(than: session?.secrets) {
            // Of a sign-in that was cut short, or of one that is over.
            removeUnusedSecrets()
        }
        try tokens.load()
        if options.foreignPoll != nil { foreignVersion = try local.foreignVersion() }
        try sweepWhatIsLeft()
        home.begin(by: options.makeWay?(loop))
        pollForeign()
        for scope in scopes { scope.begin() }
    }

    /// In a transaction, in which no sign-in by another process saves its own: those are named by the session that is there
    /// then.
    func removeUnusedSecrets() {
        do throws(CloudError) {
            try local.write { secrets.removeOthers(than: try Facts($0).session?.secrets) }
        } catch {
            // They can wait; what is here can be read.
            logger.error("secrets that nobody needs could not be removed", error)
        }
    }

    /// Closes all connections. What waits to be sent stays on disk; whoever waits for a scope is told, and answers that
    /// come later are not heard.
    package func stop() {
        closeUploads()
        stopped = true
        sweeping?.cancel()
        trimming?.cancel()
        home.end()
        tokens.stop()
        router.stop()
        for scope in scopes { scope.stop() }
        closeClients()
    }

    static let closed = CloudError(.operationCancelled, "The session is closed.")
    /// What becomes of a call that was made under another sign-in.
    static let replaced = CloudError(.operationCancelled, "Another sign-in has taken this one's place.")

    /// The sync of this app's key-value store; begins to follow it.
    package func keyValue(_ app: AppID) -> KeyValueSync {
        let key = ScopeID(app: app, service: .keyValue)
        if let store = stores[app] {
            home.opened(key)
            return store
        }
        let store = KeyValueSync(app: app, engine: self)
        stores[app] = store
        open(store.driver)
        home.opened(key)
        return store
    }

    /// Nobody has it open any more.
    func close(_ key: ScopeID) {
        for driver in scopes where driver.key == key { driver.end() }
        scopes.removeAll { $0.key == key }
        if key.service == .keyValue { stores[key.app] = nil }
        router.forgetUnused()
    }

    /// A number that no other driver of this process has.
    func makeReader() -> Int {
        readerCount += 1
        return readerCount
    }

    /// Keeps a scope of any kind in step with the server, from now on.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` when its tables cannot be made.
    func open(_ model: some ScopeModel) throws(CloudError) -> ScopeDriver {
        try local.prepare(type(of: model).migrations)
        let driver = ScopeDriver(model, self)
        home.leader.giveUp(driver.key)
        open(driver)
        home.opened(driver.key)
        return driver
    }

    private func open(_ driver: ScopeDriver) {
        scopes.append(driver)
        scopes.sort {
            ($0.app, $0.model.service.rawValue, $0.model.name) < ($1.app, $1.model.service.rawValue, $1.model.name)
        }
        driver.begin()
    }

    package func makeOperationID() -> OperationID { OperationID(at: now, using: &generator) }
    func makeDocumentID() -> DocumentID { .random(using: &generator) }

    /// The time, by the wall clock or, if the server has found that wrong, by the server's.
    var now: Timestamp {
        serverTime.check(loop.wallClock, monotonic: loop.monotonicNow)
        return serverTime.now(by: loop.wallClock)
    }

    /// Counts a failure, and says how long to wait.
    func failed(_ retry: inout Retry, _ error: CloudError? = nil) -> Duration {
        retry.failed(error, using: &generator)
    }

    /// How long to wait after so many failures.
    func pause(of retry: Retry) -> Duration { retry.pause(using: &generator) }

    /// A source of chance of its own for each part that needs one, so that one seed gives one history.
    func makeGenerator() -> SplitMix64 { SplitMix64(seed: generator.next()) }

    func fault(_ name: String) throws { try options.fault?(name) }

    /// What is kept in step now, and where each of it stands.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    package func standings() throws(CloudError) -> [ScopeStatus] {
        var standings: [ScopeStatus] = []
        for scope in scopes {
            standings.append(
                ScopeStatus(
                    app: scope.app, service: scope.model.service, scope: scope.scope?.scopeName,
                    status: try scope.status()))
        }
        return standings
    }

    // MARK: Calls

    /// Calls a method as this device, with a valid access token for the app;
    /// renews the token once if the server finds it expired, and the id if it finds this device's clock wrong.
    ///
    /// - Parameters:
    ///   - id: Pass the first call's id to repeat it.
    ///   - onSend: Called when there is a token, so that the connection is what may be in the way from then on.
    package func call<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ service: ServiceName, _ request: Request, as type: Response.Type, app: AppID, id: OperationID? = nil,
        timeout: Duration? = nil, endsWhenRefused: Bool = false, renewing: Bool = true,
        onSend: (() -> Void)? = nil, _ completion: @escaping (Result<Response, CloudError>, Budget?) -> Void
    ) {
        call(
            service, request, app: app, id: id, timeout: timeout, endsWhenRefused: endsWhenRefused,
            renewing: renewing, onSend: onSend
        ) { completion($0.decoded(as: type), $1) }
    }

    /// The same, for whoever reads the reply by itself.
    func call(
        _ service: ServiceName, _ request: some SwiftProtobuf.Message, app: AppID, id: OperationID? = nil,
        timeout: Duration? = nil, endsWhenRefused: Bool = false, renewing: Bool = true, onSend: (() -> Void)? = nil,
        _ completion: @escaping (Result<Frame, CloudError>, Budget?) -> Void
    ) {
        perform(
            Call(
                signIn: session?.secrets, service: service, request: request, app: app, id: id ?? makeOperationID(),
                timeout: timeout,
                endsWhenRefused: endsWhenRefused, onSend: onSend, completion: completion, maysRenew: renewing,
                // Its maker decides about an id that was given.
                maysTakeOtherID: id == nil))
    }

    /// A call, and what may still be done about a refusal of it: each once, and whichever comes first.
    private struct Call {
        /// The sign-in under which it was made: another account's devices must not get what is this one's.
        let signIn: String?
        let service: ServiceName
        let request: any SwiftProtobuf.Message
        let app: AppID
        var id: OperationID
        let timeout: Duration?
        let endsWhenRefused: Bool
        let onSend: (() -> Void)?
        let completion: (Result<Frame, CloudError>, Budget?) -> Void
        var maysRenew: Bool
        var maysTakeOtherID: Bool
    }

    private func perform(_ call: Call) {
        tokens.token(for: call.app) { [weak self] result in
            guard let self, !self.stopped else { return }
            guard call.signIn == session?.secrets else { return call.completion(.failure(Self.replaced), nil) }
            switch result {
            case .failure(let error): call.completion(.failure(error), nil)
            case .success(let token):
                call.onSend?()
                self.send(
                    call.service, call.request, token: token, id: call.id, timeout: call.timeout,
                    endsWhenRefused: call.endsWhenRefused
                ) { [weak self] reply in
                    guard let self, !self.stopped else { return }
                    if let next = self.afterRefusal(reply, of: call, token: token) { return self.perform(next) }
                    self.noteRevocation(reply.result)
                    call.completion(reply.result, reply.budget)
                }
            }
        }
    }

    /// What to call in place of a call that was refused for its token or its id; nil: nothing, that is its answer.
    private func afterRefusal(_ reply: ReplyEnvelope, of call: Call, token: String) -> Call? {
        guard case .failure(let error) = reply.result else { return nil }
        var next = call
        if call.maysRenew, error.code == .tokenExpired || error.code == .notAuthenticated {
            tokens.discard(token, of: call.app)
            // Under its id: it may have been carried out before, and only its reply lost.
            next.maysRenew = false
            return next
        }
        if call.maysTakeOtherID, isOutdated(call.id, by: reply) {
            next.id = makeOperationID()
            next.maysTakeOtherID = false
            return next
        }
        return nil
    }

    /// Whether the id was refused for the time in it, which this device knows better since.
    func isOutdated(_ id: OperationID, by reply: ReplyEnvelope) -> Bool {
        guard case .failure(let error) = reply.result, error.code == .operationExpired else { return false }
        return ServerTime.isOutdated(id, now: now)
    }

    /// Sends a request with this token (none: a method that needs none).
    func send(
        _ service: ServiceName, _ request: some SwiftProtobuf.Message, token: String, id: OperationID,
        timeout: Duration? = nil, endsWhenRefused: Bool = false, _ completion: @escaping (ReplyEnvelope) -> Void
    ) {
        do {
            let name = type(of: request).protoMessageName.split(separator: ".").last ?? ""
            try client(of: service).call(
                String(name), body: Frame(encoding: request), accessToken: token, timeout: timeout ?? options.timeout,
                id: id, endsWhenRefused: endsWhenRefused
            ) { [weak self] reply in
                self?.learnTime(reply)
                completion(reply)
            }
        } catch {
            let error = CloudError(wrapping: error)
            loop.schedule(after: .zero) { completion(ReplyEnvelope(id: id, result: .failure(error))) }
        }
    }

    /// Whether the service, or its machine, has been heard on this connection.
    func hasHeard(_ service: ServiceName) -> Bool { clients[service]?.lastHeard != nil }

    func learnTime(_ reply: ReplyEnvelope) {
        guard case .failure(let error) = reply.result else { return }
        serverTime.learn(from: error, by: loop.wallClock, monotonic: loop.monotonicNow)
    }

    private func client(of service: ServiceName) throws -> RequestClient {
        if let client = clients[service] { return client }
        guard let session else { throw CloudError(.notSignedIn, "This home has no account signed in. Sign in.") }
        guard
            let address = service == .identity
                ? session.identity : session.services.first(where: { $0.service == service.rawValue })
        else { throw CloudError(.unknownItem, "This deployment does not have the service.") }
        let client = try makeClient(to: address, endpoints: address.requests)
        client.onRefused = { [weak self] in self?.refused(service, $0) }
        clients[service] = client
        return client
    }

    /// Calls in flight fail at once. Who is told may call again, on a connection of its own: those that are closed are
    /// out of the way before.
    func closeClients() {
        let closing = clients.sorted { $0.key.rawValue < $1.key.rawValue }.map(\.value)
        clients = [:]
        for client in closing { client.close() }
        contents.end()
    }

    /// Nobody listens where the service should be. Those who wait are told; the attempts go on.
    private func refused(_ service: ServiceName, _ error: CloudError) {
        for scope in scopes where scope.model.service == service || service == .identity && tokens.refreshing {
            scope.perform(scope.sync.refused(error))
        }
        if options.isImpatient, !hasHeard(service), service != .identity || tokens.refreshing {
            contents.refused(service == .identity ? nil : service, error)
        }
    }

    func makeClient(to address: SessionRecord.Service, endpoints: [String]) throws -> RequestClient {
        guard let keys = try loadSecrets().keys else {
            throw CloudError(.notSignedIn, "This home has no keys. Sign in.")
        }
        return try makeClient(to: address, endpoints: endpoints, keys: keys)
    }

    func makeClient(
        to address: SessionRecord.Service, endpoints: [String], keys: KeyPair
    ) throws -> RequestClient {
        guard !options.isOffline else {
            throw CloudError(
                .networkUnavailable, "This is not on this device, and the server is not asked: the session is offline.")
        }
        guard let serverKey = PublicKey(z85: address.publicKey), !endpoints.isEmpty else {
            throw CloudError(.configurationInvalid, "A service's address is not valid.")
        }
        return try RequestClient(
            loop: loop,
            socket: RequestSocketOptions(endpoints: endpoints, serverKey: serverKey, keys: keys),
            nextServerKey: address.nextPublicKey.flatMap { PublicKey(z85: $0) },
            generator: SplitMix64(seed: generator.next()))
    }

    private func noteRevocation(_ result: Result<Frame, CloudError>) {
        guard case .failure(let error) = result, error.code == .deviceRevoked else { return }
        turnedAway(error)
    }
}

extension SystemRandomNumberGenerator {
    fileprivate var seed: UInt64 {
        var generator = self
        return generator.next()
    }
}

extension Logger {
    func error(_ message: Logger.Message, _ error: CloudError) {
        self.error(message, metadata: ["code": "\(error.code)"])
    }
}
