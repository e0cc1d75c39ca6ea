internal import NephosCore

/// Bytes that are held for keys, bounded for each and for all.
///
/// As long as there is plenty every key has the whole of its own bound. When more than half is taken, an account that
/// holds more than an equal share waits for the others, however many keys it has, and so does a key within its account;
/// and the last part is for accounts that hold next to nothing: so a few, who take again at once what they gave back,
/// cannot fill it for all.
struct Room {
    let perKeyMax: Int
    let max: Int
    /// What one may hold in any case, so that many do not stop each other.
    private static let shareMin = BulkLimits.chunkBytesMax
    /// The part of all that only accounts that hold no more than that may take: one of so many.
    private static let lastPart = 8
    private var accounts: [AccountID: Held] = [:]
    private(set) var total = 0

    private struct Held {
        var total = 0
        var keys: [PublicKey: Int] = [:]
    }

    /// For whom something is held.
    struct Holder: Hashable {
        var account: AccountID
        var key: PublicKey
    }

    init(perKeyMax: Int, max: Int) {
        self.perKeyMax = perKeyMax
        self.max = max
    }

    enum Answer: Hashable {
        case taken
        /// The key holds as much as it may.
        case beyondOwn
        /// All together do.
        case beyondAll
    }

    mutating func take(_ bytes: Int, for holder: Holder) -> Answer {
        var held = accounts[holder.account] ?? Held()
        let own = held.keys[holder.key] ?? 0
        guard own + bytes <= perKeyMax else { return .beyondOwn }
        let last = held.total + bytes <= Self.shareMin ? 0 : max / Self.lastPart
        guard total + bytes <= max - last else { return .beyondAll }
        if total + bytes > max / 2 {
            let share = Self.share(of: max, among: accounts.count + (held.total == 0 ? 1 : 0))
            let ownShare = Self.share(of: share, among: held.keys.count + (own == 0 ? 1 : 0))
            guard held.total + bytes <= share, held.total + bytes <= share / 2 || own + bytes <= ownShare else {
                return .beyondAll
            }
        }
        held.keys[holder.key] = own + bytes
        held.total += bytes
        accounts[holder.account] = held
        total += bytes
        return .taken
    }

    private static func share(of all: Int, among count: Int) -> Int { Swift.max(shareMin, all / count) }

    mutating func give(_ bytes: Int, of holder: Holder) {
        guard var held = accounts[holder.account], let own = held.keys[holder.key] else { return }
        let bytes = min(bytes, own)
        held.keys[holder.key] = own == bytes ? nil : own - bytes
        held.total -= bytes
        accounts[holder.account] = held.total == 0 ? nil : held
        total -= bytes
    }
}
