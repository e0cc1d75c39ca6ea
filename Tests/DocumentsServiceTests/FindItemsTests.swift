import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosDocuments

/// What became of an item is known for good, also when the feed's own record of that is long gone.
@Suite struct FindItemsTests {
    private let house: ContainerHouse
    private let here: ContainerDevice

    init() throws {
        house = try ContainerHouse()
        here = try house.device()
    }

    private func find(_ items: [DocumentID], by device: ContainerDevice? = nil) throws -> WireFindItemsReply {
        var request = WireFindItems()
        request.container = ContainerHouse.container
        request.items = items.map { Data($0.bytes) }
        return try (device ?? here).call("FindItems", request, as: WireFindItemsReply.self)
    }

    @Test func whatBecameOfItemsIsToldOfEach() throws {
        let (live, trashed, gone) = (try here.makeFile("a"), try here.makeFile("b"), try here.makeFile("c"))
        try here.apply([.trash(trashed), .trash(gone), .remove(gone)])
        let head = try here.apply([.attributes(live) { $0.favouriteRank = 1 }]).token
        let found = try find([live, ContainerDevice.makeID(), gone, .documents, trashed, gone])
        #expect(found.removed == [2, 5] && found.unknown == [1])
        #expect(found.token.epoch == head.epoch && found.token.sequence >= head.sequence)
        #expect(try find([]).removed.isEmpty)
    }

    @Test func aQuestionThatIsNoneIsRefused() throws {
        var request = WireFindItems()
        request.container = ContainerHouse.container
        request.items = [Data([1])]
        expect(.invalidArguments) { try here.call("FindItems", request, as: WireFindItemsReply.self) }
        expect(.limitExceeded) { _ = try find((0...1000).map { _ in ContainerDevice.makeID() }) }
        expect(.missingEntitlement) { _ = try find([], by: house.device(app: "T.other")) }
    }

    /// The feed keeps 4096 records of deletions of a container.
    @Test func ofFiveThousandRemovedItemsNoneIsForgotten() throws {
        let folder = try here.makeFolder("folder")
        let ids = (0..<5000).map { _ in ContainerDevice.makeID() }
        // Some each by itself, others with the folder that they are in.
        for start in stride(from: 0, to: 5000, by: 500) {
            let some = ids[start..<start + 500]
            try here.apply(some.map { .create($0, "\($0)", in: start < 2500 ? .documents : folder) })
            if start < 2500 {
                for change in [some.map { .trash($0) }, some.map { WireDocumentChange.remove($0) }] {
                    try here.apply(change)
                }
            }
        }
        try here.apply([.trash(folder), .remove(folder)])
        house.cloud.network.run(for: .seconds(20))
        #expect(try here.list().isEmpty)
        for start in stride(from: 0, to: 5000, by: 1000) {
            let found = try find(Array(ids[start..<start + 1000]))
            #expect(found.removed.count == 1000 && found.unknown.isEmpty)
        }
        // Nor is any of them made again.
        for id in [ids[0], ids[2400], ids[4999]] {
            expect(.unknownItem) { try here.apply([.create(id, "again")]) }
        }
    }

    @Test func whatIsRememberedOfRemovedItemsIsBounded() throws {
        let ids = (0..<30).map { _ in ContainerDevice.makeID() }
        let scope = ScopeName(here.mover.account, ItemName(ContainerHouse.container))
        try house.cloud.storage(of: .documents).write { transaction in
            for id in ids { try EndedRows.add([id], to: scope, limit: 10, in: transaction) }
            #expect(try ids.filter { try EndedRows.has($0, in: scope, transaction) } == Array(ids.suffix(10)))
        }
    }
}
