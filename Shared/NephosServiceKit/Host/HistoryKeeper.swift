internal import Logging
internal import NephosCore
internal import NephosStorage

/// Knows in which history the database is, and begins another when a token has
/// shown that it is an old copy; see ``FeedHistory``.
final class HistoryKeeper {
    /// The history that the database is in.
    private(set) var epoch: UInt64 = 0
    /// When a token has last shown that the database was an old copy.
    private(set) var oldCopyFound: Timestamp?
    /// Whether this start is the first of a database that was brought back.
    private(set) var isRestored = false

    private let engine: any StorageEngine
    let cache: FeedCache
    private let logger: Logger

    init(_ engine: any StorageEngine, cache: FeedCache, logger: Logger) {
        self.engine = engine
        self.cache = cache
        self.logger = logger
    }

    /// Begins the run of this start.
    ///
    /// - Returns: The heads of the partitions that have ever changed.
    func beginRun(
        in transaction: any Transaction, key: SipHash, at now: Timestamp, random: UInt64
    ) throws -> [Int: ChangeToken] {
        cache.history = try Feed.beginRun(in: transaction, key: key, at: now, random: random)
        let feed = Feed(over: transaction, at: now, cache: cache)
        oldCopyFound = try feed.oldCopyFound()
        isRestored = oldCopyFound == now
        epoch = try feed.position(ofPartition: 0).epoch
        return try Self.heads(feed)
    }

    private static func heads(_ feed: Feed) throws -> [Int: ChangeToken] {
        try feed.positions().reduce(into: [:]) { $0[$1.partition] = $1.token }
    }

    /// The database is an old copy: from now on it is another history. What
    /// showed it was refused, and comes again. Between two groups.
    ///
    /// - Parameter completion: Gets the heads in the new epoch; nil: it could not be begun, and is shown again.
    func beginEpoch(
        shownBy token: ChangeToken, at now: Timestamp, random: UInt64,
        then completion: @escaping ([Int: ChangeToken]?) -> Void
    ) {
        guard let history = cache.history else { return completion(nil) }
        engine.run { transaction in
            let begun = try Feed.beginEpoch(in: transaction, shownBy: token, history, at: now, random: random)
            let cache = FeedCache()
            cache.history = begun
            let feed = Feed(over: transaction, at: now, cache: cache)
            return (begun, try feed.position(ofPartition: 0).epoch, try Self.heads(feed))
        } then: { [self] result in
            switch result {
            case .success(let (begun, epoch, heads)):
                cache.removeAll()
                cache.history = begun
                self.epoch = epoch
                oldCopyFound = now
                logger.warning(
                    """
                    The database is an old copy: somebody knows of changes that it does not have. A new epoch begins; \
                    devices offer what they hold
                    """, metadata: ["epoch": "\(epoch)", "shown": "\(token)"])
                completion(heads)
            case .failure(let error):
                logger.error("A new epoch could not be begun", CloudError(wrapping: error))
                completion(nil)
            }
        }
    }
}
