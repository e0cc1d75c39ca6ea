/// A point in time as predicates compare it: nanoseconds since 1970, from the year 1677 to 2262.
public struct PredicateDate: Hashable, Comparable, Sendable {
    public var nanoseconds: Int64

    public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

    /// Whole milliseconds since 1970, rounded down: negative before 1970.
    public var milliseconds: Int64 { Self.split(nanoseconds, by: 1_000_000).0 }

    public static func < (left: PredicateDate, right: PredicateDate) -> Bool { left.nanoseconds < right.nanoseconds }

    private static let perSecond: Int64 = 1_000_000_000
    private static let secondsPerDay: Int64 = 86_400
}

extension PredicateDate: CustomStringConvertible {
    /// As ISO 8601 writes it in UTC, with as many digits of a second as it has: `2026-01-31T12:00:00.5Z`.
    public var description: String {
        let (seconds, fraction) = Self.split(nanoseconds, by: Self.perSecond)
        let (days, second) = Self.split(seconds, by: Self.secondsPerDay)
        let (year, month, day) = Self.civil(days: days)
        var text = "\(Self.padded(year, 4))-\(Self.padded(month, 2))-\(Self.padded(day, 2))"
        text += "T\(Self.padded(second / 3600, 2)):\(Self.padded(second / 60 % 60, 2)):\(Self.padded(second % 60, 2))"
        if fraction != 0 {
            var digits = Self.padded(fraction, 9)
            while digits.hasSuffix("0") { digits.removeLast() }
            text += "." + digits
        }
        return text + "Z"
    }

    private static func padded(_ number: Int64, _ width: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }

    /// Quotient and remainder, the latter never negative.
    private static func split(_ number: Int64, by divisor: Int64) -> (Int64, Int64) {
        let (quotient, remainder) = number.quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? (quotient - 1, remainder + divisor) : (quotient, remainder)
    }
}

extension PredicateDate {
    /// Reads `2026-01-31`, `2026-01-31T12:00Z` and `2026-01-31T12:00:00.123456789+01:00`. A time of day needs its
    /// zone; a day alone is its first moment in UTC.
    ///
    /// - Returns: Nil for anything else, for days that no calendar has, and outside of the years 1677 to 2262.
    public init?(_ text: String) {
        var rest = Substring(text).utf8
        guard let year = Self.number(&rest, 4), Self.take(&rest, "-"), let month = Self.number(&rest, 2),
            Self.take(&rest, "-"), let day = Self.number(&rest, 2), (1...12).contains(month),
            day >= 1, day <= Self.days(of: month, in: year)
        else { return nil }
        var seconds = Self.days(year: year, month: month, day: day) * Self.secondsPerDay
        var fraction: Int64 = 0
        if !rest.isEmpty {
            guard Self.take(&rest, "T"), let hour = Self.number(&rest, 2), Self.take(&rest, ":"),
                let minute = Self.number(&rest, 2), hour < 24, minute < 60
            else { return nil }
            seconds += hour * 3600 + minute * 60
            if Self.take(&rest, ":") {
                guard let second = Self.number(&rest, 2), second < 60 else { return nil }
                seconds += second
                if Self.take(&rest, ".") {
                    guard let read = Self.fraction(&rest) else { return nil }
                    fraction = read
                }
            }
            guard let offset = Self.offset(&rest), rest.isEmpty else { return nil }
            seconds -= offset
        }
        // The first second of the range is not whole: it counts down from the next one.
        if seconds < 0, fraction > 0 {
            seconds += 1
            fraction -= Self.perSecond
        }
        let (scaled, overflow) = seconds.multipliedReportingOverflow(by: Self.perSecond)
        let (sum, sumOverflow) = scaled.addingReportingOverflow(fraction)
        guard !overflow, !sumOverflow else { return nil }
        nanoseconds = sum
    }

    private static func take(_ rest: inout Substring.UTF8View, _ character: Unicode.Scalar) -> Bool {
        guard let first = rest.first, UInt32(first) == character.value else { return false }
        rest.removeFirst()
        return true
    }

    private static func number(_ rest: inout Substring.UTF8View, _ width: Int) -> Int64? {
        var number: Int64 = 0
        for _ in 0..<width {
            guard let digit = rest.popFirst(), digit.isDigit else { return nil }
            number = number * 10 + Int64(digit - UInt8(ascii: "0"))
        }
        return number
    }

    /// One to nine digits, as nanoseconds.
    private static func fraction(_ rest: inout Substring.UTF8View) -> Int64? {
        var number: Int64 = 0
        var width = 0
        while let digit = rest.first, digit.isDigit {
            guard width < 9 else { return nil }
            number = number * 10 + Int64(digit - UInt8(ascii: "0"))
            width += 1
            rest.removeFirst()
        }
        guard width > 0 else { return nil }
        for _ in width..<9 { number *= 10 }
        return number
    }

    /// The zone's distance from UTC in seconds.
    private static func offset(_ rest: inout Substring.UTF8View) -> Int64? {
        if take(&rest, "Z") { return 0 }
        let sign: Int64
        if take(&rest, "+") {
            sign = 1
        } else if take(&rest, "-") {
            sign = -1
        } else {
            return nil
        }
        guard let hours = number(&rest, 2), take(&rest, ":"), let minutes = number(&rest, 2), hours < 24, minutes < 60
        else { return nil }
        return sign * (hours * 3600 + minutes * 60)
    }

    private static func days(of month: Int64, in year: Int64) -> Int64 {
        switch month {
        case 4, 6, 9, 11: 30
        case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
        default: 31
        }
    }

    /// Days since 1970 of the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
    private static func days(year: Int64, month: Int64, day: Int64) -> Int64 {
        let shifted = month <= 2 ? year - 1 : year
        let era = (shifted >= 0 ? shifted : shifted - 399) / 400
        let yearOfEra = shifted - era * 400
        let dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }

    private static func civil(days: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let shifted = days + 719_468
        let (era, dayOfEra) = split(shifted, by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let shiftedMonth = (5 * dayOfYear + 2) / 153
        let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
        let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        return (year, month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
    }
}
