internal import NephosCore
internal import NephosServiceKit

/// Of how many deletions in public databases accounts have made their readers remember of late.
///
/// A zone remembers so many of all accounts, and with more its readers' places end: whoever saves and deletes without an
/// end is held off, so that one account takes days for that. A start forgives what was before it.
struct Deletions {
    /// So many at once, and then one a second.
    private static let limit = BudgetConfiguration.Limit(capacity: 4096, refillPerSecond: 1)

    struct Deleter: Hashable {
        var zone: ScopeName
        var account: AccountID
    }

    private let buckets = TokenBuckets<Deleter>(limit)

    func note(_ count: Int, of deleter: Deleter, at now: Duration) { buckets.note(deleter, count, now: now) }

    /// Why it deletes nothing now; nil: it does.
    func refusal(of deleter: Deleter, at now: Duration) -> CloudError? {
        let wait = buckets.wait(deleter, now: now)
        guard wait > .zero else { return nil }
        return CloudError(
            .requestRateLimited,
            "The account has deleted so many records of the public database that its readers would forget others'. Wait.",
            details: ["budget": "deletions"], retryAfter: wait)
    }
}
