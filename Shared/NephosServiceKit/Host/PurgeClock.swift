internal import Logging
public import NephosCore
internal import NephosStorage
private import Synchronization

/// The time by which things go for their age: what lies in the trash, former versions, histories, replies that are kept
/// for repeats. Whatever is removed because it is old asks this one, and no other clock.
///
/// It is the wall clock, but does not leap ahead with it: a clock that is a month ahead for an hour would empty
/// everybody's trash for ever, while what is kept for longer harms nobody. It goes on as fast as time really passes, so
/// what is due still goes. Once the service has run for ``trial`` and the wall clock was steady, it is believed.
///
/// When tokens, tickets and the like end goes by the wall clock, as does what a person removes.
///
/// On any thread.
public final class PurgeClock: Sendable {
    /// A wall clock that has moved by so much more or less than time has passed was set.
    static let leap: Duration = .seconds(3600)
    /// For how long the service has to run, stops left out, before a clock that has leapt ahead is believed.
    static let trial: Duration = .seconds(24 * 3600)
    /// A time in which the service did not run counts for no more: nobody saw it pass.
    static let stopMax: Duration = .seconds(24 * 3600)
    /// How often it is written down how far it has come.
    private static let saveInterval: Duration = .seconds(300)

    private let clock: any WallClock
    private let logger: Logger
    private let state: Mutex<State>

    private struct State {
        var steadiness: Steadiness
        /// What is on disk, and when it was written.
        var saved: (row: Steadiness.Row, passed: Duration)?
    }

    /// - Parameter row: What was last on disk; nil: nothing ever was, and the clock is believed.
    init(_ clock: any WallClock, after row: Steadiness.Row?, logger: Logger) {
        self.clock = clock
        self.logger = logger
        var steadiness = Steadiness(wall: clock.now, passed: clock.timePassed)
        let news = row.flatMap { steadiness.goOn(after: $0) }
        state = Mutex(State(steadiness: steadiness))
        if let news { tell(news) }
    }

    /// At most the wall clock's time.
    public var now: Timestamp { read { $0.now } }

    /// From when on what is noted now is kept, for as long as it is to be: the wall clock's time. While that is behind where
    /// it was before, it may be there again at any moment, and ``now`` with it: then it is from there on.
    public var retentionStart: Timestamp { read { $0.retentionStart } }

    /// How far it is behind the wall clock: zero, unless that has leapt ahead.
    var lag: Duration { read { $0.lag } }

    private func read<Value: Sendable>(_ value: @Sendable (Steadiness) -> Value) -> Value {
        let (read, news) = state.withLock { state in
            let news = state.steadiness.advance(to: clock.now, clock.timePassed)
            return (value(state.steadiness), news)
        }
        if let news { tell(news) }
        return read
    }

    /// What is to be written down now; nil: nothing.
    func unsaved() -> Steadiness.Row? {
        let row = read { $0.row }
        return state.withLock { state in
            guard let saved = state.saved, saved.row.last.lag == row.last.lag,
                state.steadiness.passed - saved.passed < Self.saveInterval
            else { return row }
            return nil
        }
    }

    /// It is on disk.
    func hasSaved(_ row: Steadiness.Row) {
        state.withLock { $0.saved = (row, $0.steadiness.passed) }
    }

    // MARK: The log

    private func tell(_ news: Steadiness.News) {
        switch news {
        case .ahead(let expected, let found):
            logger.warning(
                """
                The clock has leapt ahead. What goes for its age goes as if it had not, until the service has run for a \
                day and the clock was steady. Set the clock right if it is wrong
                """, metadata: Self.times(expected, found))
        case .aheadOverStop(let last, let found):
            logger.warning(
                """
                The clock has moved by more than a day since the service last ran. What goes for its age goes as if it \
                were a day, until the service has run for a day and the clock was steady. Set the clock right if it is \
                wrong
                """, metadata: Self.times(last, found))
        case .back(let expected, let found):
            logger.warning(
                "The clock has leapt back. What goes for its age goes so much later",
                metadata: Self.times(expected, found))
        case .believed(let lag):
            logger.notice(
                "The clock has been steady for a day. What goes for its age goes by it again",
                metadata: ["was_behind_seconds": "\(lag.milliseconds / 1000)"])
        }
    }

    private static func times(_ expected: Timestamp, _ found: Timestamp) -> Logger.Metadata {
        ["expected": "\(LogLine.describe(expected))", "found": "\(LogLine.describe(found))"]
    }

    // MARK: On disk

    static let migrations = [
        Migration(
            name: "host-005-purge-clock",
            statements: [
                """
                CREATE TABLE purge_clock (
                    -- Milliseconds since 1970; 0: never.
                    seen_at BIGINT NOT NULL,
                    -- Milliseconds.
                    lag BIGINT NOT NULL,
                    steady BIGINT NOT NULL
                )
                """,
                "INSERT INTO purge_clock (seen_at, lag, steady) VALUES (0, 0, 0)",
            ]),
        // The same, from before it went back.
        Migration(
            name: "host-006-purge-clock-former",
            statements: ["seen_at", "lag", "steady"].map {
                "ALTER TABLE purge_clock ADD COLUMN former_\($0) BIGINT NOT NULL DEFAULT 0"
            }),
    ]

    private static let select = SQL(
        "SELECT seen_at, lag, steady, former_seen_at, former_lag, former_steady FROM purge_clock")
    private static let update = SQL(
        """
        UPDATE purge_clock SET
            seen_at = ?1, lag = ?2, steady = ?3, former_seen_at = ?4, former_lag = ?5, former_steady = ?6
        """)

    static func stored(in transaction: any Transaction) throws -> Steadiness.Row? {
        let sights = try transaction.first(select) { row in
            [0, 3].map { first in
                Steadiness.Sight(
                    seen: Timestamp(milliseconds: UInt64(clamping: row.integer(first))),
                    lag: .milliseconds(max(0, row.integer(first + 1))),
                    steady: .milliseconds(max(0, row.integer(first + 2))))
            }
        }
        guard let sights, sights[0].seen.milliseconds > 0 else { return nil }
        return Steadiness.Row(last: sights[0], former: sights[1].seen.milliseconds > 0 ? sights[1] : nil)
    }

    static func store(_ row: Steadiness.Row, in transaction: any Transaction) throws {
        let sights = [
            row.last, row.former ?? Steadiness.Sight(seen: Timestamp(milliseconds: 0), lag: .zero, steady: .zero),
        ]
        try transaction.execute(
            update,
            sights.flatMap { sight -> [SQLValue] in
                [
                    .integer(Int64(clamping: sight.seen.milliseconds)), .integer(sight.lag.milliseconds),
                    .integer(sight.steady.milliseconds),
                ]
            })
    }
}
