public import NephosCore
private import Synchronization

extension KeyValueStore {
    /// Waits until this device has downloaded the store for the first time. From then on it has a copy, and returns at
    /// once, also while offline.
    ///
    /// Until then a key that is not here reads as nil, though the account may have it: an app that would write a
    /// default, or count on from what is there, waits here first.
    ///
    ///     try await store.ready()
    ///     if store["theme"] == nil { try store.set("light", forKey: "theme") }
    ///
    /// Ends with the task that called it.
    ///
    /// - Parameter timeout: How long to wait at most.
    /// - Throws: ``CloudError``
    ///   - `.notSignedIn`: nobody is signed in on this home, so there is nothing to download. Sign in.
    ///   - `.deviceRevoked`: the account no longer knows this device. Sign in again.
    ///   - `.deadlineExceeded`: it was not downloaded in time; the details name the reason (`.networkUnavailable` and
    ///     the like are tried again, and go on being tried). Show what is here, and wait again.
    ///   - `.missingEntitlement` and others that only a person can cure, as they are found.
    ///   - `.operationCancelled`: the task was cancelled, or the session closed.
    public func ready(timeout: Duration = .seconds(30)) async throws(CloudError) {
        let app = app
        let timeout = min(max(timeout, .zero), .seconds(Self.timeoutMax))
        let place = WaitingPlace()
        let engine = session.engine
        let result = await withTaskCancellationHandler { () -> Result<Void, CloudError> in
            do throws(CloudError) {
                try await engine.perform {
                    (engine: DeviceEngine, completion: @escaping @Sendable (Result<Void, CloudError>) -> Void) in
                    guard !place.isCancelled else { return completion(.failure(WaitingPlace.cancelled)) }
                    place.number = engine.keyValue(app).whenDownloaded(timeout: timeout, completion)
                }
                return .success(())
            } catch { return .failure(error) }
        } onCancel: {
            place.cancel()
            engine.execute { engine in
                guard let number = place.number else { return }
                engine.keyValue(app).endWaiter(number, .failure(WaitingPlace.cancelled))
            }
        }
        try result.get()
    }

    /// Ten years, in seconds: clocks have room for it.
    private static var timeoutMax: Int64 { 315_360_000 }
}

/// Where a task waits that may be cancelled before, while and after it does.
private final class WaitingPlace: Sendable {
    private let state = Mutex<(number: Int?, isCancelled: Bool)>((nil, false))

    static var cancelled: CloudError { CloudError(.operationCancelled, "The caller does not wait any more.") }

    /// Among the store's waiters.
    var number: Int? {
        get { state.withLock { $0.number } }
        set { state.withLock { $0.number = newValue } }
    }

    var isCancelled: Bool { state.withLock { $0.isCancelled } }
    func cancel() { state.withLock { $0.isCancelled = true } }
}
