internal import NephosCore

/// Slows down guessing: after some free attempts, each further one has to wait
/// twice as long as the one before. At the longest wait that is twelve an hour.
///
/// An attempt counts from its beginning and is forgiven when it succeeds, so
/// that guesses sent all at once gain nothing.
enum AttemptRule {
    /// What is known of the attempts of one subject.
    struct Count: Hashable {
        var attempts: Int
        var last: Timestamp
    }

    static let free = 5
    static let delay: Duration = .seconds(1)
    static let delayMax: Duration = .seconds(300)
    /// Attempts are forgotten after so long without a new one.
    static let memory: Duration = .seconds(3600)

    /// The count with one attempt more.
    ///
    /// - Parameter cure: What helps.
    /// - Throws: ``CloudError`` `.requestRateLimited` with the time to wait; the attempt then does not count.
    static func begin(after count: Count?, at now: Timestamp, cure: String = "Wait") throws(CloudError) -> Count {
        guard let count, now.since(count.last) <= memory else { return Count(attempts: 1, last: now) }
        // An attempt that is still to come was counted by a clock that was ahead and has been put right. When it was,
        // nobody can say: so one more is free, rather than none until that time.
        if count.attempts >= free, count.last <= now {
            let wait = min(delay * (1 << min(count.attempts - free, 30)), delayMax)
            let remaining = wait - now.since(count.last)
            guard remaining <= .zero else {
                throw CloudError(
                    .requestRateLimited,
                    "Too many attempts to sign in. \(cure).",
                    details: ["limit": "sign_in_attempts", "free_attempts": "\(free)"], retryAfter: remaining)
            }
        }
        return Count(attempts: count.attempts + 1, last: now)
    }
}
