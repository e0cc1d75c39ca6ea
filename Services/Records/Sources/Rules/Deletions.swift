internal import NephosCore
internal import NephosStorage

/// Of how many deletions in public databases accounts have made their readers remember of late.
///
/// A zone remembers so many of all accounts, and with more its readers' places end: whoever saves and deletes without an
/// end is held off, so that one account takes days for that. A bucket that empties evenly; who has filled it waits.
struct Deletions {
    /// What nobody is held off for.
    static let countMax = 4096
    static let perSecond = 1

    struct Deleter: Hashable {
        var zone: ScopeName
        var account: AccountID
    }

    /// Those whose bucket is empty are forgotten when there are so many.
    private static let rememberedMax = 10_000

    /// When nothing counts any more.
    private var emptyAt: [Deleter: Duration] = [:]

    mutating func note(_ count: Int, of deleter: Deleter, at now: Duration) {
        if emptyAt.count >= Self.rememberedMax { emptyAt = emptyAt.filter { $1 > now } }
        emptyAt[deleter] = max(emptyAt[deleter] ?? now, now) + Self.time(of: count)
    }

    /// Why it deletes nothing now; nil: it does.
    func refusal(of deleter: Deleter, at now: Duration) -> CloudError? {
        guard let emptyAt = emptyAt[deleter] else { return nil }
        let wait = emptyAt - now - Self.time(of: Self.countMax)
        guard wait > .zero else { return nil }
        return CloudError(
            .requestRateLimited,
            "The account has deleted so many records of the public database that its readers would forget others'. Wait.",
            details: ["budget": "deletions"], retryAfter: wait)
    }

    mutating func drop(partition: Int) { emptyAt = emptyAt.filter { $0.key.zone.partition != partition } }

    private static func time(of count: Int) -> Duration { .seconds(count) / perSecond }
}
