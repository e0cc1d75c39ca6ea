internal import NephosBus
package import NephosCore

/// How often a key may ask that has not proved whose it is: by a method that
/// needs no token, with a token that is not good, with bytes that are no request.
///
/// Each key has a bucket (``BudgetConfiguration/stranger``). When it is empty
/// the caller is told so once a second, and otherwise not answered at all: to
/// look at such a request costs less than to refuse it.
package struct StrangerBudget {
    private let requests: TokenBuckets<PublicKey>
    private let warnings = TokenBuckets<PublicKey>(BudgetConfiguration.Limit(capacity: 1, refillPerSecond: 1))
    /// Looked up for every request only while some key has an empty bucket.
    private var exhausted: [PublicKey: Duration] = [:]
    private static let exhaustedMax = 10_000

    package init(_ limit: BudgetConfiguration.Limit) { requests = TokenBuckets(limit) }

    package enum Refusal: Error {
        case told(CloudError)
        case ignored
    }

    /// Refuses whoever has asked too often, before anything is done for them.
    ///
    /// - Throws: ``Refusal``.
    package mutating func check(_ key: PublicKey, now: Duration) throws(Refusal) {
        guard !exhausted.isEmpty, let end = exhausted[key] else { return }
        guard now < end else {
            exhausted[key] = nil
            return
        }
        guard warnings.wait(key, now: now) <= .zero else { throw .ignored }
        _ = warnings.take(key, 1, now: now)
        throw .told(requests.exhausted("stranger", wait: end - now).error)
    }

    /// Takes one request from the key's budget.
    package mutating func take(_ key: PublicKey, now: Duration) {
        _ = requests.take(key, 1, now: now)
        let wait = requests.wait(key, now: now)
        guard wait > .zero else { return }
        if exhausted.count >= Self.exhaustedMax { exhausted = exhausted.filter { $0.value > now } }
        if exhausted.count >= Self.exhaustedMax { exhausted.forgetEarliest() }
        exhausted[key] = now + wait
    }
}
