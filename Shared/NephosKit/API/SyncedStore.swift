public import NephosCore

/// Content that an app keeps in step with the server: a ``KeyValueStore``, a ``UbiquityContainer`` or a
/// ``RecordDatabase``. All three have these calls, in one shape.
public protocol SyncedStore: Sendable {
    /// Where all of it stands.
    associatedtype Status: Sendable & CustomStringConvertible
    /// Changes from outside.
    associatedtype Changes: AsyncSequence & Sendable where Changes.Failure == Never
    /// Content that lost to another device's.
    associatedtype Conflicts: ConflictList

    /// The scopes that it consists of.
    var syncedScopes: SyncedScopes { get }

    /// Where all of it stands, and why anything in it waits. Needs no network.
    func status() async throws(CloudError) -> Status

    /// Conflicts of all of it.
    var conflicts: Conflicts { get }

    /// Changes from outside, from now on. This device's own writes are not among them.
    var changes: Changes { get }
}

/// Content of a store that lost to another device's, until it is resolved.
public protocol ConflictList: Sendable {
    /// One that lost.
    associatedtype Conflict: Sendable

    /// All of them.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`; what keeps the server from answering, where it is asked.
    func list() async throws(CloudError) -> [Conflict]
}

extension SyncedStore {
    /// Waits until this device has downloaded all of it for the first time. From then on it has a copy, and returns at
    /// once, also while offline. Ends with the task that called it.
    ///
    /// Until then a key that is not here reads as nil, though the account may have it: an app that would write a
    /// default, or count on from what is there, waits here first.
    ///
    ///     try await store.ready()
    ///     if store["theme"] == nil { try store.set("light", forKey: "theme") }
    ///
    /// - Parameter timeout: How long nothing may come.
    /// - Throws: ``CloudError``
    ///   - `.notSignedIn`: nobody is signed in on this home, so there is nothing to download. Sign in.
    ///   - `.deviceRevoked`: the account no longer knows this device. Sign in again.
    ///   - `.deadlineExceeded`: it was not downloaded in time; the details name the reason (`.networkUnavailable` and
    ///     the like are tried again, and go on being tried). Show what is here, and wait again.
    ///   - `.missingEntitlement` and others that only a person can cure, as they are found.
    ///   - `.operationCancelled`: the task was cancelled, or the session closed.
    public func ready(timeout: Duration = .seconds(30)) async throws(CloudError) {
        try await syncedScopes.wait(for: .downloaded, timeout: timeout)
    }

    /// Waits until this device has all that the server has now, by a fetch that begins now. Ends with the task that
    /// called it.
    ///
    /// - Parameters:
    ///   - timeout: How long nothing may come: of very much it may take longer.
    ///   - isImpatient: Whether to give up as soon as it is known to be in vain for now: nobody listens at the
    ///     server's address, or a person has to do something first (sign in, unlock the account, allow the app).
    /// - Throws: ``CloudError`` `.deadlineExceeded`, with the reason in its details, or at once what made it vain.
    public func waitUntilCurrent(
        timeout: Duration = .seconds(30), isImpatient: Bool = false
    ) async throws(CloudError) {
        try await syncedScopes.wait(for: nil, timeout: timeout, isImpatient: isImpatient)
    }

    /// Waits until nothing of it waits to be sent. Ends with the task that called it. What the server refused does not
    /// wait any more: it is listed.
    ///
    /// - Parameters:
    ///   - timeout: How long to wait at most.
    ///   - isImpatient: As of ``waitUntilCurrent(timeout:isImpatient:)``.
    /// - Throws: ``CloudError`` `.deadlineExceeded`, with the reason in its details, or at once what made it vain.
    public func waitUntilSent(
        timeout: Duration = .seconds(30), isImpatient: Bool = false
    ) async throws(CloudError) {
        try await syncedScopes.wait(for: .sent, timeout: timeout, isImpatient: isImpatient)
    }
}
