internal import NephosCore

/// How steadily a wall clock goes, beside the time that has passed.
struct Steadiness {
    /// What was known of a clock when it was seen.
    struct Sight: Hashable, Sendable {
        /// The wall clock's time.
        var seen: Timestamp
        var lag: Duration
        var steady: Duration
    }

    /// What outlives a restart.
    struct Row: Hashable, Sendable {
        /// When the service was last seen to run.
        var last: Sight
        /// Before the clock went back; nil: it did not, or has been believed since.
        var former: Sight?
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

    /// Where it was before it went back: a clock that was behind, as one without a battery is until it is set, does not
    /// leap when it comes to where it was.
    private var former: Sight?
    /// When it went back; nil: before a stop.
    private var wentBack: Duration?
    private let begun: Duration

    init(wall: Timestamp, passed: Duration) {
        (self.wall, self.passed, begun) = (wall, passed, passed)
        start = (wall, passed)
    }

    var now: Timestamp { wall.advanced(by: .zero - lag) }
    /// Where ``now`` may be at once again: where it was before it went back, if that lies ahead, and by as much further as
    /// has passed since. What is done meanwhile is not all done in one moment.
    var retentionStart: Timestamp {
        guard let former else { return wall }
        return max(wall, former.seen.advanced(by: passed - (wentBack ?? begun) - former.lag))
    }
    var row: Row { Row(last: sight, former: former) }
    private var sight: Sight { Sight(seen: wall, lag: lag, steady: steadyBefore + passed - start.passed) }

    /// It was somewhere else when the service ran last.
    mutating func goOn(after row: Row) -> News? {
        let last = row.last
        former = row.former
        (lag, steadyBefore) = (last.lag, last.steady)
        let gap = wall.since(last.seen)
        if gap > PurgeClock.stopMax {
            return goAhead(by: gap - PurgeClock.stopMax) ? .aheadOverStop(last: last.seen, found: wall) : nil
        }
        guard gap < .zero - PurgeClock.leap else { return nil }
        goBack(from: last, by: gap, at: nil)
        return .back(expected: last.seen, found: wall)
    }

    mutating func advance(to wall: Timestamp, _ passed: Duration) -> News? {
        let (before, passedBefore) = (sight, self.passed)
        (self.wall, self.passed) = (wall, passed)
        let expected = start.wall.advanced(by: passed - start.passed)
        let drift = wall.since(expected)
        if drift > PurgeClock.leap { return goAhead(by: drift) ? .ahead(expected: expected, found: wall) : nil }
        if drift < .zero - PurgeClock.leap {
            goBack(from: before, by: drift, at: passedBefore)
            return .back(expected: expected, found: wall)
        }
        guard sight.steady >= PurgeClock.trial else { return nil }
        let lagged = lag
        (lag, former) = (.zero, nil)
        begin()
        return lagged > .zero ? .believed(after: lagged) : nil
    }

    /// - Returns: Whether it is ahead of all that it was, too.
    private mutating func goAhead(by drift: Duration) -> Bool {
        guard let former, wall >= former.seen else {
            move(by: drift)
            return true
        }
        // It goes on from there, as after a stop.
        let gap = wall.since(former.seen) - (wentBack.map { passed - $0 } ?? PurgeClock.stopMax)
        start = (wall, passed)
        (lag, steadyBefore, self.former) = (former.lag, former.steady, nil)
        guard gap > PurgeClock.leap else { return false }
        move(by: gap)
        return true
    }

    private mutating func goBack(from last: Sight, by drift: Duration, at passed: Duration?) {
        if former.map({ $0.seen < last.seen }) ?? true { (former, wentBack) = (last, passed) }
        move(by: drift)
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
