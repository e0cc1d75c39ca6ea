public import NephosCore
internal import NephosStorage
private import Synchronization

/// How far the purge clock has come.
struct PurgeTime: Hashable, Sendable {
    var now: Timestamp
    /// What the wall clock said then.
    var wall: Timestamp

    /// Follows the wall clock at half to twice the speed of time: it neither stands still nor goes back.
    func advanced(to wall: Timestamp, elapsed: Duration) -> PurgeTime {
        let (least, most) = (now.advanced(by: elapsed / 2), now.advanced(by: elapsed * 2))
        return PurgeTime(now: min(max(wall, least), most), wall: wall)
    }
}

/// The clock by which old data is purged: trash, former versions, histories, replies that are kept for repeats, uploads.
///
/// It slews to the wall clock as NTP does: a wall clock that is a month ahead for an hour makes it an hour too fast, and does
/// not empty everybody's trash. What is purged late harms nobody.
///
/// A stop of the service is measured by the wall clock alone, so at most ``stopMax`` of it is believed. After a longer stop
/// the clock is behind, and catches up while the service runs.
///
/// Tokens, tickets and links end by the wall clock, and deletions by a person happen at once. On any thread.
public final class PurgeClock: Sendable {
    static let stopMax: Duration = .seconds(12 * 3600)
    private static let saveInterval: Duration = .seconds(300)
    /// 2026: a clock before that, as of a machine without a battery, is wrong, and catching up from it would take decades.
    static let earliest = Timestamp(milliseconds: 1_767_225_600_000)

    private struct State {
        var time: PurgeTime
        var passed: Duration
        var savedAt: Duration?
    }

    private let clock: any WallClock
    private let state: Mutex<State>

    /// - Parameter stored: From before this start; nil: the database is new.
    init(_ clock: any WallClock, after stored: PurgeTime?) {
        self.clock = clock
        let wall = clock.now
        let time = stored ?? PurgeTime(now: max(wall, Self.earliest), wall: wall)
        let stop = min(max(.zero, wall.since(time.wall)), Self.stopMax)
        state = Mutex(State(time: time.advanced(to: wall, elapsed: stop), passed: clock.timePassed))
    }

    public var now: Timestamp { read().now }

    /// From when on the age of what is stored now counts: never less than ``now``, which a wall clock that is behind may
    /// catch up with at any moment.
    public var retentionStart: Timestamp {
        let time = read()
        return max(time.now, time.wall)
    }

    /// The earlier of both clocks, for data whose age counts from a time of the wall clock: that may have been set back.
    public var nowOfWallStamps: Timestamp {
        let time = read()
        return min(time.now, time.wall)
    }

    /// How far it and the wall clock are apart, either way.
    var offset: Duration {
        let time = read()
        return max(time.wall.since(time.now), time.now.since(time.wall))
    }

    private func read() -> PurgeTime { state.withLock { advance(&$0) } }

    private func advance(_ state: inout State) -> PurgeTime {
        let passed = clock.timePassed
        state.time = state.time.advanced(to: clock.now, elapsed: max(.zero, passed - state.passed))
        state.passed = passed
        return state.time
    }

    // MARK: On disk

    /// To be stored now; nil: not yet again.
    func unsaved() -> PurgeTime? {
        state.withLock { state in
            let time = advance(&state)
            guard let savedAt = state.savedAt, state.passed - savedAt < Self.saveInterval else { return time }
            return nil
        }
    }

    func noteSaved() { state.withLock { $0.savedAt = $0.passed } }

    static let migrations = [
        Migration(
            name: "host-005-purge-clock",
            statements: [
                // Milliseconds since 1970; one row.
                "CREATE TABLE purge_clock (id BIGINT PRIMARY KEY, now BIGINT NOT NULL, wall BIGINT NOT NULL)"
            ])
    ]

    private static let select = SQL("SELECT now, wall FROM purge_clock")
    private static let upsert = SQL(
        """
        INSERT INTO purge_clock (id, now, wall) VALUES (1, ?1, ?2)
        ON CONFLICT (id) DO UPDATE SET now = excluded.now, wall = excluded.wall
        """)

    static func stored(in transaction: any Transaction) throws -> PurgeTime? {
        try transaction.first(select) { row in
            PurgeTime(
                now: Timestamp(milliseconds: UInt64(clamping: row.integer(0))),
                wall: Timestamp(milliseconds: UInt64(clamping: row.integer(1))))
        }
    }

    static func store(_ time: PurgeTime, in transaction: any Transaction) throws {
        try transaction.execute(
            upsert,
            [.integer(Int64(clamping: time.now.milliseconds)), .integer(Int64(clamping: time.wall.milliseconds))])
    }
}
