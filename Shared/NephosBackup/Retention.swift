public import NephosCore

/// How many snapshots are kept: the last so many, and the newest of each of so many days, weeks and months that have one.
///
/// Days are those of UTC; weeks begin on Monday. It asks no clock: a snapshot grows old only by others that come after
/// it, so that nothing is removed because some clock was wrong.
public struct Retention: Hashable, Sendable {
    /// Those that were made last, however soon after one another: what somebody has made before an upgrade is there after
    /// the timer's of the same day.
    public var last: Int
    public var daily: Int
    public var weekly: Int
    public var monthly: Int

    public static let standard = Retention(last: 3, daily: 7, weekly: 4, monthly: 6)

    public init(last: Int = 1, daily: Int, weekly: Int, monthly: Int) {
        self.last = last
        self.daily = daily
        self.weekly = weekly
        self.monthly = monthly
    }

    /// How many of one kind, at most.
    public static let countMax = 10_000

    /// - Parameter text: `last=3,daily=7,weekly=4,monthly=6`; what is not named is 0, but `last`, which is 3.
    /// - Throws: ``CloudError`` `.invalidArguments`.
    public init(_ text: String) throws(CloudError) {
        self.init(last: Self.standard.last, daily: 0, weekly: 0, monthly: 0)
        var seen: Set<String> = []
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            let words = part.split(separator: "=", omittingEmptySubsequences: false).map(String.init)
            guard words.count == 2, let count = Int(words[1]), (0...Self.countMax).contains(count),
                seen.insert(words[0]).inserted
            else { throw Self.invalid(text) }
            switch words[0] {
            case "last": last = count
            case "daily": daily = count
            case "weekly": weekly = count
            case "monthly": monthly = count
            default: throw Self.invalid(text)
            }
        }
        guard last > 0, seen.contains("last") || daily + weekly + monthly > 0 else { throw Self.invalid(text) }
    }

    private static func invalid(_ text: String) -> CloudError {
        CloudError(
            .invalidArguments,
            "What is to be kept is said as last=3,daily=7,weekly=4,monthly=6, each at most 10000. At least one is kept.",
            details: ["keep": text])
    }

    /// A snapshot, as far as this rule goes.
    public struct Item: Hashable, Sendable {
        /// In which order they were made.
        public var number: Int
        public var time: Timestamp
        /// Whether it can be restored, as far as is known.
        public var isWhole: Bool

        public init(number: Int, time: Timestamp, isWhole: Bool) {
            self.number = number
            self.time = time
            self.isWhole = isWhole
        }
    }

    /// The numbers of the snapshots that may go.
    ///
    /// - What was made last never goes.
    /// - One that is not whole, and one whose time is later than that of another that was made after it (a clock was
    ///   wrong), stands for no day, week or month. It goes only when newer ones stand for as many of each as are kept.
    public func removable(of items: [Item]) -> Set<Int> {
        let newestFirst = items.sorted { $0.number > $1.number }
        guard let last = newestFirst.first else { return [] }
        var earliest = last.time
        var good: [Item] = []
        var doubtful: [Item] = []
        for item in newestFirst {
            if item.isWhole, item.time <= earliest { good.append(item) } else { doubtful.append(item) }
            earliest = min(earliest, item.time)
        }
        var kept: Set<Int> = [last.number]
        // Whoever was made before all of these is not needed for any day, week or month.
        var filledFrom = Int.max
        for item in good.prefix(self.last) { kept.insert(item.number) }
        for (count, period) in [(daily, Period.day), (weekly, .week), (monthly, .month)] where count > 0 {
            var seen: Set<Int> = []
            for item in good where seen.count < count {
                guard seen.insert(period.of(item.time)).inserted else { continue }
                kept.insert(item.number)
                if seen.count == count { filledFrom = min(filledFrom, item.number) }
            }
            if seen.count < count { filledFrom = .min }
        }
        if self.last > 1 { filledFrom = min(filledFrom, good.count < self.last ? .min : good[self.last - 1].number) }
        for item in doubtful where item.number > filledFrom { kept.insert(item.number) }
        return Set(items.map(\.number)).subtracting(kept)
    }

    /// A span of time, by a number that is one for all of it.
    enum Period {
        case day, week, month

        func of(_ time: Timestamp) -> Int {
            let day = Int(time.milliseconds / 86_400_000)
            switch self {
            case .day: return day
            // The first of January 1970 was a Thursday.
            case .week: return (day + 3) / 7
            case .month:
                let date = CivilDate(daysSince1970: day)
                return date.year * 12 + date.month
            }
        }
    }
}

/// A day of the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
struct CivilDate: Hashable {
    var year: Int
    var month: Int
    var day: Int

    init(daysSince1970 days: Int) {
        let shifted = days + 719_468
        let era = shifted / 146_097
        let ofEra = shifted - era * 146_097
        let yearOfEra = (ofEra - ofEra / 1460 + ofEra / 36_524 - ofEra / 146_096) / 365
        let ofYear = ofEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * ofYear + 2) / 153
        day = ofYear - (153 * shiftedMonth + 2) / 5 + 1
        month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    }
}

extension Timestamp {
    /// `2026-01-31T12-00-00Z`: a snapshot's name, in UTC, which sorts as the times do.
    var snapshotName: String {
        // Later ones are no times of ours, and would overflow nothing; but the name has four digits for the year.
        let seconds = Int(min(milliseconds / 1000, 253_402_300_799))
        let date = CivilDate(daysSince1970: seconds / 86_400)
        func padded(_ number: Int, _ width: Int = 2) -> String {
            let digits = String(number)
            return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
        }
        let ofDay = seconds % 86_400
        return padded(date.year, 4) + "-" + padded(date.month) + "-" + padded(date.day) + "T" + padded(ofDay / 3600)
            + "-" + padded(ofDay / 60 % 60) + "-" + padded(ofDay % 60) + "Z"
    }
}
