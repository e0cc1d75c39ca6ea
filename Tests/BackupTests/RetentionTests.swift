import Foundation
import NephosCore
import Testing

@testable import NephosBackup

@Suite struct RetentionTests {
    private static let day: UInt64 = 86_400_000
    /// Monday, 5 January 2026, 02:00 UTC.
    private static let monday: UInt64 = 1_767_578_400_000

    private func item(_ number: Int, day: Double, isWhole: Bool = true) -> Retention.Item {
        Retention.Item(
            number: number, time: Timestamp(milliseconds: UInt64(Double(Self.monday) + day * Double(Self.day))),
            isWhole: isWhole)
    }

    private func kept(_ rule: Retention, _ items: [Retention.Item]) -> [Int] {
        let removable = rule.removable(of: items)
        return items.map(\.number).filter { !removable.contains($0) }
    }

    @Test func aYearOfDaysIsThinnedToWhatTheRuleSays() {
        let items = (0..<365).map { item($0 + 1, day: Double($0)) }
        // The last day is Monday 4 January 2027; of the weeks before their Sundays, of the months their last days.
        #expect(kept(.standard, items) == [239, 269, 300, 330, 350, 357, 359, 360, 361, 362, 363, 364, 365])
        #expect(kept(Retention(daily: 0, weekly: 4, monthly: 0), items) == [350, 357, 364, 365])
        #expect(kept(Retention(daily: 0, weekly: 0, monthly: 3), items) == [330, 361, 365])
    }

    @Test func theLastOnesStayHoweverSoonTheyWereMade() {
        let items = (0..<6).map { item($0 + 1, day: Double($0) / 100) }
        #expect(kept(.standard, items) == [4, 5, 6])
        #expect(kept(Retention(last: 1, daily: 7, weekly: 0, monthly: 0), items) == [6])
        // One that cannot be restored is none of them, and stays until there are days enough.
        let damaged = [item(1, day: 0), item(2, day: 0.1), item(3, day: 0.2, isWhole: false), item(4, day: 0.3)]
        #expect(kept(.standard, damaged) == [1, 2, 3, 4])
        #expect(kept(.standard, damaged + [item(5, day: 0.4), item(6, day: 0.5)]) == [3, 4, 5, 6])
    }

    @Test func ofOneDayTheNewestStays() {
        let items = [item(1, day: 0), item(2, day: 0.1), item(3, day: 0.2), item(4, day: 1), item(5, day: 1.1)]
        #expect(kept(Retention(daily: 2, weekly: 0, monthly: 0), items) == [3, 5])
    }

    @Test func aClockThatWasWrongRemovesNothingWrongly() {
        // For a while it was 2030; then it was put right.
        let ahead =
            (1...5).map { item($0, day: Double($0)) } + (6...8).map { item($0, day: 1600 + Double($0)) }
            + [item(9, day: 9)]
        #expect(kept(.standard, ahead) == Array(1...9))
        // It fell back to 1970.
        let back =
            (1...5).map { item($0, day: Double($0)) }
            + [Retention.Item(number: 6, time: Timestamp(milliseconds: 1000), isWhole: true)]
        #expect(kept(Retention(daily: 1, weekly: 0, monthly: 0), back).contains(6))
        #expect(kept(.standard, back) == Array(1...6))
        // Once as many good ones came after them as are kept at all, they go.
        let later = ahead + (10...900).map { item($0, day: Double($0)) }
        #expect(kept(.standard, later).allSatisfy { $0 > 8 })
    }

    @Test func whatIsDamagedStandsForNothing() {
        let items = [item(1, day: 0), item(2, day: 0.5, isWhole: false), item(3, day: 1, isWhole: false)]
        #expect(kept(Retention(daily: 2, weekly: 0, monthly: 0), items) == [1, 2, 3])
    }

