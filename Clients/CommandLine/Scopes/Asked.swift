import NephosCore
import NephosKit

/// Where a scope stands once the server has been asked: everything that says so asks alike, so that all say the same.
struct Asked {
    var status: StoreStatus
    /// Why it is not known to be as the server's, where the status does not say; nil: it says, or it is.
    var failure: CloudError?
    /// What the waiting ended with.
    private var ending: CloudError?

    /// Whether the server has answered: everything was fetched.
    private(set) var isHeard = false

    /// Whether something was not fetched or sent in time.
    var isInVain: Bool { ending != nil }

    /// Fetches and sends, as far as that is possible now, and compares.
    ///
    /// - Parameter limit: How long each may take; nil: nobody is asked.
    init(_ scope: Scope, within limit: Duration?) async throws {
        guard let limit else {
            status = try await scope.status()
            return
        }
        do throws(CloudError) {
            try await scope.waitUntilCurrent(timeout: limit, isImpatient: true)
            isHeard = true
            try await scope.waitUntilSent(timeout: limit, isImpatient: true)
            await scope.waitUntilOffered(within: limit)
            status = try await Self.compared(scope, within: limit)
        } catch {
            ending = error
            status = try await scope.status()
            // That time was up is no word of the server's: what it said last of the write is what is in the way.
            let answer = Standing.answer(status)
            failure = answer != nil && (error.code == .deadlineExceeded || error == answer) ? nil : error
        }
    }

    /// The status once the content has been compared with the server's; it may not be while a write is on its way.
    private static func compared(
        _ scope: Scope, within limit: Duration
    ) async throws(CloudError) -> StoreStatus {
        let deadline = ContinuousClock.now + limit
        while true {
            let status = try await scope.status()
            guard !status.agrees, status.problem == nil, ContinuousClock.now < deadline else { return status }
            do { try await Task.sleep(for: .milliseconds(20)) } catch { throw CloudError(wrapping: error) }
            try await scope.waitUntilCurrent(timeout: limit, isImpatient: true)
        }
    }

    /// What is in the way, with what is known of the writes that wait.
    func details(for cause: CloudError) -> CloudError {
        guard ending?.code == .deadlineExceeded, let details = ending?.details else { return cause }
        var cause = cause
        cause.message = Standing.words(cause)
        cause.details.merge(details) { own, _ in own }
        if cause.details["reason"] == cause.message { cause.details["reason"] = nil }
        return cause
    }
}
