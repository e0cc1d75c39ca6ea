import NephosCore
import NephosWire
import Testing

@testable import NephosKit

@Suite struct PullRulesTests {
    private let now = Timestamp(milliseconds: 1_750_000_000_000)

    private func item(
        _ key: ItemName, _ value: PropertyValue?, at time: UInt64, sequence: UInt64, device: String = "dev_a"
    ) -> KeyValueItem {
        KeyValueItem(
            key: key, value: value, timestamp: HybridTimestamp(now.advanced(by: .milliseconds(Int64(time)))),
            deviceID: DeviceID(device), sequence: sequence)
    }

    private func plan(
        _ items: [KeyValueItem], local: [KeyValueItem], epoch: UInt64 = 2, start: UInt64 = 5, comparing: Bool = false
    ) throws -> PullPlan {
        try #require(
            PullRules.plan(
                PulledState(
                    token: ChangeToken(epoch: epoch, sequence: 9), complete: true, items: items, epochStart: start,
                    comparing: comparing),
                local: local, head: ChangeToken(epoch: 1, sequence: 9), now: now))
    }

    @Test func whatAnotherHistoryLacksIsOffered() throws {
        let lost = item("lost", 1, at: 1, sequence: 6)
        let deleted = item("deleted", 1, at: 1, sequence: 5)
        let newer = item("newer", 2, at: 2, sequence: 4)
        let loser = item("loser", 1, at: 1, sequence: 7)
        let older = item("older", 1, at: 1, sequence: 3)
        let same = item("same", 1, at: 1, sequence: 2)
        let theirs = [
            item("newer", 1, at: 1, sequence: 3), item("loser", 2, at: 2, sequence: 8),
            item("older", 2, at: 2, sequence: 8), same,
        ]
        let plan = try plan(theirs, local: [lost, deleted, newer, loser, older, same])
        #expect(Set(plan.offers.map(\.key)) == ["lost", "newer", "loser"])
        #expect(plan.puts.filter { $0.key != "deleted" } == theirs)
    }

    @Test func aDeletionOfWhichOnlyTheAbsenceWasSeenIsRemembered() throws {
        let value = item("a", 1, at: 1, sequence: 3)
        let kept = try plan([], local: [value]).puts
        #expect(kept.map(\.key) == ["a"] && kept.allSatisfy { $0.value == nil && $0.sequence == 0 })
        // A copy from before the deletion comes back: it is deleted there too, and whatever is newer stays.
        let old = try plan([value], local: kept, epoch: 3, start: 2)
        #expect(old.offers == kept)
        let newer = try plan([item("a", 2, at: 2, sequence: 3)], local: kept, epoch: 3, start: 2)
        #expect(newer.offers.isEmpty)
    }

    /// A listing that lacked something by mistake costs a second look, and no data.
    @Test func inOneHistoryAnInferredDeletionGivesWayToTheVeryWriteItWasMadeFrom() throws {
        let value = item("a", 1, at: 1, sequence: 3)
        let kept = try plan([], local: [value], epoch: 1).puts
        #expect(kept.map(\.value) == [nil])
        for comparing in [false, true] {
            let again = try plan([value], local: kept, epoch: 1, comparing: comparing)
            #expect(again.offers.isEmpty && again.puts == [value])
        }
        // One that was really made is offered, also when it followed at once.
        var made = kept[0]
        made.sequence = 4
        #expect(try plan([value], local: [made], epoch: 1, comparing: true).offers == [made])
    }

    @Test func deletionsAreRememberedAndOfferedAgainstWhatComesBack() throws {
        let tombstone = item("a", nil, at: 5, sequence: 7)
        let other = item("b", nil, at: 5, sequence: 8)
        let restored = try plan([item("a", 1, at: 1, sequence: 3)], local: [tombstone, other])
        #expect(restored.offers == [tombstone])
        // Before everything in the new history.
        #expect(restored.puts.first { $0.key == "b" }?.sequence == PullRules.before)
        // A full pull of the same history forgets none either, but those that are too old.
        let old = KeyValueItem(
            key: "c", value: nil, timestamp: HybridTimestamp(now.advanced(by: .zero - .seconds(91 * 86_400))),
            deviceID: DeviceID("dev_a"), sequence: 2)
        let same = try plan([], local: [other, old], epoch: 1)
        #expect(same.puts == [other] && same.offers.isEmpty)
    }

    @Test func aComparisonTakesNothingForKnown() throws {
        let mine = item("mine", 1, at: 1, sequence: 2)
        let differs = item("differs", 1, at: 1, sequence: 3)
        let plan = try plan(
            [item("differs", 2, at: 1, sequence: 3)], local: [mine, differs], epoch: 1, comparing: true)
        #expect(Set(plan.offers.map(\.key)) == ["mine", "differs"])
    }

    @Test func whatWasWrittenTogetherIsOfferedTogether() {
        let groups = PullRules.transactions([
            item("a", 1, at: 1, sequence: 7), item("b", 1, at: 1, sequence: 6), item("c", 1, at: 1, sequence: 7),
        ])
        #expect(groups.map { $0.map(\.key) } == [["b"], ["a", "c"]])
    }
}
