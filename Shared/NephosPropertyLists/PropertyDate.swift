public import Foundation
internal import NephosCore
internal import NephosWire

/// Dates as texts: ISO 8601 in the Gregorian calendar, which is also used for the time before it was made.
public enum PropertyDate {
    /// The years 1 to 9999, in seconds since 1970.
    private static let printable = -62_135_596_800.0..<253_402_300_800.0
    /// What a text may be, as a person reads it.
    public static let form =
        "2026-01-31T12:00:00Z, in the years 0001 to 9999; with at most three digits after a point, or six from 1865 to 2105"

    /// In the years 1 to 9999 as ISO 8601 has them, to the millisecond, or to the microsecond if the date is finer;
    /// else microseconds since 1970.
    public static func text(of date: Date) -> String {
        let microseconds = PropertyValue.microseconds(of: date)
        guard printable.contains(date.timeIntervalSince1970) else { return String(microseconds) }
        let milliseconds = floor(microseconds + 500, 1000)
        // Far from now, where a `Date` has no place for each microsecond, a number of milliseconds may be stored as
        // one of its neighbours.
        guard microseconds == milliseconds * 1000 || isStored(milliseconds * 1000, as: microseconds) else {
            return text(second: floor(microseconds, 1_000_000), fraction: microseconds, digits: 6)
        }
        return text(second: floor(milliseconds, 1000), fraction: milliseconds, digits: 3)
    }

    /// Whether the date of so many microseconds is stored as those.
    private static func isStored(_ microseconds: Int64, as stored: Int64) -> Bool {
        PropertyValue.microseconds(of: Date(timeIntervalSince1970: Double(microseconds) / 1_000_000)) == stored
    }

    /// The date without what is less than a second, as property lists in XML have it; nil: none of the years 1 to 9999.
    static func wholeSeconds(of date: Date) -> String? {
        guard printable.contains(date.timeIntervalSince1970) else { return nil }
        return text(second: Int64(date.timeIntervalSince1970.rounded(.down)), fraction: 0, digits: 0)
    }

    /// The date that is written, and no other; nil: there is none, as on a 30th of February, or it cannot be kept.
    ///
    /// Whole milliseconds can be kept in all years. Of microseconds a `Date` has no place for each before 1865 and
    /// after 2105.
    public static func date(_ text: String) -> Date? {
        let number = Int64(text)
        var reader = Reader(rest: Array(text.utf8)[...])
        guard let microseconds = number ?? reader.microseconds() else { return nil }
        let date = Date(timeIntervalSince1970: Double(microseconds) / 1_000_000)
        guard isStored(microseconds, as: microseconds) || number == nil && microseconds % 1000 == 0 else { return nil }
        return number != nil || printable.contains(date.timeIntervalSince1970) ? date : nil
    }

    // MARK: The calendar

    private static func floor(_ value: Int64, _ unit: Int64) -> Int64 {
        value / unit - (value % unit < 0 ? 1 : 0)
    }

    private static func text(second: Int64, fraction: Int64, digits: Int) -> String {
        let day = floor(second, 86_400)
        let (year, month, dayOfMonth) = civil(day)
        let time = second - day * 86_400
        var text =
            padded(year, 4) + "-" + padded(month, 2) + "-" + padded(dayOfMonth, 2) + "T" + padded(time / 3600, 2) + ":"
            + padded(time / 60 % 60, 2) + ":" + padded(time % 60, 2)
        if digits > 0 {
            let unit: Int64 = digits == 6 ? 1_000_000 : 1000
            text += "." + padded(fraction - floor(fraction, unit) * unit, digits)
        }
        return text + "Z"
    }

    private static func padded(_ value: Int64, _ count: Int) -> String {
        let digits = String(value)
        return String(repeating: "0", count: max(0, count - digits.count)) + digits
    }

    /// The day's date. Years are counted from March, so that the leap day is the last; 400 of them have 146,097 days.
    private static func civil(_ day: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let shifted = day + 719_468
        let era = floor(shifted, 146_097)
        let ofEra = shifted - era * 146_097
        let yearOfEra = (ofEra - ofEra / 1460 + ofEra / 36_524 - ofEra / 146_096) / 365
        let ofYear = ofEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let fromMarch = (5 * ofYear + 2) / 153
        let month = fromMarch < 10 ? fromMarch + 3 : fromMarch - 9
        return (
            yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, ofYear - (153 * fromMarch + 2) / 5 + 1
        )
    }

    fileprivate static func day(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64 {
        let year = month <= 2 ? year - 1 : year
        let era = floor(year, 400)
        let yearOfEra = year - era * 400
        let ofYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + ofYear - 719_468
    }

    private struct Reader {
        var rest: ArraySlice<UInt8>

        /// Since 1970; nil: the text is not in the form, or there is no such date.
        mutating func microseconds() -> Int64? {
            guard let year = number(4), take("-"), let month = number(2), take("-"), let day = number(2), take("T"),
                let hour = number(2), take(":"), let minute = number(2), take(":"), let second = number(2),
                1...12 ~= month, day >= 1, year >= 1, hour < 24, minute < 60, second < 60,
                PropertyDate.day(year, month, day) < Self.firstDay(after: month, of: year)
            else { return nil }
            var fraction: Int64 = 0
            if take(".") {
                let digits = rest.prefix { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }
                guard !digits.isEmpty, digits.dropFirst(6).allSatisfy({ $0 == UInt8(ascii: "0") }) else { return nil }
                for index in 0..<6 {
                    let digit = index < digits.count ? digits[digits.startIndex + index] - UInt8(ascii: "0") : 0
                    fraction = fraction * 10 + Int64(digit)
                }
                rest = rest.dropFirst(digits.count)
            }
            guard let offset = zone(), rest.isEmpty else { return nil }
            let seconds = PropertyDate.day(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset
            return seconds * 1_000_000 + fraction
        }

        private static func firstDay(after month: Int64, of year: Int64) -> Int64 {
            month == 12 ? PropertyDate.day(year + 1, 1, 1) : PropertyDate.day(year, month + 1, 1)
        }

        /// Seconds east of Greenwich.
        private mutating func zone() -> Int64? {
            if take("Z") { return 0 }
            let isWest = take("-")
            guard isWest || take("+"), let hours = number(2) else { return nil }
            _ = take(":")
            guard let minutes = rest.isEmpty ? 0 : number(2), hours < 24, minutes < 60 else { return nil }
            return (hours * 3600 + minutes * 60) * (isWest ? -1 : 1)
        }

        private mutating func number(_ count: Int) -> Int64? {
            let digits = rest.prefix(count)
            guard digits.count == count, digits.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }) else {
                return nil
            }
            rest = rest.dropFirst(count)
            return digits.reduce(0) { $0 * 10 + Int64($1 - UInt8(ascii: "0")) }
        }

        private mutating func take(_ character: Character) -> Bool {
            guard let byte = character.asciiValue, rest.first == byte else { return false }
            rest = rest.dropFirst()
            return true
        }
    }
}
