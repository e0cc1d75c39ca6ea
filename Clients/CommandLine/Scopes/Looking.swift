import NephosCore
import NephosKit

/// Looks at a scope again and again, for what no event tells: that the server is gone, that the account was locked,
/// that a write was sent or a refused one dismissed.
struct Looking: Sendable {
    let scope: Scope
    let said: Said
    /// Whether each look may be said; else only what no event tells, since those that were sent may be on their way.
    var saysEachLook = false
    /// Gets where the scope stands, and why the server has not been heard if the status does not know.
    let say: @Sendable (StoreStatus, CloudError?) throws -> Void

    /// How often the server is asked, which may be gone without a word.
    private static let askPause: Duration = .seconds(5)
    /// A server that answers later than this is one that does not.
    private static let silenceMax: Duration = .seconds(8)

    /// Until the task is cancelled. Offline is normal, and so is a disk without room; both are said, and waited for.
    ///
    /// - Throws: ``CloudError`` with the reason when nothing can arrive any more: the device was revoked or signed out.
    func run() async throws {
        var askAt = ContinuousClock.now
        var isFirst = true
        var silence: (since: ContinuousClock.Instant, error: CloudError)?
        while !Task.isCancelled {
            let problem = try await scope.status().problem
            // What else is wrong is tried again by itself, as seldom as the server has asked for.
            if askAt <= .now, problem.map({ ExitStatus.of($0) == .unreachable }) ?? true {
                let start = ContinuousClock.now
                // Short, since nothing can cancel it. Only the first time it is a person who asks, for whom what has
                // failed is tried at once: the pauses after that are the server's.
                do throws(CloudError) {
                    try await scope.waitUntilCurrent(timeout: .seconds(3), isImpatient: isFirst)
                    silence = nil
                } catch {
                    if ExitStatus.of(error) == .unreachable { silence = (silence?.since ?? start, error) }
                }
                isFirst = false
                askAt = .now + Self.askPause
            }
            let status = try await scope.status()
            if let problem = status.problem, ExitStatus.of(problem) == .refused { throw problem }
            if let since = silence?.since, said.hasFetched(since: since) { silence = nil }
            let failure = silence.flatMap { $0.since.duration(to: .now) >= Self.silenceMax ? $0.error : nil }
            if saysEachLook || said.isDue || status.problem != nil || status.followingProblem != nil || failure != nil {
                try say(status, failure)
            }
            try await Task.sleep(for: .milliseconds(500))
        }
    }
}
