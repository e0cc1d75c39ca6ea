internal import NephosCore

/// Serves a device whose budget is used up as long as it is alone: a limit that holds back the only one who wants
/// something serves nobody.
///
/// One request at a time, in all, and only if nothing else waits and no other account has asked for anything of late.
/// After each there is none for about as long as it took. So whoever comes waits for one such request at most, and work
/// that the service has of its own comes between any two.
///
/// On the loop only.
struct SpareTime {
    /// How long no other account may have asked for anything.
    static let quiet: Duration = .seconds(1)
    /// Calls that are taken for one request before it runs, at most: of the largest batch that devices of this project
    /// send.
    static let callsMax = 2048
    /// When to come back, where nothing says how long it takes: long enough that asking again costs nobody anything.
    private static let pause: Duration = .milliseconds(20)

    /// Percent of the time that may be given away; 0: none.
    private let percent: Int
    /// Whose request came last, and when; and when the last one of anybody else's did.
    private var latest: (account: AccountID, time: Duration)?
    private var othersTime: Duration?
    /// The request that is being served. It is gone with whoever drops it without an answer.
    private weak var underWay: GroupItem?
    private var began: Duration = .zero
    /// Before this there is none.
    private var next: Duration = .zero

    init(percent: Int) { self.percent = percent }

    /// Notes that an account asks for something, whether it gets it or not.
    mutating func note(_ account: AccountID, now: Duration) {
        guard percent > 0 else { return }
        if let latest, latest.account != account { othersTime = latest.time }
        latest = (account, now)
    }

    /// Whether the account that asked last may have one more request carried out.
    ///
    /// - Parameter calls: What would be taken for it.
    /// - Returns: How long to wait, not above zero: now. Nil: until its budget has refilled.
    func wait(for calls: Int, isIdle: Bool, now: Duration) -> Duration? {
        guard percent > 0, calls <= Self.callsMax, othersTime.map({ now - $0 >= Self.quiet }) ?? true else {
            return nil
        }
        guard isIdle, underWay == nil else { return Self.pause }
        return next - now
    }

    mutating func begin(_ item: GroupItem, now: Duration) {
        underWay = item
        began = now
    }

    /// Notes that a request has its answer, if it is the one.
    mutating func end(_ item: GroupItem, now: Duration) {
        guard underWay === item else { return }
        underWay = nil
        next = now + (now - began) * (100 - percent) / max(1, percent)
    }
}
