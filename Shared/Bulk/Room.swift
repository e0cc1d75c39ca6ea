internal import Core

/// Bytes that are held for keys, bounded for each and for all.
///
/// As long as there is plenty everyone has the whole of its own bound. When more than half is taken, a key that holds
/// more than an equal share waits for the others, and the last part is for those that hold next to nothing: so a few,
/// who take again at once what they gave back, cannot fill it for all.
struct Room {
    let perKeyMax: Int
    let max: Int
    /// What one may hold in any case, so that many keys do not stop each other.
    private static let shareMin = BulkLimits.chunkBytesMax
    /// The part of all that only those who hold no more than that may take: one of so many.
    private static let lastPart = 8
    private var held: [PublicKey: Int] = [:]
    private(set) var total = 0

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

    func held(by key: PublicKey) -> Int { held[key] ?? 0 }

    mutating func take(_ bytes: Int, for key: PublicKey) -> Answer {
        let own = held[key] ?? 0
        guard own + bytes <= perKeyMax else { return .beyondOwn }
        let last = own + bytes <= Self.shareMin ? 0 : max / Self.lastPart
        guard total + bytes <= max - last else { return .beyondAll }
        let keys = held.count + (own == 0 ? 1 : 0)
        guard total + bytes <= max / 2 || own + bytes <= Swift.max(Self.shareMin, max / keys) else {
            return .beyondAll
        }
        held[key] = own + bytes
        total += bytes
        return .taken
    }

    mutating func give(_ bytes: Int, of key: PublicKey) {
        let own = held[key] ?? 0
        let bytes = min(bytes, own)
        held[key] = own == bytes ? nil : own - bytes
        total -= bytes
    }
}
