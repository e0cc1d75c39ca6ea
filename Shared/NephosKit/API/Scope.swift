public import NephosCore

/// Which of the things that a device keeps in step with the server.
public struct ScopeID: Hashable, Comparable, Codable, Sendable {
    /// Whose tokens it is read and written with.
    public var app: AppID
    /// Which service has it.
    public var service: ServiceName
    /// Which of those that the app has there, such as a zone; empty: it has one.
    public var name: String

    /// Names a scope.
    public init(app: AppID, service: ServiceName, name: String = "") {
        self.app = app
        self.service = service
        self.name = name
    }

    /// By app, service and name.
    public static func < (left: ScopeID, right: ScopeID) -> Bool {
        (left.app.rawValue, left.service.rawValue, left.name) < (right.app.rawValue, right.service.rawValue, right.name)
    }
}

/// One of the things that a device keeps in step with the server, whatever is in it: where it stands, why anything in
/// it waits, and the proof that it is the same on both sides.
///
/// What is the same for all kinds is here. A kind has its own face besides, such as ``KeyValueStore``.
public struct Scope: Sendable {
    /// Which it is.
    public let id: ScopeID
    let session: Session
    /// Whose it is: nothing is done with it once another is signed in. Nil: it is of whoever is.
    var account: AccountID?

    /// Which it is within the app and the service, as a person reads it. Empty: there is one.
    package var title: String { id.service == .records && !id.name.isEmpty ? RecordPlace(id.name).title : id.name }

    // MARK: Where it stands

    /// Where it stands, and why anything in it waits. Needs no network.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`; `.operationCancelled` when the session is closed.
    public func status() async throws(CloudError) -> StoreStatus {
        try await perform { driver, completion in
            completion(Result { () throws(CloudError) in try driver.status() })
        }
    }

    /// Compares this device's copy with the server's, down to the items that differ.
    ///
    /// The copy is brought up to date first. Changes nothing else.
    ///
    /// Of a container the digests are compared, and where they differ those of its folders, down to the items: of a million
    /// items with one that differs a few pages are read.
    ///
    /// - Parameters:
    ///   - timeout: How long to wait for the server at most, each time that it is asked.
    ///   - readsAll: Whether everything is read instead: so the server's items are read too, and those are found that it
    ///     cannot read any more.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.deadlineExceeded`, `.networkUnavailable` (try again when the server
    ///   can be reached), or the service's own.
    public func verify(
        timeout: Duration = .seconds(30), readsAll: Bool = false
    ) async throws(CloudError) -> Verification {
        try await perform { driver, completion in
            driver.verify(timeout: timeout, readsAll: readsAll, completion)
        }
    }

    /// Conflicts, newest first: content that another device replaced without having seen it. Asks the server.
    ///
    /// - Parameters:
    ///   - name: Of this item; nil: of all.
    ///   - withHistory: Whether ordinary overwrites are listed too.
    ///   - limit: However many; they are fetched in pages.
    ///   - timeout: How long one page may take; nil: as long as any call of this session.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.networkUnavailable` and the like (try again), or the service's own.
    public func conflicts(
        of name: String? = nil, withHistory: Bool = false, limit: Int = 100, timeout: Duration? = nil
    ) async throws(CloudError) -> [ScopeConflict] {
        try await perform { driver, completion in
            driver.model.conflicts(
                of: name, withHistory: withHistory, limit: limit, timeout: timeout, completion)
        }
    }

