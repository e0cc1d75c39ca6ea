import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

/// What was done in several histories that the service has come back from: neither goes silently for the other.
extension OfferTests {
    /// What was deleted in one history, and saved in the next one: neither has known of the other, whichever comes first.
    @Test(arguments: [false, true]) func aDeletionAndASaveOfTwoHistoriesAreAConflict(isSavedFirst: Bool) throws {
        let version = try there.save("a", ["n": .integer(1)])
        let copy = try copy()
        pass()
        let told = try #require(there.modify([.delete("a", base: version)]).records.first).record
        try lose(since: copy)
        pass()
        try there.save("a", ["n": .integer(2)], base: version)
        let saved = try #require(try here.list()["a"])
        #expect(saved.modified.time > told.modified.time)
        try lose(since: copy)
        if isSavedFirst {
            #expect(try here.modify([.offer("a", saved)]).codes == [nil])
            #expect(try there.modify([.repeated("a", told)]).codes == [.serverRecordChanged])
        } else {
            #expect(try there.modify([.repeated("a", told)]).codes == [nil])
            #expect(try here.modify([.offer("a", saved)]).codes == [.unknownItem])
        }
        #expect(try here.list()["a"] == (isSavedFirst ? saved : nil))
    }

    /// The service comes back, and somebody saves there before anybody has shown it that: of what was lost that has followed
    /// nothing, nor has what was made from it.
    @Test(arguments: [false, true], [false, true])
    func whatWasSavedBeforeARestoreWasShownHasNotFollowedWhatWasLost(isMadeFrom: Bool, isDeleted: Bool) throws {
        var version = try there.save("a", ["n": .integer(1)])
        let copy = try copy()
        pass()
        let next = try here.save("a", ["n": .integer(2)], base: version)
        let lost = try #require(try here.list()["a"])
        let told = try #require(here.modify([.delete("a", base: next)]).records.first).record
        house.cloud.network.run(for: .seconds(60))
        try house.cloud.restore(copy, of: .records)
        // It knows of nothing that was lost, and so shows nothing.
        version = try there.save("a", ["n": .integer(3)], base: version)
        pass()
        try here.delete("nothing")
        pass()
        try there.save("other")
        if isMadeFrom { version = try there.save("a", ["n": .integer(4)], base: version) }
        let stands = try #require(try there.list()["a"])
        try lose(since: self.copy())
        let offer: WireRecordChange = isDeleted ? .repeated("a", told) : .offer("a", lost)
        #expect(try here.modify([offer]).codes == [.serverRecordChanged])
        #expect(try here.list()["a"] == stands)
    }

    /// One that was made anew undoes no deletion of the one before.
    @Test func whatWasMadeAnewAfterADeletionIsNoConflictWithIt() throws {
        let version = try there.save("a", ["n": .integer(1)])
        let early = try copy()
        let told = try #require(there.modify([.delete("a", base: version)]).records.first).record
        pass()
        try there.save("a", ["n": .integer(2)])
        let later = try copy()
        try lose(since: later)
        let made = try #require(try here.list()["a"])
        // A stamp of its own, and not what was said of the one that was deleted.
        #expect(made.created.gaps.isEmpty && made.created.time > told.modified.time)
        try here.save("a", ["n": .integer(3)], base: made.version)
        let saved = try #require(try here.list()["a"])
        #expect(!saved.modified.gaps.isEmpty && saved.created == made.created)
        try lose(since: early)
        #expect(try there.modify([.repeated("a", told)]).codes == [nil])
        #expect(try here.modify([.offer("a", saved)]).codes == [nil])
        #expect(try there.modify([.repeated("a", told)]).codes == [nil])
        #expect(try here.list()["a"] == saved)
    }

    /// A record was made, lost, and another one of its name was made: what is older than this one it has not followed.
    @Test func anotherRecordOfTheNameHasFollowedNothingThatIsOlder() throws {
        let copy = try copy()
        let first = try there.save("a", ["n": .integer(1)])
        try there.save("a", ["n": .integer(2)], base: first)
        let lost = try #require(try here.list()["a"])
        try lose(since: copy)
        pass()
        let version = try there.save("a", ["n": .integer(8)])
        let made = try #require(try here.list()["a"])
        let with = try self.copy()
        try lose(since: with)
        try there.save("a", ["n": .integer(9)], base: version)
        let other = try #require(try here.list()["a"])
        #expect(other.modified.gaps.prefix(2) == [0, made.created.time])
        try lose(since: copy)
        for (record, code) in [(other, nil), (lost, CloudError.Code.serverRecordChanged)] {
            #expect(try here.modify([.offer("a", record)]).codes == [code])
        }
        #expect(try here.list()["a"] == other)
    }

    /// Of very many histories the oldest two are taken for one, and none is forgotten.
    @Test func ofManyHistoriesNoneIsForgotten() throws {
        var version = try there.save("a", ["n": .integer(0)])
        let copy = try copy()
        try there.save("a", ["n": .integer(100)], base: version)
        let lost = try #require(try here.list()["a"])
        try lose(since: copy)
        for number in 1...(RecordLimits.gapsMax + 3) {
            version = try there.save("a", ["n": .integer(Int64(number))], base: version)
            // No token runs out meanwhile.
            try lose(since: self.copy(), after: .seconds(2))
        }
        try there.save("a", ["n": .integer(99)], base: version)
        let last = try #require(try here.list()["a"])
        let gaps = last.modified.gaps
        #expect(gaps.count == 2 * RecordLimits.gapsMax && gaps == gaps.sorted() && gaps.first == 0)
        try lose(since: self.copy(), after: .seconds(2))
        #expect(try here.modify([.offer("a", lost)]).codes == [.serverRecordChanged])
        #expect(try here.list()["a"] == last)
    }

    /// What was saved in a history that a deletion has not followed does not go with it.
    @Test func whatADeletionHasNotFollowedDoesNotGoWithIt() throws {
        var version = try there.save("a", ["n": .integer(1)])
        let base = try there.save("b", ["to": .with("a")])
        try there.save("c", ["to": .with("a")])
        version = try there.save("a", ["n": .integer(2)], base: version)
        let copy = try copy()
        try here.save("b", ["n": .integer(2)], base: base)
        let lost = try #require(try here.list()["b"])
        try lose(since: copy)
        pass()
        let told = try #require(there.modify([.delete("a", base: version)]).records.first).record
        try lose(since: copy)
        #expect(try here.modify([.offer("b", lost)]).codes == [nil])
        let outcome = try there.modify([.repeated("a", told)])
        #expect(outcome.codes == [nil] && outcome.cascaded == ["c"])
        #expect(try here.list()["b"] == lost && here.list()["a"] == nil)
    }
}
