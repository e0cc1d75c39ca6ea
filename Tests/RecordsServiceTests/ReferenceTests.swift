import Foundation
import NephosCore
import NephosWire
import Testing

/// References that delete their record with its target, and parents.
@Suite struct ReferenceTests {
    private let house: RecordHouse
    private let device: RecordDevice

    init() throws {
        house = try RecordHouse()
        device = try house.device()
    }

    @Test func whatRefersSoGoesWithItsTargetHoweverFar() throws {
        try device.save("list")
        try device.save("item", ["list": .with("list")])
        try device.save("note", ["item": .with("item")])
        var weak = WireRecordReference()
        weak.record = "list"
        try device.save("other", ["list": .reference(weak)])
        let outcome = try device.modify([.delete("list")])
        #expect(outcome.codes == [nil])
        #expect(outcome.cascaded == ["item", "note"])
        #expect(try Set(device.list().keys) == ["other"])
        #expect(try house.rows(of: "record_references") == 0)
    }

    @Test func circlesGoAsAWhole() throws {
        try device.modify([.save("a", ["next": .with("b")]), .save("b", ["next": .with("a")])])
        #expect(try device.modify([.delete("a")]).codes == [nil])
        #expect(try device.list().isEmpty)
    }

    @Test func aRecordThatRefersNoMoreStays() throws {
        try device.save("list")
        let item = try device.save("item", ["list": .with("list")])
        var change = WireRecordChange.save("item", ["title": .string("free")], base: item)
        change.save.replace = true
        #expect(try device.modify([change, .delete("list")]).codes == [nil, nil])
        #expect(try Set(device.list().keys) == ["item"])
        // One that is saved with the reference would go at once.
        try device.save("list")
        let outcome = try device.modify([.save("other", ["list": .with("list")]), .delete("list")])
        #expect(outcome.codes == [.referenceViolation, .batchRequestFailed])
    }

    /// Nothing of it would change, and it would be gone all the same.
    @Test func whatIsSavedAsItIsDoesNotGoWithOthersEither() throws {
        try device.save("list")
        let save = WireRecordChange.save("item", ["list": .with("list")])
        try device.modify([save])
        let outcome = try device.modify([save, .delete("list")])
        #expect(outcome.codes == [.referenceViolation, .batchRequestFailed])
        #expect(try Set(device.list().keys) == ["item", "list"])
        // To delete what is not there says nothing of what is.
        #expect(try device.modify([.delete("none"), .delete("list")]).codes == [nil, nil])
        #expect(try device.list().isEmpty)
    }

    @Test func aParentIsThereAndStaysWhileItHasChildren() throws {
        #expect(try device.modify([.save("child", parent: "parent")]).codes == [.referenceViolation])
        #expect(try device.modify([.save("child", parent: "parent"), .save("parent")]).codes == [nil, nil])
        #expect(try device.modify([.delete("parent")]).codes == [.referenceViolation])
        #expect(try device.modify([.delete("parent"), .delete("child")]).codes == [nil, nil])
        #expect(try house.rows(of: "record_references") == 0)
    }

    @Test func nobodyIsAboveThemselves() throws {
        try device.modify([.save("a"), .save("b", parent: "a"), .save("c", parent: "b")])
        let version = try #require(try device.list()["a"]?.version)
        #expect(try device.modify([.save("a", base: version, parent: "c")]).codes == [.referenceViolation])
        #expect(try device.modify([.save("d", parent: "d")]).codes == [.referenceViolation])
    }

    @Test func whoKeepsItsParentIsSavedHoweverManyAreAbove() throws {
        for (start, name) in [(0, "a"), (0, "b")] {
            try device.modify(
                (start..<40).map { .save("\(name)\($0)", parent: $0 == 0 ? nil : "\(name)\($0 - 1)") })
        }
        let top = try #require(try device.list()["b0"]?.version)
        #expect(try device.modify([.save("b0", base: top, parent: "a39")]).codes == [nil])
        let low = try #require(try device.list()["b39"]?.version)
        #expect(try device.modify([.save("b39", ["x": .integer(1)], base: low)]).codes == [nil])
        #expect(
            try device.modify([.save("b39", ["x": .integer(2)], policy: .changedKeys, parent: "b39")]).codes != [nil])
        // Nobody is given a place so far below.
        #expect(try device.modify([.save("more", parent: "b39")]).codes == [.limitExceeded])
    }

    @Test func whatStaysLetsItsParentsStayAndNoOthers() throws {
        try device.modify((0..<8).map { .save("p\($0)", parent: $0 == 0 ? nil : "p\($0 - 1)") })
        try device.save("free")
        try device.modify([.save("child", parent: "p7")])
        let changes = (0..<8).map { WireRecordChange.delete("p\($0)") } + [.delete("free"), .save("new")]
        let outcome = try device.modify(changes, atomic: false)
        #expect(outcome.codes == Array(repeating: .referenceViolation, count: 8) + [nil, nil])
        #expect(try device.list().keys.contains("new"))
    }

    /// Each fails only for the one before it, round after round.
    @Test func whatCanBeDoneIsDoneHoweverLongTheChainOfWhatFails() throws {
        var changes: [WireRecordChange] = [.save("link0", ["_": .integer(1)])]
        for number in 1..<20 { changes.append(.save("link\(number)", parent: "link\(number - 1)")) }
        changes.append(.save("good"))
        // Each is looked at before the one that it rests on.
        let outcome = try device.modify(changes.reversed(), atomic: false)
        #expect(outcome.codes.first == .some(nil) && outcome.codes.dropFirst().allSatisfy { $0 != nil })
        #expect(try device.list().keys.sorted() == ["good"])
    }

    @Test func whatRestsOnAFailedSaveFailsToo() throws {
        let outcome = try device.modify(
            [.save("child", parent: "bad"), .save("bad", ["_": .integer(1)]), .save("good")], atomic: false)
        #expect(outcome.codes == [.referenceViolation, .invalidArguments, nil])
        #expect(try Set(device.list().keys) == ["good"])
    }

    @Test func aTargetHasABoundOfWhatGoesWithIt() throws {
        try device.save("list")
        for start in stride(from: 0, to: RecordLimits.cascadingReferencesMax, by: 250) {
            let outcome = try device.modify(
                (start..<start + 250).map { .save("r\($0)", ["list": .with("list")]) })
            #expect(outcome.codes.allSatisfy { $0 == nil })
        }
        #expect(try device.modify([.save("more", ["list": .with("list")])]).codes == [.limitExceeded])
        #expect(try device.modify([.delete("list")]).cascaded.count == RecordLimits.cascadingReferencesMax)
        #expect(try device.list().isEmpty)
    }
}
