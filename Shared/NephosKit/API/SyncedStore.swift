public import NephosCore

/// A store that an app keeps in sync with the server: a ``KeyValueStore``, a ``UbiquityContainer`` or a
/// ``RecordDatabase``. All three share these calls.
public protocol SyncedStore: Sendable {
    /// The progress of the store.
    associatedtype Status: Sendable & CustomStringConvertible
    /// Changes from outside.
    associatedtype Changes: AsyncSequence & Sendable where Changes.Failure == Never
    /// Content that lost to another device's.
    associatedtype Conflicts: ConflictList

    /// The scopes of the store.
    var syncedScopes: SyncedScopes { get }

    /// The store's progress, and why changes are pending. Needs no network.
    func status() async throws(CloudError) -> Status

    /// The store's conflicts.
    var conflicts: Conflicts { get }

    /// Changes from outside, from now on. This device's own writes are not included.
    var changes: Changes { get }
}

/// Content of a store that lost to another device's, until it is resolved.
public protocol ConflictList: Sendable {
    /// A content that lost.
    associatedtype Conflict: Sendable

    /// All conflicts.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`; a network error where the server is asked.
    func list() async throws(CloudError) -> [Conflict]
}

extension SyncedStore {
    /// Waits for the first download of the whole store. From then on it returns at once, also while offline. Ends with
    /// the calling task.
    ///
    /// Until then a missing key reads as nil, though the account may have it: wait before you write a default, or
    /// continue a count.
    ///
    ///     try await store.ready()
    ///     if store["theme"] == nil { try store.set("light", forKey: "theme") }
    ///
    /// - Parameter timeout: How long no data may arrive.
    /// - Throws: ``CloudError``
    ///   - `.notSignedIn`: no account is signed in on this home, so there is nothing to download. Sign in.
    ///   - `.deviceRevoked`: the account no longer knows this device. Sign in again.
    ///   - `.deadlineExceeded`: the download has not finished in time; the details name the reason (the device keeps
    ///     trying after `.networkUnavailable` and the like). Show the local content, and wait again.
    ///   - `.missingEntitlement` and other errors that need a user's or operator's action, as soon as they occur.
    ///   - `.operationCancelled`: the task was cancelled, or the session closed.
    public func ready(timeout: Duration = .seconds(30)) async throws(CloudError) {
        try await syncedScopes.wait(for: .downloaded, timeout: timeout)
    }

    /// Waits until this device has the server's present state, by a fetch that begins now. Ends with the calling task.
    ///
    /// - Parameters:
    ///   - timeout: How long no data may arrive; a long download may take longer in all.
    ///   - isImpatient: Whether to throw as soon as success is known to be impossible for now: no server answers at the
    ///     address, or a user or operator must act first (sign in, unlock the account, allow the app).
    /// - Throws: ``CloudError`` `.deadlineExceeded`, with the reason in its details, or at once what made it vain.
    public func waitUntilCurrent(
        timeout: Duration = .seconds(30), isImpatient: Bool = false
    ) async throws(CloudError) {
        try await syncedScopes.wait(for: nil, timeout: timeout, isImpatient: isImpatient)
    }

    /// Waits until the server has every pending change. Ends with the calling task. Rejected changes are no longer
    /// pending; they are listed.
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
