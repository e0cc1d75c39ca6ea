internal import NephosCore

/// How steadily a wall clock goes, beside the time that has passed.
struct Steadiness {
    /// What outlives a restart.
    struct Row: Hashable, Sendable {
        /// The wall clock's time when the service was last seen to run.
        var seen: Timestamp
        var lag: Duration
        var steady: Duration
    }

    enum News: Hashable, Sendable {
        case ahead(expected: Timestamp, found: Timestamp)
        case aheadOverStop(last: Timestamp, found: Timestamp)
        case back(expected: Timestamp, found: Timestamp)
        case believed(after: Duration)
    }

    /// How far what the clock says runs ahead of what is believed of it.
    private(set) var lag: Duration = .zero
    private(set) var passed: Duration
    private var wall: Timestamp
    /// Where both were when the clock was last compared with itself: many small steps make a leap, too.
    private var start: (wall: Timestamp, passed: Duration)
    /// How long it had been steady then.
    private var steadyBefore: Duration = .zero

    init(wall: Timestamp, passed: Duration) {
        (self.wall, self.passed) = (wall, passed)
        start = (wall, passed)
    }

    var now: Timestamp { wall.advanced(by: .zero - lag) }
    var row: Row { Row(seen: wall, lag: lag, steady: steadyBefore + passed - start.passed) }

    /// It was somewhere else when the service ran last.
    mutating func goOn(after row: Row) -> News? {
        (lag, steadyBefore) = (row.lag, row.steady)
        let gap = wall.since(row.seen)
        if gap > PurgeClock.stopMax {
            move(by: gap - PurgeClock.stopMax)
            return .aheadOverStop(last: row.seen, found: wall)
        }
        guard gap < .zero - PurgeClock.leap else { return nil }
        move(by: gap)
        return .back(expected: row.seen, found: wall)
    }

    mutating func advance(to wall: Timestamp, _ passed: Duration) -> News? {
        (self.wall, self.passed) = (wall, passed)
        let expected = start.wall.advanced(by: passed - start.passed)
        let drift = wall.since(expected)
        guard drift <= PurgeClock.leap, drift >= .zero - PurgeClock.leap else {
            move(by: drift)
            return drift > .zero ? .ahead(expected: expected, found: wall) : .back(expected: expected, found: wall)
        }
        guard row.steady >= PurgeClock.trial else { return nil }
        let former = lag
        lag = .zero
        begin()
        return former > .zero ? .believed(after: former) : nil
    }

    private mutating func move(by drift: Duration) {
        lag = max(.zero, lag + drift)
        begin()
    }

    private mutating func begin() {
        start = (wall, passed)
        steadyBefore = .zero
    }
}
