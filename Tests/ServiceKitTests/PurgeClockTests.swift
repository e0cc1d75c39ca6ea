import Logging
import NephosCore
import NephosSimulation
import NephosStorage
import Synchronization
import Testing

@testable import NephosServiceKit

/// What goes for its age goes by a clock that does not leap ahead.
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

        /// Another start of the machine: what it counts begins anew.
        func restart(after stop: Duration) {
            state.withLock { $0 = ($0.wall.advanced(by: stop), .zero) }
        }
    }

    private let machine = Machine()
    private let log = LogLines()
    private let engine: SQLiteEngine
    private static let (hour, day) = (Duration.seconds(3600), Duration.seconds(86_400))

    init() throws {
        engine = try SQLiteEngine.inMemory()
        try engine.migrate(PurgeClock.migrations)
    }

    /// As a service starts.
    private func start() throws -> PurgeClock {
        PurgeClock(machine, after: try engine.write { try PurgeClock.stored(in: $0) }, logger: log.logger)
    }

    /// As a service goes on: it looks at the clock every ten minutes here, and writes down what is to be.
    private func run(_ clock: PurgeClock, for duration: Duration) throws {
        var left = duration
        while left > .zero {
            machine.pass(min(left, .seconds(600)))
            left -= .seconds(600)
            guard let row = clock.unsaved() else { continue }
            try engine.write { try PurgeClock.store(row, in: $0) }
            clock.hasSaved(row)
        }
    }

    private func lag(_ clock: PurgeClock) -> Int64 { clock.lag.milliseconds / 1000 }

    @Test func aServiceThatIsNewBelievesItsClock() throws {
        let clock = try start()
        #expect(clock.now == machine.now)
        try run(clock, for: Self.day * 40)
        #expect(clock.now == machine.now && log.count(of: "clock") == 0)
    }

    @Test func aLeapAheadIsNotFollowed() throws {
        let clock = try start()
        try run(clock, for: Self.hour * 5)
        let before = clock.now
        machine.set(ahead: Self.day * 40)
        #expect(clock.now == before)
        // It goes on meanwhile, as fast as time passes.
        try run(clock, for: Self.hour)
        #expect(clock.now == before.advanced(by: Self.hour))
        machine.set(ahead: .zero - Self.day * 40)
        #expect(clock.now == machine.now && lag(clock) == 0)
        #expect(log.count(of: "The clock has leapt ahead") == 1 && log.count(of: "The clock has leapt back") == 1)
        #expect(log.contains("2027-01-15T13:00:00"))
        #expect(log.contains("2027-02-24T13:00:00"))
        try run(clock, for: Self.day * 2)
        #expect(clock.now == machine.now && log.count(of: "clock") == 2)
    }

    @Test func aClockThatWasSteadyForADayIsBelieved() throws {
        let clock = try start()
        machine.set(ahead: Self.day * 40)
        try run(clock, for: Self.hour * 23)
        #expect(lag(clock) == 40 * 86_400)
        try run(clock, for: Self.hour * 2)
        #expect(clock.now == machine.now && log.count(of: "steady for a day") == 1)
    }

    @Test func anotherLeapBeginsTheDayAnew() throws {
        let clock = try start()
        machine.set(ahead: Self.day * 40)
        try run(clock, for: Self.hour * 23)
        machine.set(ahead: Self.hour * 2)
        try run(clock, for: Self.hour * 23)
        #expect(lag(clock) == 40 * 86_400 + 7200)
        try run(clock, for: Self.hour * 2)
        #expect(lag(clock) == 0)
    }

    /// What is added up is on disk, but for the last minutes.
    @Test func theDayIsAddedUpOverRestarts() throws {
        var clock = try start()
        machine.set(ahead: Self.day * 40)
        for round in 1...5 {
            try run(clock, for: Self.hour * 5)
            #expect((lag(clock) == 0) == (round == 5), "\(round)")
            machine.restart(after: Self.hour)
            clock = try start()
        }
        #expect(clock.now == machine.now && log.count(of: "leapt ahead") == 1)
    }

    /// The clock is set while the service is away: at its start that cannot be told from time that has passed.
    @Test func aLongStopCountsForADay() throws {
        var clock = try start()
        try run(clock, for: Self.hour)
        let last = clock.now
        machine.restart(after: Self.day * 40)
        clock = try start()
        #expect(clock.now == last.advanced(by: Self.day))
        #expect(log.count(of: "since the service last ran") == 1)
        try run(clock, for: Self.hour)
        #expect(clock.now == last.advanced(by: Self.day + Self.hour))
        // Put right while it is away.
        machine.restart(after: .zero - Self.day * 40)
        clock = try start()
        #expect(clock.now == machine.now && log.count(of: "leapt back") == 1)
    }

    @Test func aShortStopIsTimeThatHasPassed() throws {
        var clock = try start()
        try run(clock, for: Self.hour)
        machine.restart(after: Self.hour * 23)
        clock = try start()
        #expect(clock.now == machine.now && log.count(of: "clock") == 0)
    }

    /// On a machine that runs for an hour a week all goes in the end.
    @Test func whoeverRunsSeldomPurgesMoreSlowly() throws {
        var clock = try start()
        let first = clock.now
        for _ in 0..<10 {
            try run(clock, for: Self.hour)
            machine.restart(after: Self.day * 7)
            clock = try start()
        }
        #expect(clock.now >= first.advanced(by: Self.day * 10))
        #expect(clock.now <= first.advanced(by: Self.day * 11))
    }

    /// It was set while the disk had no word of the leap yet.
    @Test func aLeapThatIsNotOnDiskIsFoundAtTheStart() throws {
        var clock = try start()
        try run(clock, for: Self.hour)
        let last = clock.now
        machine.set(ahead: Self.day * 40)
        #expect(clock.now == last)
        machine.restart(after: .seconds(10))
        clock = try start()
        #expect(clock.now == last.advanced(by: Self.day))
    }

    @Test func manySmallStepsMakeALeap() throws {
        let clock = try start()
        for _ in 0..<20 {
            machine.set(ahead: .seconds(1800))
            machine.pass(.seconds(10))
            _ = clock.now
        }
        #expect(lag(clock) > 8 * 3600)
    }

    /// Without a battery, the machine begins in 1970, and hears what time it is later.
    @Test func whatWasNotedByAClockThatWasBehindIsKeptForADay() throws {
        machine.set(ahead: .zero - Timestamp(milliseconds: 1_800_000_000_000).since(Timestamp(milliseconds: 0)))
        let clock = try start()
        let noted = clock.now
        machine.set(ahead: Self.day * 20_000)
        try run(clock, for: Self.hour * 23)
        #expect(clock.now == noted.advanced(by: Self.hour * 23))
    }

    /// And is turned on each morning.
    @Test func aMachineWithoutABatteryThatStartsDailyPurges() throws {
        let reset = Timestamp(milliseconds: 0)
        var wall = machine.now
        for day in 0..<10 {
            machine.set(ahead: reset.since(machine.now))
            machine.restart(after: .zero)
            let clock = try start()
            try run(clock, for: .seconds(1200))
            machine.set(ahead: wall.since(machine.now))
            try run(clock, for: Self.hour * 8)
            // On the fourth day it has been steady for a day in all.
            #expect((clock.now == machine.now) == (day >= 3), "\(day)")
            wall = machine.now.advanced(by: Self.hour * 16)
        }
        // A leap is one still.
        let clock = try start()
        machine.set(ahead: Self.day * 40)
        #expect(lag(clock) == 40 * 86_400)
    }

    @Test func whoHasGoneBackAndComesAgainIsBelievedAsBefore() throws {
        let clock = try start()
        try run(clock, for: Self.hour * 30)
        machine.set(ahead: .zero - Self.day * 40)
        try run(clock, for: Self.hour)
        #expect(clock.now == machine.now)
        machine.set(ahead: Self.day * 40)
        #expect(clock.now == machine.now)
        // Beyond where it would be it is ahead.
        machine.set(ahead: .zero - Self.day * 40)
        try run(clock, for: Self.hour)
        machine.set(ahead: Self.day * 50)
        #expect(lag(clock) == 10 * 86_400)
    }

    /// It may be where it was at any moment, and nothing of the time between is old then.
    @Test(arguments: [false, true]) func whatIsNotedWhileTheClockIsBehindIsKeptFromWhereItWas(_ restarts: Bool) throws {
        var clock = try start()
        try run(clock, for: Self.hour * 30)
        let before = machine.now
        #expect(clock.retentionStart == before)
        machine.set(ahead: .zero - Self.day * 400)
        if restarts {
            machine.restart(after: Self.hour)
            clock = try start()
        }
        try run(clock, for: Self.hour)
        #expect(clock.now == machine.now && clock.retentionStart >= before.advanced(by: Self.hour - .seconds(600)))
        try run(clock, for: Self.hour * 10)
        #expect(clock.retentionStart >= before.advanced(by: Self.hour * 11 - .seconds(600)))
        machine.set(ahead: Self.day * 400)
        #expect(clock.now == machine.now && clock.retentionStart == machine.now)
    }

    /// Nor is anything kept for longer where the clock was not believed.
    @Test func whatIsNotedAfterALeapIsKeptFromThenOn() throws {
        let clock = try start()
        try run(clock, for: Self.hour * 30)
        machine.set(ahead: Self.day * 400)
        try run(clock, for: Self.hour)
        machine.set(ahead: .zero - Self.day * 400)
        #expect(clock.retentionStart == machine.now)
        // What was behind for a day is believed.
        machine.set(ahead: .zero - Self.day * 40)
        try run(clock, for: Self.hour * 25)
        #expect(clock.retentionStart == machine.now)
    }

    @Test func itIsWrittenDownNowAndThenAndAfterALeapAtOnce() throws {
        let clock = try start()
        let row = try #require(clock.unsaved())
        clock.hasSaved(row)
        machine.pass(.seconds(299))
        #expect(clock.unsaved() == nil)
        machine.pass(.seconds(1))
        clock.hasSaved(try #require(clock.unsaved()))
        machine.set(ahead: Self.day * 40)
        #expect(clock.unsaved()?.last.lag == Self.day * 40)
    }
}
