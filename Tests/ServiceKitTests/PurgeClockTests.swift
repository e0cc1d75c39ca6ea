import NephosCore
import NephosStorage
import Synchronization
import Testing

@testable import NephosServiceKit

/// Old data is purged by a clock that follows the wall clock slowly.
@Suite struct PurgeClockTests {
    /// A machine's clock, and the time that passes whatever it says.
    private final class Machine: WallClock {
        private let state = Mutex((wall: Timestamp(milliseconds: 1_800_000_000_000), passed: Duration.seconds(7)))

        var now: Timestamp { state.withLock { $0.wall } }
        var timePassed: Duration { state.withLock { $0.passed } }

        func pass(_ duration: Duration) {
            state.withLock { $0 = ($0.wall.advanced(by: duration), $0.passed + duration) }
        }

        func set(ahead duration: Duration) { state.withLock { $0.wall = $0.wall.advanced(by: duration) } }

        /// Another start of the machine.
        func restart(after stop: Duration) {
            state.withLock { $0 = ($0.wall.advanced(by: stop), .zero) }
        }
    }

    private let machine = Machine()
    private let engine: SQLiteEngine
    private static let (hour, day) = (Duration.seconds(3600), Duration.seconds(86_400))

    init() throws {
        engine = try SQLiteEngine.inMemory()
        try engine.migrate(PurgeClock.migrations)
    }

    /// As a service starts.
    private func start() throws -> PurgeClock {
        let clock = PurgeClock(machine, after: try engine.write { try PurgeClock.stored(in: $0) })
        try save(clock)
        return clock
    }

    private func save(_ clock: PurgeClock) throws {
        guard let time = clock.unsaved() else { return }
        try engine.write { try PurgeClock.store(time, in: $0) }
        clock.noteSaved()
    }

    /// As a service goes on.
    private func run(_ clock: PurgeClock, for duration: Duration) throws {
        var left = duration
        while left > .zero {
            machine.pass(min(left, .seconds(600)))
            left -= .seconds(600)
            try save(clock)
        }
    }

    /// Seconds: where both were, where the wall clock is, the time that has passed, where the purge clock is.
    @Test(arguments: [
        (1000, 1000, 1010, 10, 1010),
        // The wall clock was set ahead, and is twice as fast as time.
        (1000, 1000, 9000, 10, 1020),
        // It catches up, and is not ahead then.
        (1000, 8000, 8010, 100, 1200),
        (1000, 1090, 1100, 100, 1100),
        // The wall clock was set back: it goes on at half speed, until the wall clock is there.
        (1000, 1000, 500, 10, 1005),
        (1000, 500, 900, 400, 1200),
        (1000, 900, 1500, 600, 1500),
        (1000, 1000, 9000, 0, 1000),
    ]) func itFollowsAtHalfToTwiceTheSpeedOfTime(now: Int, wall: Int, next: Int, passed: Int, expected: Int) {
        func time(_ seconds: Int) -> Timestamp { Timestamp(milliseconds: UInt64(seconds) * 1000) }
        let result = PurgeTime(now: time(now), wall: time(wall)).advanced(to: time(next), elapsed: .seconds(passed))
        #expect(result == PurgeTime(now: time(expected), wall: time(next)))
    }

    /// A machine without a battery or a time server: what is due goes, though later.
    @Test func aClockThatStaysBehindStopsNothing() throws {
        var clock = try start()
        let last = clock.now
        for _ in 1...20 {
            machine.set(ahead: Timestamp(milliseconds: 0).since(machine.now))
            clock = try start()
            try run(clock, for: Self.hour * 10)
        }
        #expect(clock.now == last.advanced(by: Self.hour * 100))
    }

    /// Hours: of a stop, by how much the wall clock has moved in it, by how much the purge clock has.
    @Test(arguments: [(0, 0), (8, 8), (23, 23), (40, 24), (24 * 365, 24), (-24 * 365, 0)])
    func aStopCountsForADay(stop: Int, expected: Int) throws {
        var clock = try start()
        let last = clock.now
        machine.restart(after: Self.hour * stop)
        clock = try start()
        #expect(clock.now == last.advanced(by: Self.hour * expected))
        #expect(clock.offset == Self.hour * abs(stop - expected))
        // It catches up in as much time as it is apart; a wall clock that was set back in twice as much.
        try run(clock, for: Self.hour * abs(stop - expected) * (stop < 0 ? 2 : 1))
        #expect(clock.now == machine.now && clock.offset == .zero)
    }

    @Test("A service that is started again and again while its clock is ahead counts each stop once")
    func startsAreNotStops() throws {
        var clock = try start()
        let last = clock.now
        machine.set(ahead: Self.day * 40)
        for _ in 1...40 { clock = try start() }
        #expect(clock.now == last.advanced(by: Self.day))
    }

    @Test func aMachineThatRunsByDayKeepsUp() throws {
        for _ in 1...10 {
            let clock = try start()
            try run(clock, for: Self.hour * 8)
            #expect(clock.now == machine.now)
            machine.restart(after: Self.hour * 16)
        }
    }

    @Test("Without a battery, a new deployment's machine begins in 1970 and hears later what time it is")
    func aFirstStartIn1970CatchesUpFromARecentYear() throws {
        let right = machine.now
        machine.set(ahead: Timestamp(milliseconds: 0).since(right))
        let clock = try start()
        #expect(clock.now == PurgeClock.earliest && clock.retentionStart == clock.now)
        machine.set(ahead: right.since(machine.now))
        try run(clock, for: right.since(PurgeClock.earliest))
        #expect(clock.now == machine.now)
    }

    @Test("What is stored while the wall clock is behind is kept as long as anything else", arguments: [false, true])
    func ageCountsFromTheLaterOfBothClocks(restarts: Bool) throws {
        var clock = try start()
        try run(clock, for: Self.hour * 30)
        let before = clock.now
        machine.set(ahead: .zero - Self.day * 400)
        if restarts { clock = try start() }
        #expect(clock.now == before && clock.retentionStart == before)
        machine.set(ahead: Self.day * 800)
        #expect(clock.now == before && clock.retentionStart == machine.now)
    }

    @Test func itIsStoredNowAndThen() throws {
        let clock = try start()
        machine.pass(.seconds(299))
        #expect(clock.unsaved() == nil)
        machine.pass(.seconds(1))
        #expect(clock.unsaved()?.now == machine.now)
    }
}
