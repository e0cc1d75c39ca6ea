import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

/// A batch rests on items that it does not change, and nothing of it is done when one of them is otherwise.
@Suite struct ConditionTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
    }

    /// The details of the refusal; nil: it was done.
    private func refused(
        _ changes: [WireDocumentChange], if conditions: [WireItemCondition],
        by device: ContainerDevice? = nil, as code: CloudError.Code = .constraintViolation
    ) throws -> [String: String]? {
        do {
            try (device ?? here).apply(changes, if: conditions)
            return nil
        } catch let error as CloudError {
            #expect(error.code == code, "\(error)")
            return error.details
        }
    }

    private func create() -> WireDocumentChange { .create(ContainerDevice.makeID(), "\(ContainerDevice.makeID())") }

    @Test func aConditionThatIsNotSoKeepsAllOfABatchAway() throws {
        let file = try here.makeFile("a", "1")
        let item = try here.item(file)
        let content = WireItemCondition.make(file, .contentVersion(item.content.version))
        let place = WireItemCondition.make(file, .placeVersion(item.placeVersion))
        let absent = WireItemCondition.make(file, .absent(true))
        #expect(try refused([create()], if: [content, place]) == nil)
        let count = try here.list().count
        #expect(try refused([create()], if: [content, absent]) == ["condition": "1", "item": "\(file)"])
        try there.apply([.replace(file, .inline("2", base: item.content.version))])
        #expect(try refused([create()], if: [place, content]) == ["condition": "1", "item": "\(file)"])
        try there.apply([.place(file, "b", in: .documents)])
        // What refuses a change comes after what the batch rests on.
        #expect(
            try refused([create(), .trash(ContainerDevice.makeID()), .remove(file)], if: [place])?["condition"] == "0")
        #expect(try here.list().count == count)
    }

    @Test func whatIsGoneOrInTheTrashIsAbsent() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder)
        let absent = WireItemCondition.make(file, .absent(true))
        let place = WireItemCondition.make(file, .placeVersion(try here.item(file).placeVersion))
        #expect(try refused([create()], if: [absent]) != nil)
        try here.apply([.trash(folder)])
        #expect(try refused([create()], if: [absent]) == nil)
        #expect(try refused([create()], if: [place]) != nil)
        try here.apply([.remove(folder)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try refused([create()], if: [absent, .make(ContainerDevice.makeID(), .absent(true))]) == nil)
    }

    /// Conditions are of the container as it is before the batch.
    @Test func aBatchBreaksNoneOfItsOwnConditions() throws {
        let file = try here.makeFile("a", "1")
        let item = try here.item(file)
        let changes: [WireDocumentChange] = [
            .replace(file, .inline("2", base: item.content.version)), .place(file, "b", in: .documents),
        ]
        let conditions = [
            WireItemCondition.make(file, .contentVersion(item.content.version)),
            .make(file, .placeVersion(item.placeVersion)),
        ]
        #expect(try refused(changes, if: conditions) == nil)
        // Its reply is lost, and it comes again a week later, under another request id.
        #expect(try refused(changes, if: conditions, by: house.device()) == nil)
        #expect(try here.item(file).conflicts.isEmpty)
        #expect(try refused(changes + [create()], if: conditions)?["condition"] == "0")
    }

    @Test func aFolderIsUnchangedAsLongAsNobodyElseHasChangedWhatIsInIt() throws {
        let folder = try here.makeFolder("folder")
        let deep = try here.makeFolder("deep", in: folder)
        let seen = try here.apply([create()]).token
        let unchanged = WireItemCondition.make(folder, .unchangedSince(seen))
        let all = [DocumentID.top, .documents].map { WireItemCondition.make($0, .unchangedSince(seen)) }
        #expect(try refused([.attributes(deep) { $0.favouriteRank = 1 }], if: all + [unchanged]) == nil)
        try there.makeFile("elsewhere")
        #expect(try refused([create()], if: all)?["condition"] == "0")
        // What the device has changed itself it vouches for.
        let ours = WireItemCondition.make(deep, .placeVersion(try here.item(deep).placeVersion))
        #expect(
            try refused([create()], if: [unchanged]) == [
                "condition": "0", "item": "\(folder)", "changed": "\(deep)",
            ])
        #expect(try refused([create()], if: [unchanged, ours]) == nil)
        let file = ContainerDevice.makeID()
        try here.apply([.create(file, "a", in: deep, .inline("1"))])
        let item = try here.item(file)
        let both = [
            ours, .make(file, .placeVersion(item.placeVersion)), .make(file, .contentVersion(item.content.version)),
        ]
        #expect(try refused([create()], if: [unchanged] + both.dropLast())?["changed"] == "\(file)")
        #expect(try refused([create()], if: [unchanged] + both) == nil)
        try there.makeFile("theirs", in: deep)
        #expect(try refused([create()], if: [unchanged] + both)?["condition"] == "0")
        try there.apply([.trash(folder)])
        #expect(try refused([create()], if: [unchanged] + both)?["item"] == "\(folder)")
    }

    @Test func aConditionThatNobodyCanReadIsRefused() throws {
        let file = try here.makeFile("a")
        let version = try here.item(file).placeVersion
        var unnamed = WireItemCondition.make(file, .placeVersion(version))
        unnamed.item = Data([1])
        let malformed: [WireItemCondition] = [
            unnamed, .make(file, .absent(false)), .make(file, .contentVersion(Data())),
            .make(.documents, .placeVersion(version)), .make(.top, .unchangedSince(WireChangeToken())),
        ]
        for condition in malformed {
            #expect(try refused([create()], if: [condition], as: .invalidArguments)?["condition"] == "0")
        }
        var unknown = WireItemCondition()
        unknown.item = Data(file.bytes)
        #expect(try refused([create()], if: [unknown], as: .incompatibleVersion)?["condition"] == "0")
        let many = Array(repeating: WireItemCondition.make(file, .placeVersion(version)), count: 101)
        #expect(try refused([create()], if: Array(many.dropLast())) == nil)
        #expect(try refused([create()], if: many, as: .limitExceeded)?["maximum"] == "100")
    }

    /// What was seen of another history says nothing of this one.
    @Test func whatWasSeenOfAnotherHistoryIsNoCondition() throws {
        let folder = try here.makeFolder("folder")
        let copy = try house.cloud.copyStorage(of: .documents)
        let lost = try here.apply([create()]).token
        try house.cloud.restore(copy, of: .documents)
        for _ in 0..<2 {
            let again = try house.device()
            #expect(throws: CloudError.self) { try again.apply([create()], if: [.make(folder, .unchangedSince(lost))]) }
            house.cloud.network.run(for: .seconds(1))
        }
    }
}
