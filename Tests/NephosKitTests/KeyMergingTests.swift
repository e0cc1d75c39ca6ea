import NephosCore
import NephosSync
import NephosWire
import Testing

@testable import NephosKit

/// What a store's rows are to the rule for two histories.
@Suite struct KeyMergingTests {
    private let now = Timestamp(milliseconds: 1_750_000_000_000)

    private func item(
        _ key: ItemName, _ value: PropertyValue?, at time: UInt64, sequence: UInt64, device: String = "dev_a"
    ) -> KeyValueItem {
        KeyValueItem(
            key: key, value: value, timestamp: HybridTimestamp(now.advanced(by: .milliseconds(Int64(time)))),
            deviceID: DeviceID(device), sequence: sequence)
    }

    private func history(epoch: UInt64 = 2, comparing: Bool = false) -> HistoryRelation {
        HistoryRelation(
            of: ChangeToken(epoch: 1, sequence: 9), to: ChangeToken(epoch: epoch, sequence: 9), wentBack: false,
            isComparing: comparing, start: 5)
    }

    private func decide(
        _ theirs: KeyValueItem, over mine: KeyValueItem, _ history: HistoryRelation
    ) -> ReconcileRule.Decision { KeyValueModel.decide(theirs, over: mine, history) }

    @Test func theNewerStampIsTheLaterState() {
        let (older, newer) = (item("a", 1, at: 1, sequence: 3), item("a", 2, at: 2, sequence: 4))
        #expect(older.later(newer) == .theirs && newer.later(older) == .mine)
        #expect(older.later(older) == .same)
        var other = older
        other.value = 3
        #expect(older.later(other) == .unknown)
    }

    @Test func whatAnotherHistoryLacksIsOffered() {
        let history = history()
        func isOffered(_ mine: KeyValueItem, _ theirs: KeyValueItem) -> Bool {
            decide(theirs, over: mine, history) != .take
        }
        #expect(isOffered(item("newer", 2, at: 2, sequence: 4), item("newer", 1, at: 1, sequence: 3)))
        #expect(isOffered(item("loser", 1, at: 1, sequence: 7), item("loser", 2, at: 2, sequence: 8)))
        #expect(!isOffered(item("older", 1, at: 1, sequence: 3), item("older", 2, at: 2, sequence: 8)))
        let same = item("same", 1, at: 1, sequence: 7)
        #expect(!isOffered(same, same))
        // A deletion that lost has nothing to keep.
        #expect(!isOffered(item("gone", nil, at: 1, sequence: 7), item("gone", 2, at: 2, sequence: 8)))
    }

    @Test func aDeletionOfWhichOnlyTheAbsenceWasSeenIsRemembered() throws {
        let value = item("a", 1, at: 1, sequence: 3)
        let kept = try #require(KeyValueModel.remembered([value], history(), now: now).first)
        #expect(kept.key == "a" && kept.value == nil && kept.sequence == 0)
        #expect(kept.held(beside: value) == .inferred && kept.held() == .deleted)
        // A database from before the deletion is restored: it is deleted there too, and whatever is newer stays.
        #expect(decide(value, over: kept, history(epoch: 3)) == .takeAndOffer(isLater: true))
        #expect(decide(item("a", 2, at: 2, sequence: 3), over: kept, history(epoch: 3)) == .take)
    }

    /// A listing that lacked something by mistake costs a second look, and no data.
    @Test func inOneHistoryAnInferredDeletionGivesWayToTheVeryWriteItWasMadeFrom() throws {
        let value = item("a", 1, at: 1, sequence: 3)
        var kept = try #require(KeyValueModel.remembered([value], history(epoch: 1), now: now).first)
        for comparing in [false, true] {
            #expect(decide(value, over: kept, history(epoch: 1, comparing: comparing)) == .take)
        }
        // One that was really made is offered, also when it followed at once.
        kept.sequence = 4
        #expect(decide(value, over: kept, history(epoch: 1, comparing: true)) == .takeAndOffer(isLater: true))
    }

    @Test func deletionsAreRememberedForTheirTime() {
        let deletion = item("b", nil, at: 5, sequence: 8)
        let old = KeyValueItem(
            key: "c", value: nil, timestamp: HybridTimestamp(now.advanced(by: .zero - .seconds(91 * 86_400))),
            deviceID: DeviceID("dev_a"), sequence: 2)
        #expect(KeyValueModel.remembered([deletion, old], history(epoch: 1), now: now) == [deletion])
        // Before everything in another history.
        let sequences = KeyValueModel.remembered([deletion], history(), now: now).map(\.sequence)
        #expect(sequences == [KeyValueModel.before])
        let many = (0..<4100).map { item("\($0)", nil, at: UInt64($0), sequence: 2) }
        let newest = KeyValueModel.remembered(many, history(), now: now)
        #expect(newest.count == 4096 && newest.first?.key == "4099" && newest.last?.key == "4")
    }

    @Test func aComparisonTakesNothingForKnown() {
        let history = history(epoch: 1, comparing: true)
        let mine = item("differs", 1, at: 1, sequence: 3)
        #expect(decide(item("differs", 2, at: 1, sequence: 3), over: mine, history) == .takeAndOffer(isLater: false))
        #expect(history.decideUnlisted(mine.held(), at: 3, isQuarantined: false) == .offer)
    }

    @Test func whatWasWrittenTogetherIsOfferedTogether() {
        let groups = KeyValueModel.transactions([
            item("a", 1, at: 1, sequence: 7), item("b", 1, at: 1, sequence: 6), item("c", 1, at: 1, sequence: 7),
        ])
        #expect(groups.map { $0.map(\.key) } == [["b"], ["a", "c"]])
    }
}
