public import NephosCore

/// The name of a scope: one store, zone or directory that a device keeps in sync.
public struct ScopeID: Hashable, Comparable, Codable, Sendable {
    /// The app whose tokens authorize reading and writing.
    public var app: AppID
    /// The service that stores it.
    public var service: ServiceName
    /// The scope's name at the service, such as a zone; empty: the app has only one there.
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

/// A store, zone or directory that a device keeps in sync, whatever its content: progress, the reasons for pending
/// changes, and the proof that both sides are equal.
///
/// All kinds share these calls. Each kind also has its own type, such as ``KeyValueStore``.
public struct Scope: Sendable {
    /// The scope's name.
    public let id: ScopeID
    let session: Session
    /// Whose it is: nothing is done with it once another is signed in. Nil: it is of whoever is.
    var account: AccountID?

    /// Which it is within the app and the service, as a person reads it. Empty: there is one.
    package var title: String { id.service == .records && !id.name.isEmpty ? RecordPlace(id.name).title : id.name }

    // MARK: Where it stands

    /// The scope's progress, and why changes are pending. Needs no network.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`; `.operationCancelled` when the session is closed.
    public func status() async throws(CloudError) -> StoreStatus {
        try await perform { driver, completion in
            completion(Result { () throws(CloudError) in try driver.status() })
        }
    }

    /// Compares this device's copy with the server's, down to the items that differ.
    ///
    /// Updates the copy first, and changes nothing else.
    ///
    /// For a container, digests are compared, then those of its folders where they differ, down to the items: to find
    /// one differing item in a million, the device reads a few pages.
    ///
    /// - Parameters:
    ///   - timeout: Maximum wait for each answer of the server.
    ///   - readsAll: Whether to read all of the server's items instead. This finds items that the server can no longer
    ///     read.
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
    ///   - name: An item's name; nil: all items.
    ///   - withHistory: Whether ordinary overwrites are listed too.
    ///   - limit: Maximum number; they are fetched in pages.
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

    /// Number of conflicts that a user has to decide, as far as this device knows. Does not ask the server.
    ///
    /// ``UbiquityContainer/status(of:)`` has those of documents.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    public func conflictCount() async throws(CloudError) -> Int {
        try await perform { driver, completion in
            completion(
                Result { () throws(CloudError) in try driver.readHere { try driver.model.conflictCount(in: $0) } })
        }
    }

    // MARK: Deciding

    /// Removes rejected writes from the list. The items stay as they are.
    ///
    /// - Parameter names: Nil: all of them.
    /// - Returns: The items whose rejected write was dismissed.
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

    /// Discards changes for places that the app no longer has (``StoreStatus/leftBehind``).
    ///
    /// - Returns: The discarded changes.
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

    /// Asks for the server's changes, and sends pending changes now. Returns at once.
    public func synchronize() { execute { $0.synchronize() } }

    /// Waits until this device has the server's present state, by a fetch that begins now.
    ///
    /// - Parameters:
    ///   - timeout: How long no data may arrive; a long download may take longer in all.
    ///   - isImpatient: Whether to throw as soon as success is known to be impossible for now: no server answers at the
    ///     address, or a user or operator must act first (sign in, unlock the account, allow the app).
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

    /// Waits until the server has every pending change.
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

    /// Changes from outside, and the end of each fetch, from now on. This device's own writes are not included.
    ///
    /// A listener that is 8 MiB behind gets the names of changed items without their states; a listener that is 16 MiB
    /// or 10,000 events behind gets only the newest.
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

/// Content that a newer write replaced. The server keeps it for a limited time.
public struct ScopeConflict: Sendable, Hashable {
    /// The way in which it was replaced.
    public enum Outcome: String, Sendable {
        /// A device that had seen it wrote again.
        case overwritten
        /// The device that replaced it had not seen it.
        case lost
    }

    /// The replacement of a content.
    public enum Replacement: Sendable, Hashable {
        /// Another content, as a value to show.
        case content(PropertyValue)
        /// It was deleted.
        case deletion
        /// Unknown: no longer stored, or outside of the requested list.
        case unknown
    }

    /// The item's name.
    public var name: ItemName
    /// The way in which it was replaced.
    public var outcome: Outcome
    /// When it was written, by the writer's clock.
    public var written: Timestamp
    /// The device that wrote it.
    public var device: DeviceID
    /// The device that wrote the replacement.
    public var winner: DeviceID
    /// When it was replaced.
    public var won: Timestamp
    /// The content, as a value to show; nil: it was a deletion, or can no longer be read.
    public var content: PropertyValue?
    /// The replacement at that time, which may itself have been replaced since.
    public var replacement = Replacement.unknown
    /// Bytes of it and of its replacement, if they are contents of a file.
    public var sizes: (lost: UInt64, won: UInt64)? { lostBytes.flatMap { lost in wonBytes.map { (lost, $0) } } }
    var lostBytes: UInt64?
    var wonBytes: UInt64?
    /// When the replacement was written, by its writer's clock; nil: as ``won`` says.
    public var replacementWritten: Timestamp?
    /// The server can no longer read it.
    public var isDamaged = false
    /// The shell command that restores it; nil: it cannot be restored.
    public var recovery: String?
    /// The shell command that removes it from the list and keeps the replacement; nil: it disappears by itself, or as
    /// ``resolutions`` say.
    public var dismissal: String?
    /// If the conflict stays until a user decides: the shell commands that keep it, its replacement, or both.
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
