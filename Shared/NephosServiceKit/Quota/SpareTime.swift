internal import NephosCore

/// How much of its time a service's loop works, so that callers whose budget is used up are served while it has time
/// to spare: a limit that holds back the only one who wants something serves nobody.
///
/// On the loop only.
struct SpareTime {
    /// What is looked at: long enough to hold several groups, short enough that a burst ends it at once.
    private static let window: Duration = .milliseconds(200)

    /// Percent of the time that may be worked for there to be some to spare; 0: there is none.
    private let percent: Int
    private var start: Duration = .zero
    private var worked: Duration = .zero
    /// Percent of the window before.
    private var before = 0.0

    init(percent: Int) { self.percent = percent }

    /// Notes work that has ended now.
    mutating func note(_ taken: Duration, now: Duration) {
        guard percent > 0 else { return }
        roll(now)
        worked += taken
    }

    mutating func isThere(now: Duration) -> Bool {
        guard percent > 0 else { return false }
        roll(now)
        return max(before, 100 * (worked / Self.window)) < Double(percent)
    }

    private mutating func roll(_ now: Duration) {
        let passed = now - start
        guard passed >= Self.window else { return }
        before = 100 * (worked / passed)
        (start, worked) = (now, .zero)
    }
}