    @Test(arguments: 0..<200) func thePropertiesHold(seed: Int) {
        var generator = SplitMix64(seed: UInt64(seed))
        let rule = Retention(
            last: Int.random(in: 1...4, using: &generator), daily: Int.random(in: 0...5, using: &generator),
            weekly: Int.random(in: 0...3, using: &generator),
            monthly: Int.random(in: 1...3, using: &generator))
        var time = Self.monday
        let items = (1...60).map { number -> Retention.Item in
            time += UInt64.random(in: 0...(3 * Self.day), using: &generator)
            // A clock that is wrong now and then.
            if Int.random(in: 0..<20, using: &generator) == 0 {
                time = Self.monday + UInt64.random(in: 0...(400 * Self.day), using: &generator)
            }
            return Retention.Item(
                number: number, time: Timestamp(milliseconds: time),
                isWhole: Int.random(in: 0..<10, using: &generator) > 0)
        }
        let removable = rule.removable(of: items.shuffled(using: &generator))
        #expect(!removable.contains(60))
        let left = items.filter { !removable.contains($0.number) }
        // Whatever is removed has, of its own day, month or week that is kept for, a whole one that stays; or enough came
        // after it. Never fewer whole ones stay than there are days, up to the rule's number.
        let straight = items.reversed().reduce(into: (UInt64.max, [Retention.Item]())) { state, item in
            if item.isWhole, item.time.milliseconds <= state.0 { state.1.append(item) }
            state.0 = min(state.0, item.time.milliseconds)
        }.1
        let days = Set(straight.map { Retention.Period.day.of($0.time) })
        let keptDays = Set(left.filter { straight.contains($0) }.map { Retention.Period.day.of($0.time) })
        #expect(keptDays.count >= min(rule.daily, days.count))
        for day in days.sorted().suffix(rule.daily) { #expect(keptDays.contains(day)) }
        // With clocks that were right, and nothing damaged: a second look removes nothing more, and one more snapshot takes
        // the place of four at most: the last of each kind.
        let right = items.map {
            Retention.Item(number: $0.number, time: Self.sorted(items)[$0.number - 1], isWhole: true)
        }
        let rest = right.filter { !rule.removable(of: right).contains($0.number) }
        #expect(rule.removable(of: rest).isEmpty)
        let next = Retention.Item(number: 61, time: Timestamp(milliseconds: 4_000_000_000_000), isWhole: true)
        #expect(rule.removable(of: rest + [next]).count <= 4)
        #expect(rest.count <= rule.last + rule.daily + rule.weekly + rule.monthly)
        let newest = straight.prefix(rule.last)
        #expect(newest.allSatisfy { left.contains($0) })
    }

    private static func sorted(_ items: [Retention.Item]) -> [Timestamp] { items.map(\.time).sorted() }

    @Test func monthsAndWeeksAreThoseOfTheCalendar() {
        for (text, year, month, day) in [(0, 1970, 1, 1), (19_782, 2024, 2, 29), (20_454, 2026, 1, 1)] {
            let date = CivilDate(daysSince1970: text)
            #expect((date.year, date.month, date.day) == (year, month, day))
        }
        // Sunday and Monday.
        #expect(
            Retention.Period.week.of(Timestamp(milliseconds: Self.monday - Self.day))
                == Retention.Period.week.of(Timestamp(milliseconds: Self.monday)) - 1)
        #expect(Timestamp(milliseconds: Self.monday).snapshotName == "2026-01-05T02-00-00Z")
        #expect(Timestamp(milliseconds: .max).snapshotName == "9999-12-31T23-59-59Z")
    }

    @Test func whatIsToBeKeptIsReadAsItIsSaid() throws {
        #expect(try Retention("daily=7,weekly=4,monthly=6") == .standard)
        #expect(try Retention("monthly=12") == Retention(last: 3, daily: 0, weekly: 0, monthly: 12))
        #expect(try Retention("last=1") == Retention(last: 1, daily: 0, weekly: 0, monthly: 0))
        for text in [
            "", "daily", "daily=", "daily=-1", "yearly=1", "daily=1,daily=2", "daily=0", "daily=1,", "daily=10001",
            "last=0,daily=7", "last=3,last=3",
        ] {
            #expect(throws: CloudError.self) { try Retention(text) }
        }
    }
}