    /// Conflicts that a person has to decide, as far as this device knows. The server is not asked.
    ///
    /// Those of documents are among what ``UbiquityContainer/status(of:)`` has.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func conflictCount() async throws(CloudError) -> Int {
        try await perform { driver, completion in
            completion(
                Result { () throws(CloudError) in try driver.readHere { try driver.model.conflictCount(in: $0) } })
        }
    }

    // MARK: Deciding

    /// Dismisses refused writes: they are not listed any more. What the items hold stays as it is.
    ///
    /// - Parameter names: Nil: all of them.
    /// - Returns: The items whose refused write was dismissed.
    /// - Throws: ``CloudError`` `.storageFailure`.
    @discardableResult
    public func dismissRefused(_ names: [ItemName]? = nil) async throws(CloudError) -> [ItemName] {
        try await perform { driver, completion in
            completion(
                Result { () throws(CloudError) in
                    try driver.writeHere { try driver.model.dismissRefusals(names, in: $0) }
                })
            driver.perform([.changed])
        }
    }

    /// Gives up the changes that wait in places which the app no longer has (``StoreStatus/leftBehind``).
    ///
    /// - Returns: What was given up.
    /// - Throws: ``CloudError`` `.storageFailure`.
    @discardableResult
    public func discardLeftBehind() async throws(CloudError) -> [StoreStatus.LeftBehind] {
        try await perform { driver, completion in
            completion(
                Result { () throws(CloudError) in
                    try driver.writeHere { rows in
                        let leftBehind = try driver.model.leftBehind(in: rows)
                        try driver.model.discardLeftBehind(in: rows)
                        return leftBehind
                    }
                })
            driver.perform([.changed])
        }
    }

    // MARK: Waiting

    /// Asks for the server's changes, and sends now what waits for its next attempt. Returns at once.
    public func synchronize() { execute { $0.synchronize() } }

    /// Waits until this device has what the server has now, by a fetch that begins now.
    ///
    /// - Parameters:
    ///   - timeout: How long nothing may come: of very much it may take longer.
    ///   - isImpatient: Whether to give up as soon as it is known to be in vain for now: nobody listens at the
    ///     server's address, or a person has to do something first (sign in, unlock the account, allow the app).
    /// - Throws: ``CloudError`` `.deadlineExceeded`, with the reason in its details, or at once what made it vain.
    public func waitUntilCurrent(
        timeout: Duration = .seconds(30), isImpatient: Bool = false
    ) async throws(CloudError) {
        try await perform { $0.wait(for: nil, timeout: timeout, isImpatient: isImpatient, $1) }
    }

    /// The same, for no longer than this whatever comes.
    package func waitUntilCurrent(within limit: Duration, isImpatient: Bool = false) async throws(CloudError) {
        try await perform { $0.wait(for: nil, timeout: limit, isImpatient: isImpatient, isFixed: true, $1) }
    }

    /// Whether the server has just said that this device was revoked, and the home is about to keep that.
    package var isTurningAway: Bool {
        get async {
            (try? await session.engine.perform { engine, completion in completion(.success(engine.isTurningAway)) })
                ?? false
        }
    }

    /// Waits until nothing of it waits to be sent.
    ///
    /// - Parameters:
    ///   - timeout: How long to wait at most.
    ///   - isImpatient: As of ``waitUntilCurrent(timeout:isImpatient:)``.
    /// - Throws: ``CloudError`` `.deadlineExceeded`, with the reason in its details, or at once what made it vain.
    public func waitUntilSent(
        timeout: Duration = .seconds(30), isImpatient: Bool = false
    ) async throws(CloudError) {
        try await perform { $0.wait(for: .sent, timeout: timeout, isImpatient: isImpatient, $1) }
    }

    /// Waits while this process offers the server what it has of the contents that the server has lost; then until the
    /// server has said what is lost still.
    package func waitUntilOffered(within limit: Duration) async {
        let end = ContinuousClock.now + limit
        var wasOffering = false
        while ContinuousClock.now < end {
            let isOffering = try? await perform { driver, completion in
                completion(.success((driver.model as? any ContentKeeping)?.uploads.isOffering ?? false))
            }
            guard isOffering == true else { break }
            wasOffering = true
            try? await Task.sleep(for: .milliseconds(20))
        }
        if wasOffering { try? await waitUntilCurrent(within: limit, isImpatient: true) }
    }

    // MARK: Changes

    /// What changes from outside, and the end of each fetch, from now on. This device's own writes are not among it.
    ///
    /// A listener that lags behind by 8 MiB gets of what comes then which items have changed, without their states; one
    /// that lags behind by 16 MiB or 10,000 events keeps the newest.
    public var events: some AsyncSequence<StoreEvent, Never> & Sendable {
        let (id, account, local) = (id, account, session.local)
        // Another's changes are not told to whoever holds this one's.
        let isOwn: @Sendable () -> Bool = {
            guard let account else { return true }
            return (try? local.read { try Facts($0).session?.refusal(of: account) }) == .some(nil)
        }
        return session.subscribe { $0.scope == id }.compactMap { event in
            switch event {
            case .change(_, let notification):
                notification.reason == .accountChange || isOwn() ? .change(notification) : nil
            case .didFetchChanges(_, let status): isOwn() ? .didFetchChanges(status) : nil
            default: nil
            }
        }
    }

    // MARK: The device's loop

    func execute(_ work: @escaping @Sendable (ScopeDriver) -> Void) {
        let (id, account) = (id, account)
        session.engine.execute { engine in
            guard engine.session?.refusal(of: account) == nil else { return }
            if let driver = try? engine.scope(id) { work(driver) }
        }
    }

    func perform<Value: Sendable>(
        _ start: @escaping @Sendable (ScopeDriver, @escaping @Sendable (Result<Value, CloudError>) -> Void) -> Void
    ) async throws(CloudError) -> Value {
        let (id, account) = (id, account)
        return try await session.engine.perform { engine, completion in
            if let error = engine.session?.refusal(of: account) { return completion(.failure(error)) }
            do throws(CloudError) { start(try engine.scope(id), completion) } catch { completion(.failure(error)) }
        }
    }
}

