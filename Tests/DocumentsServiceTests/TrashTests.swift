import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What is deleted lies in the trash, comes back as it was, and goes for good with all that is in it.
@Suite struct TrashTests {
    private let house: ContainerHouse
    private let here: ContainerDevice
    private let there: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
        there = try house.device()
    }

    @Test func aFolderIsDeletedAndComesBackByOneSmallChange() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder)
        #expect(try here.apply([.trash(folder)]).items.count == 1)
        #expect(try there.names().isEmpty)
        #expect(try there.item(folder).trash.deviceID == here.mover.device.rawValue)
        // Its name is free, and nothing is put into it.
        try there.makeFolder("folder")
        expect(.unknownItem) { try there.makeFile("b", in: folder) }
        expect(.alreadyExists) { try there.apply([.restore(folder)]) }
        try there.apply([.restore(folder, clash: .rename)])
        #expect(try here.names().keys.sorted() == ["folder", "folder 2"])
        #expect(try here.names(in: folder) == ["a": file])
    }

    @Test func whatWasChangedMeanwhileIsNotDeleted() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder, "1")
        let seen = try here.apply([.attributes(folder) { $0.favouriteRank = 1 }]).token.sequence
        let version = try here.item(file).content.version
        try there.makeFile("elsewhere")
        let new = try there.makeFile("new", in: folder)
        expect(.constraintViolation) { try here.apply([.trash(folder, seen: seen)]) }
        try there.apply([.replace(file, .inline("2", base: version))])
        expect(.constraintViolation) { try here.apply([.trash(file, base: version)]) }
        #expect(try here.names(in: folder) == ["a": file, "new": new])
        let all = try here.apply([.attributes(folder) { $0.favouriteRank = 2 }]).token.sequence
        try there.makeFile("elsewhere too")
        try here.apply([.trash(folder, seen: all)])
        #expect(try here.item(folder).hasTrash)
    }

    @Test func whatHasNoFolderAnyMoreComesBackToDocuments() throws {
        let folder = try here.makeFolder("folder")
        let file = try here.makeFile("a", in: folder)
        try here.apply([.trash(file), .trash(folder)])
        try here.apply([.restore(file)])
        #expect(try there.names() == ["a": file])
    }

    @Test func onlyWhatIsInTheTrashIsRemovedForGood() throws {
        let folder = try here.makeFolder("folder")
        expect(.constraintViolation) { try here.apply([.remove(folder)]) }
        var id = folder
        for _ in 0..<5 { id = try here.makeFolder("deeper", in: id) }
        for number in 0..<150 { try here.makeFile("\(number)", in: id) }
        try here.makeFile("stays")
        try here.apply([.trash(folder), .remove(folder)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try there.list().values.map { String(decoding: $0.name, as: UTF8.self) } == ["stays"])
    }

    @Test func aRemovalThatWasCutOffGoesOn() throws {
        let folder = try here.makeFolder("folder")
        for number in 0..<150 { try here.makeFile("\(number)", in: folder) }
        try here.apply([.trash(folder), .remove(folder)])
        house.cloud.crash(.documents)
        try house.cloud.start(.documents)
        house.cloud.network.run(for: .seconds(5))
        #expect(try there.list().isEmpty)
    }

    /// Thirty days go by in jumps of the services' clocks.
    @Test func whatHasLainInTheTrashForThirtyDaysIsRemoved() throws {
        let folder = try here.makeFolder("folder")
        try here.makeFile("a", in: folder)
        let early = try here.makeFile("early")
        try here.apply([.trash(folder), .trash(early), .restore(early)])
        for (days, left) in [(29, 3), (31, 1)] {
            house.cloud.setClockOffset(of: .documents, .seconds(days * 24 * 3600))
            house.cloud.network.run(for: .seconds(90))
            house.cloud.setClockOffset(of: .documents, .zero)
            let items = try house.device().list()
            #expect(items.count == left && items[early] != nil)
        }
    }

    @Test func whatCameWithItsItemCountsOnThePlanUntilItIsGone() throws {
        let text = String(repeating: "x", count: 4000)
        let id = try here.makeFile("a", text)
        try here.apply([.replace(id, .inline(text + "y", base: try here.item(id).content.version))])
        #expect(try house.used() == 8001)
        try here.apply([.trash(id)])
        #expect(try house.used() == 8001)
        try here.apply([.remove(id)])
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.used() == 0)
    }
}

extension ContainerHouse {
    /// Bytes that count on the account's plan.
    func used() throws -> Int64 {
        try cloud.storage(of: .documents).write { try $0.first(Self.selectUsed) { $0.integer(0) } ?? 0 }
    }

    private static let selectUsed = SQL("SELECT used FROM storage_owners")
}
