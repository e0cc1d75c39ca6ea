import Foundation
import NephosCore
import NephosSimulation
import NephosSync
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// What a zone has of records beyond what is looked at together.
@Suite struct LargeZoneTests {
    private static let scope = LocalScope(account: AccountID("acc"), service: .records, path: "c/zone")
    private static let key: [UInt8] = [1, 2, 3]
    private static let reader = 7

    private func body(_ number: Int, _ text: String) throws -> Data {
        var record = WireRecord()
        record.type = "Note"
        record.version = Data("\(text)\(number)".utf8)
        return try record.serializedData()
    }

    private func name(_ number: Int) -> ItemName { ItemName("r\(number)") }

    /// The digest of what is there, anew.
    private func digest(_ items: RecordItems) throws -> SetDigest {
        var digest = SetDigest.empty
        try items.forEachDigest(key: Self.key) { digest.add($1) }
        return digest
    }

    /// A zone of `count` records at sequence 1, a listing of those whose number `isListed`, and what merging it has found.
    private func merge(
        _ count: Int, epoch: UInt64,
        _ body: (RecordItems, ScopeState, ToldNames, [RecordItems.Lost]) throws -> Void,
        isListed: (Int) -> Bool
    ) throws {
        let local = try LocalStore()
        try local.prepare(RecordItems.migrations)
        try local.write { database in
            let rows = ScopeTransaction(database, Self.scope)
            let items = RecordItems(rows: rows)
            var state = ScopeState(head: ChangeToken(epoch: 1, sequence: 5), digestKey: Self.key, synced: true)
            for number in 0..<count {
                let item = RecordItems.Item(
                    name: name(number), sequence: 3, body: try self.body(number, "mine"), type: "Note")
                try items.put(item, replacing: nil, &state)
            }
            // Some are new, some others are as they were.
            let listed = try (0..<count + 10).filter(isListed).map { number in
                var change = WireChange()
                change.item = name(number).rawValue
                change.sequence = 3
                change.body = try self.body(number, number % 2 == 0 ? "theirs" : "mine")
                return change
            }
            for (index, start) in stride(from: 0, to: listed.count, by: 300).enumerated() {
                let page = Array(listed[start..<min(start + 300, listed.count)])
                try rows.stage(page, isFirst: index == 0, by: Self.reader)
            }
            if listed.isEmpty { try rows.stage([], isFirst: true, by: Self.reader) }
            let pulled = PulledChanges(
                changes: .staged(rows, reader: Self.reader), token: ChangeToken(epoch: epoch, sequence: 6),
                isListing: true,
                history: HistoryRelation(
                    of: state.head, to: ChangeToken(epoch: epoch, sequence: 6), wentBack: false, isComparing: false,
                    start: 2),
                info: Data())
            var lost: [RecordItems.Lost] = []
            let merged = try items.merge(pulled, &state) { found in
                if case .lost(let one) = found { lost.append(one) }
            }
            #expect(try items.all().map(\.name) == listed.map { ItemName($0.item) }.sorted())
            #expect(try items.all().map(\.body) == listed.sorted { ItemName($0.item) < ItemName($1.item) }.map(\.body))
            #expect(try digest(items) == state.digest)
            try body(items, state, merged, lost)
        }
    }

    @Test(arguments: [0, 1, 999, 1000, 1001, 3500])
    func whatAListingLacksGoesHoweverMuchThatIs(count: Int) throws {
        for isListed: (Int) -> Bool in [{ _ in false }, { $0 % 7 == 0 }, { $0 >= count }, { _ in true }] {
            try merge(
                count, epoch: 1,
                { _, _, merged, lost in
                    #expect(lost.isEmpty)
                    let changed = (0..<count + 10).count { number in
                        isListed(number) ? number % 2 == 0 || number >= count : number < count
                    }
                    #expect(merged.names.count == min(changed, 1000))
                    #expect(merged.hasMore == (changed > 1000))
                    #expect((merged.news()?.changedKeys.count ?? 0) == (changed > 1000 ? 0 : changed))
                }, isListed: isListed)
        }
    }

    @Test func whatARestoreHasLostIsFoundHoweverMuchThatIs() throws {
        try merge(
            2500, epoch: 2,
            { _, _, _, lost in
                let gone = lost.filter { $0.theirs == nil }.map(\.mine.name)
                #expect(Set(gone) == Set((0..<2500).filter { $0 % 5 != 0 }.map(name)) && gone.count == 2000)
                // Of those that both have, the ones that are not the same.
                #expect(lost.count { $0.theirs != nil } == 250)
            }, isListed: { $0 % 5 == 0 })
    }

    /// Parents in chains, some beyond those that are offered, and one that is its own.
    private func offers(_ generator: inout SplitMix64) -> [RecordTransaction.Pending] {
        let count = 1500
        return (0..<count).map { number in
            var change = WireRecordChange()
            change.record = "r\(number * 7 % count)"
            if number % 11 == 0 {
                change.delete.version = Data([UInt8(number % 256)])
            } else {
                change.save.version = Data((0..<Int.random(in: 1...2000, using: &generator)).map { UInt8($0 % 256) })
                let parent = Int.random(in: 0...count, using: &generator)
                if number % 3 == 0 { change.save.parent = "r\(parent)" }
            }
            var pending = RecordTransaction.Pending(position: 0, change: change)
            if number % 22 == 0 {
                pending.ancestor = WireRecord()
                pending.ancestor?.parent = "r\((number + 11) * 7 % count)"
            }
            return pending
        }
    }

    @Test(arguments: [1, 2, 3])
    func whatIsOfferedComesInItsOrderBeforeWhatWaits(seed: UInt64) async throws {
        var generator = SplitMix64(seed: seed)
        let offered = offers(&generator)
        try await withRecords { cloud in
            let here = try await cloud.open()
            here.setOffline(true)
            try await here.database.save(Record("waits", ["n": 1]))
            let scope = try #require(
                try await here.session.engine.perform { engine, completion in
                    completion(
                        Result { () throws(CloudError) in
                            try engine.scope(here.database.scope(of: RecordZone.defaultName).id).scope
                        })
                })
            let (operations, sent) = try await here.session.engine.perform {
                (
                    engine,
                    completion:
                        @escaping (Result<([OutboxOperation], [[RecordTransaction.Pending]]), CloudError>) -> Void
                ) in
                completion(
                    Result { () throws(CloudError) in
                        try engine.local.write { database in
                            let records = RecordTransaction(
                                ScopeTransaction(database, scope), zone: RecordZone.defaultName)
                            let offers = StagedOffers(in: records.rows)
                            for pending in offered { try offers.add(pending) }
                            try records.offer(offers, by: engine)
                            #expect(offers.isEmpty)
                            let operations = try records.rows.operations()
                            return (operations, try operations.map { try records.pending(at: $0.position) })
                        }
                    })
            }
            #expect(operations.count > 15 && sent.last?.map(\.change.record) == ["waits"])
            let expected =
                RecordTransaction.Pending.inOrder(offered.filter { !$0.isDeletion })
                + RecordTransaction.Pending.inOrder(offered.filter(\.isDeletion))
            #expect(sent.dropLast().flatMap { $0 }.map(\.change) == expected.map(\.change))
            #expect(sent.dropLast().flatMap { $0 }.map(\.ancestor) == expected.map(\.ancestor))
            for batch in sent.dropLast() {
                #expect(batch.count <= 100 && Set(batch.map(\.isDeletion)).count == 1)
                #expect(try batch.reduce(0) { $0 + (try $1.change.serializedData().count) } <= 512 << 10)
            }
        }
    }
}