/// Content that is no longer what everybody sees, since something else took its place. It is kept until its time is
/// over.
public struct ScopeConflict: Sendable, Hashable {
    /// How it came to that.
    public enum Outcome: String, Sendable {
        /// It was written again by a device that had seen it.
        case overwritten
        /// The device that wrote what is there instead had not seen it.
        case lost
    }

    /// What took the place of something.
    public enum Replacement: Sendable, Hashable {
        /// Other content, for a person to read.
        case content(PropertyValue)
        /// It was deleted.
        case deletion
        /// It is not known any more, or not among what was asked for.
        case unknown
    }

    /// Of the item.
    public var name: ItemName
    /// How it came to that.
    public var outcome: Outcome
    /// When it was written, by the writer's clock.
    public var written: Timestamp
    /// By which device.
    public var device: DeviceID
    /// Which device wrote what is there instead.
    public var winner: DeviceID
    /// When that was.
    public var won: Timestamp
    /// What it was, for a person to read; nil: it was a deletion, or cannot be read any more.
    public var content: PropertyValue?
    /// What took its place then, which may have been written again since.
    public var replacement = Replacement.unknown
    /// Bytes of it, and of what took its place, where they are contents of a file.
    public var sizes: (lost: UInt64, won: UInt64)? { lostBytes.flatMap { lost in wonBytes.map { (lost, $0) } } }
    var lostBytes: UInt64?
    var wonBytes: UInt64?
    /// When what took its place was written, by its writer's clock; nil: as ``won`` says.
    public var replacementWritten: Timestamp?
    /// The server cannot read it any more.
    public var isDamaged = false
    /// How a person gets it back, as it is typed into a shell; nil: not at all.
    public var recovery: String?
    /// How a person has it listed no more, and keeps what took its place, as it is typed into a shell; nil: it goes by
    /// itself, or as ``resolutions`` say.
    public var dismissal: String?
    /// Where it stays a conflict until somebody decides: how to keep it, what took its place, or both, as it is typed
    /// into a shell.
    public var resolutions: [String] = []
}

extension SessionRecord {
    /// Why nothing of this account's is done any more; nil: nobody else is signed in, or it is of whoever is.
    func refusal(of account: AccountID?) -> CloudError? {
        guard let account, accountID != account else { return nil }
        return CloudError(
            .notSignedIn, "Another account is signed in by now. Open its container, and begin anew.",
            details: ["account": accountName])
    }
}

extension ScopeDriver {
    fileprivate func readHere<Value>(_ body: (ScopeTransaction) throws -> Value) throws(CloudError) -> Value {
        let place = model.place(in: engine.session)
        return try engine.local.read { try body(ScopeTransaction($0, place)) }
    }

    /// In a transaction on what the home has of it, also while nobody is signed in.
    fileprivate func writeHere<Value>(_ body: (ScopeTransaction) throws -> Value) throws(CloudError) -> Value {
        let place = model.place(in: engine.session)
        return try engine.local.write { try body(ScopeTransaction($0, place)) }
    }
}
