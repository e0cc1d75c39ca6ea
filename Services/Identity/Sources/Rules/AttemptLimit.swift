internal import Core

/// Slows down guessing: after some free attempts, each further one has to wait
/// twice as long as the one before.
///
/// An attempt counts from its beginning and is forgiven when it succeeds, so
/// that guesses sent all at once gain nothing. Kept in memory only: a restart
/// forgives, and costs an attacker more than it gains.
struct AttemptLimit {
    /// Whom an attempt is counted against.
    enum Subject: Hashable, Sendable {
        case account(String)
        case key(PublicKey)
    }

    private struct Record {
        var attempts: Int
        var last: Timestamp
    }

    var free = 5
    var delay: Duration = .seconds(1)
    var delayMax: Duration = .seconds(300)
    /// Attempts are forgotten after so long without a new one.
    var memory: Duration = .seconds(3600)
    /// Subjects kept at once. When there are more, those with the fewest attempts go.
    var subjectsMax = 10_000

    private var records: [Subject: Record] = [:]

    init() {}

    /// Counts an attempt against all of the subjects, or refuses it.
    ///
    /// - Throws: ``CloudError`` `.requestRateLimited` with the time to wait; the attempt then does not count.
    mutating func begin(_ subjects: [Subject], at now: Timestamp) throws(CloudError) {
        let wait = subjects.map { remaining(of: $0, at: now) }.max() ?? .zero
        guard wait <= .zero else {
            throw CloudError(
                .requestRateLimited, "Too many attempts to sign in. Wait before the next one.",
                details: ["limit": "sign_in_attempts", "free_attempts": "\(free)"], retryAfter: wait)
        }
        makeRoom(at: now)
        for subject in subjects {
            let before = records[subject].map { now.since($0.last) > memory ? 0 : $0.attempts } ?? 0
            records[subject] = Record(attempts: before + 1, last: now)
        }
    }

    /// Forgets what was counted, because the attempt succeeded.
    mutating func succeeded(_ subjects: [Subject]) {
        for subject in subjects { records[subject] = nil }
    }

    private func remaining(of subject: Subject, at now: Timestamp) -> Duration {
        guard let record = records[subject], record.attempts >= free else { return .zero }
        let doublings = min(record.attempts - free, 30)
        return min(delay * (1 << doublings), delayMax) - now.since(record.last)
    }

    private mutating func makeRoom(at now: Timestamp) {
        guard records.count >= subjectsMax else { return }
        records = records.filter { now.since($0.value.last) <= memory }
        guard records.count >= subjectsMax else { return }
        // Half at once, so that a flood of names does not sort on each attempt.
        let kept = records.sorted { ($0.value.attempts, $0.value.last) > ($1.value.attempts, $1.value.last) }
            .prefix(subjectsMax / 2)
        records = Dictionary(uniqueKeysWithValues: kept.map { ($0.key, $0.value) })
    }
}
