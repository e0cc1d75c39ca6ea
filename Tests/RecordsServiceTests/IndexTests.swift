import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosRecords

/// Indexes: what they find, in which order, and what they cost.
@Suite struct IndexTests {
    private let house: RecordHouse
    private let device: RecordDevice

    init() throws {
        house = try RecordHouse()
        device = try house.device()
    }

    private func save(_ range: Range<Int>, _ fields: (Int) -> [String: WireRecordField.OneOf_Value]) throws {
        for start in stride(from: range.lowerBound, to: range.upperBound, by: 400) {
            let outcome = try device.modify(
                (start..<min(start + 400, range.upperBound)).map { .save(Self.name($0), fields($0)) })
            #expect(outcome.codes.allSatisfy { $0 == nil })
        }
    }

    private static func name(_ number: Int) -> String {
        number < 10_000 ? "r" + String(10_000 + number).dropFirst() : "s\(number)"
    }

    private func code(_ body: () throws -> Void) -> CloudError.Code? {
        do { try body() } catch { return (error as? CloudError)?.code }
        return nil
    }

    @Test func anIndexFindsWhatIsEqualAndLooksAtNothingElse() throws {
        try device.index("Note(color)")
        try save(0..<500) { ["color": .string($0 % 100 == 0 ? "red" : "blue"), "n": .integer(Int64($0))] }
        let reply = try device.page("color == 'red' AND n > 0")
        #expect(reply.records.map(\.item) == [100, 200, 300, 400].map(Self.name))
        #expect(reply.examined == 5 && reply.after.isEmpty)
        #expect(reply.plan.way == .index && reply.plan.index == WireRecordIndex(text: "Note(color)"))
        #expect(reply.plan.answered == ["color == 'red'"] && reply.plan.tested == ["n > 0"])
        #expect(try device.query("color IN {'red', 'none'}", limit: 2) == [0, 100, 200, 300, 400].map(Self.name))
        try device.save(Self.name(100), ["color": .string("blue")], policy: .changedKeys)
        try device.delete(Self.name(200))
        #expect(try device.query("color == 'red'") == [0, 300, 400].map(Self.name))
    }

    @Test func anIndexIsMadeOfWhatIsThereInStepsAndOutlivesTheService() throws {
        let zone = try device.makeZone("Work")
        device.zone = zone
        try save(0..<900) { ["n": .integer(Int64($0 % 10))] }
        device.zone = RecordLimits.defaultZone
        try device.save("d", ["n": .integer(3)])
        #expect(try device.index("Note(n)").map(\.state) == [.building])
        house.cloud.network.run(for: .milliseconds(15))
        // Not yet: it is looked at one record after the other.
        #expect(try device.page("n == 3").plan.way == .scan)
        #expect(try device.indexes().map(\.state) == [.building])
        let some = try house.rows(of: "record_index")
        #expect(some > 0 && some < 901)
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .milliseconds(5))
        device.zone = zone
        try device.save("new", ["n": .integer(3)])
        try device.delete(Self.name(3))
        try device.settleIndexes()
        #expect(try house.rows(of: "record_index") == 901)
        let reply = try device.page("n == 3")
        #expect(reply.plan.way == .index && reply.records.count == 90 && reply.examined == 90)
        device.zone = RecordLimits.defaultZone
        #expect(try device.query("n == 3") == ["d"])
    }

    @Test func recordsComeInTheOrderOfSeveralFields() throws {
        try device.index("Note(kind, n, title[c] descending)")
        try save(0..<60) {
            ["kind": .integer(Int64($0 % 2)), "n": .integer(Int64($0 / 20)), "title": .string("T\(($0 * 7) % 10)")]
        }
        func sorted(_ ascending: Bool) -> [String] {
            (0..<60).filter { $0 % 2 == 0 }.sorted { left, right in
                let (first, second) = ((left / 20, -((left * 7) % 10)), (right / 20, -((right * 7) % 10)))
                if first == second { return ascending ? left < right : right < left }
                return ascending ? first < second : second < first
            }.map(Self.name)
        }
        for (sort, ascending) in [(["n", "title[c] descending"], true), (["n descending", "title[c]"], false)] {
            let names = try device.query("kind == 0", sort: sort, limit: 7) { reply in
                #expect(reply.plan.way == .index && reply.plan.tested.isEmpty && reply.examined == 7)
            }
            #expect(names == sorted(ascending))
        }
        // What is fixed need not be in the order.
        #expect(
            try device.query("kind == 0", sort: ["kind descending", "n", "title[c] descending"], limit: 9)
                == sorted(true))
        #expect(try device.query("kind == 0 AND n > 0 AND n <= 1", sort: ["n", "title[c] descending"]).count == 10)
        // Another order is made in memory, as there are few.
        let reply = try device.page("kind == 0", sort: ["title[c]", "n"])
        #expect(reply.plan.way == .indexSorted && reply.records.count == 30)
        #expect(reply.plan.wanted == WireRecordIndex(text: "Note(kind,title[c],n)"))
    }

    @Test func whatNoIndexServesIsRefusedWithTheIndexThatItNeeds() throws {
        try save(0..<1200) { ["n": .integer(Int64($0)), "color": .string("c\($0 % 3)")] }
        let error = #expect(throws: CloudError.self) { try device.page("color == 'c1'", sort: ["n descending"]) }
        #expect(error?.code == .limitExceeded && error?.details["index"] == "Note(color, n descending)")
        #expect(error?.details["reason"] == "index_needed")
        try device.index("Note(color, n descending)")
        #expect(
            #expect(throws: CloudError.self) { try device.page("color == 'c1'", sort: ["n descending"]) }?
                .details["reason"] == "index_building")
        try device.settleIndexes()
        #expect(
            #expect(throws: CloudError.self) { try device.page("color != 'c1'", sort: ["color"]) }?
                .details["reason"] == "index_needed")
        let reply = try device.page("color == 'c1'", sort: ["n descending"], limit: 3)
        #expect(reply.records.map(\.item) == [1198, 1195, 1192].map(Self.name) && reply.examined == 3)
        #expect(reply.plan.wanted == WireRecordIndex())
    }

    @Test func aLargeZoneIsNotLookedThroughUnlessThatIsAskedFor() throws {
        try device.index("Note(n)")
        try save(0..<RecordLimits.scannedZoneMax + 1) { ["n": .integer(Int64($0))] }
        func reason(_ predicate: String) -> [String: String]? {
            #expect(throws: CloudError.self) { try device.page(predicate) }?.details
        }
        #expect(reason("m == 1") == ["reason": "index_needed", "index": "Note(m)"])
        #expect(reason("n != 3") == ["reason": "index_needed"])
        #expect(reason("n >= 0") == ["reason": "order_needed", "index": "Note(n)"])
        #expect(try device.page("n >= 0", sort: ["n"], limit: 2).examined == 2)
        #expect(try device.page("n >= 9990").records.count == 11)
        #expect(try device.page("n == 7").examined == 1)
        #expect(try device.page("", limit: 2).records.count == 2)
        let reply = try device.page("m == 1", scan: true)
        #expect(reply.plan.way == .scan && reply.examined == 1000 && !reply.after.isEmpty)
    }

    @Test func listsPrefixesWordsAndPlacesAreFound() throws {
        try device.index(
            "Note(tags)", "Note(title[cd])", "Note(words)", "Note(place)", "Note(to)", "Note(_creationDate)")
        for range in [0..<150, 150..<300] {
            try save(range) {
                [
                    "tags": .list(["all", "t\($0)", "u\($0 % 50)"]), "title": .string("Título \($0)"),
                    "text": .string("Number \($0), a \($0 % 2 == 0 ? "Straße" : "Café")"),
                    "place": .place(Double($0 % 90), Double($0) - 150), "to": .with("target\($0 % 30)"),
                ]
            }
        }
        for (predicate, count, examined) in [
            ("ANY tags == 't7'", 1, 1), ("tags CONTAINS 'u7'", 6, 6), ("ANY tags IN {'t1', 't2', 'u1'}", 7, 7),
            ("title BEGINSWITH[cd] 'TITULO 29'", 11, 11), ("title LIKE[cd] 'titulo 1*'", 111, 111),
            ("self CONTAINS 'cafe number 8'", 0, 1), ("self CONTAINS 'CAFE number 9'", 1, 1),
            ("distance(place, point(10, -140)) < 100000", 1, 4), ("to == 'target3'", 10, 10),
            ("_creationDate > date(\"2200-01-01\")", 0, 0), ("ANY tags BEGINSWITH 't29'", 11, 11),
            ("tags CONTAINS 'none' AND title == 'x'", 0, 0),
        ] {
            let reply = try device.page(predicate)
            #expect(
                reply.records.count == count && reply.examined <= UInt32(examined), "\(predicate) \(reply.examined)")
            #expect(reply.plan.way != .scan, "\(predicate)")
        }
        // Of a text it asks for a part, which that index does not find.
        try device.save("text", ["tags": .string("has u7 in it")])
        let reply = try device.page("tags CONTAINS 'u7'")
        #expect(reply.records.count == 7 && reply.plan.way == .scan)
    }

    @Test func aListThatIsTooLongIsLookedAtWhateverIsAsked() throws {
        try device.index("Note(tags, n)", "Note(words)")
        let tags = (0..<600).map { "t\($0)" }
        try device.save("long", ["tags": .list(tags), "n": .integer(1)])
        try device.save("short", ["tags": .list(["t7"]), "n": .integer(2)])
        let text = (0..<20_000).map { "w\($0)" }.joined(separator: " ")
        try device.save("text", ["text": .string(text), "n": .integer(0)])
        #expect(try house.rows(of: "record_index") == 2 + 2 + 1 + 1 + 1 + 1)
        #expect(try device.query("tags CONTAINS 't7'", sort: ["n descending"]) == ["short", "long"])
        #expect(try device.query("tags CONTAINS 't600'", sort: ["n"]).isEmpty)
        #expect(try device.query("self CONTAINS 'w777 w19999'") == ["text"])
    }

    @Test func aPlaceIsGoodForItsQueryAlone() throws {
        try device.index("Note(n)")
        try save(0..<20) { ["n": .integer(Int64($0 % 5))] }
        let after = try device.page("", sort: ["n"], limit: 3).after
        #expect(!after.isEmpty)
        #expect(try device.page("", sort: ["n"], after: after, limit: 3).records.count == 3)
        let changed = String(after.reversed())
        for body in [
            { _ = try device.page("", sort: ["n descending"], after: after) },
            { _ = try device.page("n > 1", sort: ["n"], after: after) },
            { _ = try device.page("", sort: ["n"], after: changed) },
            { _ = try device.page("", sort: ["n"], after: "r0003") },
            { _ = try device.page("", sort: ["n"], after: String(repeating: "A", count: 10_000)) },
        ] as [() throws -> Void] {
            #expect(code(body) == .invalidArguments)
        }
        let zone = try device.makeZone("Work")
        device.zone = zone
        #expect(code { _ = try device.page("", sort: ["n"], after: after) } == .invalidArguments)
        // Nor another account's.
        try house.cloud.createAccount("other")
        let stranger = try house.device(account: "other")
        try stranger.save("a")
        #expect(code { _ = try stranger.page("", sort: ["n"], after: after) } == .invalidArguments)
    }

    @Test func indexesGoInStepsAndWithTheirZones() throws {
        let zone = try device.makeZone("Work")
        device.zone = zone
        try device.index("Note(n)", "Note(m)")
        try save(0..<800) { ["n": .integer(Int64($0)), "m": .integer(0)] }
        #expect(try house.rows(of: "record_index") == 1600)
        try device.index(removing: ["Note(n)", "Note(unknown)"])
        #expect(try device.page("n == 1").plan.way == .scan)
        house.cloud.network.run(for: .seconds(1))
        #expect(try house.rows(of: "record_index") == 800 && house.rows(of: "record_indexes") == 1)
        try device.deleteZone("Work")
        house.cloud.network.run(for: .seconds(2))
        #expect(try house.rows(of: "record_index") == 0 && house.rows(of: "record_index_zones") == 0)
    }

    @Test func indexesAreBounded() throws {
        for number in 0..<16 { try device.index("Note(f\(number))") }
        #expect(code { try device.index("Note(f16)") } == .limitExceeded)
        try device.index("Note(f1)", "Other(f1)")
        #expect(code { try device.index("Note(a,b,c,d)") } == .limitExceeded)
        for text in ["no type(a)", "Note(_a)", "Note(a.b)", "Note(a, a)"] {
            #expect(code { try device.index(text) } == .invalidArguments, "\(text)")
        }
        // As many rows of a request, and one record always can be.
        let lists = Dictionary(
            uniqueKeysWithValues: (0..<16).map { field in
                ("f\(field)", WireRecordField.OneOf_Value.list((0..<99).map { "t\($0)" }))
            })
        #expect(code { try device.modify((0..<3).map { .save("r\($0)", lists) }) } == .limitExceeded)
        #expect(try device.modify((0..<2).map { .save("r\($0)", lists) }).codes == [nil, nil])
        #expect(try house.rows(of: "record_index") == 2 * 1600)
    }

    @Test func whatIsEncryptedIsInNoIndex() throws {
        var sealed = WireEncryptedValue()
        (sealed.suite, sealed.keyID, sealed.sealed) = (1, Data("key".utf8), Data("secret".utf8))
        try device.save("before", ["sealed": .encrypted(sealed)])
        try device.index("Note(sealed)", "Note(words)")
        try device.settleIndexes()
        try device.save("after", ["sealed": .encrypted(sealed)])
        // Both are where records without the field are, and no words are there.
        let keys = try house.cloud.storage(of: .records).write { transaction in
            try transaction.all(SQL("SELECT entry FROM record_index"), []) { $0.blob(0) }
        }
        #expect(keys == [[1], [1]])
        let reply = try device.page("sealed == NULL")
        #expect(reply.records.map(\.item) == ["after", "before"] && reply.plan.way == .index)
        #expect(try device.query("sealed != NULL").isEmpty && device.query("self CONTAINS 'secret'").isEmpty)
    }

    @Test func anIndexOfAnotherFoldingIsNotUsedAndMadeAnew() throws {
        try save(0..<150) { ["title": .string($0 % 50 == 0 ? "É" : "x")] }
        try device.index("Note(title[cd])")
        try device.settleIndexes()
        #expect(try device.page("title ==[cd] 'e'").plan.way == .index)
        // As a newer program, and an older one, would have left it, with rows that say something else.
        for version in [2, 0] {
            try house.cloud.storage(of: .records).write { transaction in
                _ = try transaction.execute(
                    SQL("UPDATE record_indexes SET folding_version = ?1"), [.integer(Int64(version))])
                _ = try transaction.execute(SQL("UPDATE record_index SET entry = ?1"), [.blob([0x30, 0x21, 0, 1])])
            }
            #expect(try device.page("title ==[cd] 'e'").plan.way == .scan)
            #expect(try device.indexes().map(\.state) == [.building])
            house.cloud.crash(.records)
            try house.cloud.start(.records)
            try device.settleIndexes()
            let reply = try device.page("title ==[cd] 'e'")
            #expect(reply.plan.way == .index && reply.records.map(\.item) == [0, 50, 100].map(Self.name))
            #expect(try house.rows(of: "record_index") == 150 && house.rows(of: "record_indexes") == 1)
        }
    }

    @Test func aFoldingThatTheServiceDoesNotHaveIsRefused() throws {
        var request = WireModifyRecordIndexes()
        request.container = device.container
        request.save = [WireRecordIndex(text: "Note(title[cd])")]
        request.save[0].foldingVersion = 2
        #expect(
            code { try device.call("ModifyRecordIndexes", request, as: WireModifyRecordIndexesReply.self) }
                == .incompatibleVersion)
        #expect(try device.indexes().isEmpty)
        request.save[0].foldingVersion = 0
        try device.call("ModifyRecordIndexes", request, as: WireModifyRecordIndexesReply.self)
        #expect(try device.indexes().map(\.index.foldingVersion) == [1])
    }

    @Test func whatADamagedRecordHasLeftInAnIndexIsPassedOver() throws {
        try device.index("Note(n)")
        try device.save("a", ["n": .integer(1)])
        try device.save("b", ["n": .integer(2)])
        try house.cloud.storage(of: .records).write { transaction in
            _ = try transaction.execute(
                SQL("UPDATE feed_items SET body = ?1 WHERE name = 'a'"), [.blob(Array("damaged!".utf8))])
        }
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
        #expect(try device.modify([.save("a", ["n": .integer(3)], policy: .allKeys)]).codes == [nil])
        #expect(try house.rows(of: "record_index") == 3)
        #expect(try device.query("", sort: ["n"]) == ["b", "a"])
        #expect(try device.query("n IN {1, 3}") == ["a"])
        #expect(try device.query("n BETWEEN {1, 3}", sort: ["n"]) == ["b", "a"])
    }

    @Test func rowsOfIndexesCountAsLongAsTheyAreThere() throws {
        let account = device.mover.account
        let zone = try device.makeZone("Work")
        device.zone = zone
        try save(0..<500) { ["n": .integer(Int64($0)), "text": .string("some words")] }
        try device.index("Note(n)", "Note(words)")
        house.cloud.network.run(for: .milliseconds(15))
        // Those that are saved while it is made count once.
        for number in [0, 100, 499] {
            try device.save(Self.name(number), ["n": .integer(-7)], policy: .changedKeys)
        }
        try device.settleIndexes()
        /// What is counted besides the records and what was overwritten of them.
        func indexed() throws -> Int64 {
            let others = try house.cloud.storage(of: .records).write { transaction in
                try transaction.first(
                    SQL(
                        """
                        SELECT (SELECT SUM(bytes) FROM record_history_zones)
                            + (SELECT SUM(live_bytes) FROM feed_scopes WHERE path LIKE 'T.notes/%')
                        """), []
                ) { $0.integer(0) } ?? 0
            }
            return try house.used(of: account) - others
        }
        // A number has 11 bytes, a word 9, a name 5.
        #expect(try indexed() == 500 * (11 + 5 + 32) + 1000 * (9 + 5 + 32))
        try device.delete(Self.name(7))
        try device.save(Self.name(7), ["n": .string("x"), "text": .string("some words")])
        #expect(try indexed() == 500 * (11 + 5 + 32) - 7 + 1001 * (9 + 5 + 32))
        try device.index(removing: ["Note(words)"])
        house.cloud.network.run(for: .seconds(1))
        #expect(try indexed() == 500 * (11 + 5 + 32) - 7)
        try device.deleteZone("Work")
        house.cloud.network.run(for: .seconds(1))
        #expect(try house.used(of: account) == 0)
    }

    @Test func theNextPageInTheOrderOfNamesReadsNoRowAgain() throws {
        let device = try house.device()
        try device.modify((0..<300).map { .save("p\($0)", ["n": .integer(Int64($0))]) })
        try device.index("Note(n)")
        try device.settleIndexes()
        let first = try device.page("n > 10", limit: 50)
        #expect(first.plan.way == .indexSorted && first.plan.rows > 280)
        let second = try device.page("n > 10", after: first.after, limit: 50)
        #expect(second.plan.rows == 0 && second.records.count == 50)
        // Another query's are its own.
        #expect(try device.page("n > 20", after: first.after, limit: 50).plan.rows > 270)
        try device.save("new", ["n": .integer(300)])
        #expect(try device.page("n > 10", after: second.after, limit: 50).plan.rows > 280)
        #expect(try device.query("n > 10", limit: 50).count == 290)
    }

    @Test func anIndexThatThePlanHasNoRoomForIsRefusedAndLeavesNothing() throws {
        try house.cloud.savePlan("small", bytes: 304_050)
        try house.cloud.createAccount("poor", plan: "small")
        let device = try house.device(account: "poor")
        for start in [0, 150, 300] {
            try device.modify((start..<start + 150).map { .save("r\($0)", ["n": .integer(Int64($0))]) })
        }
        let used = try house.used(of: device.mover.account)
        let fields = (0..<8).map { "Note(n, f\($0))" }
        for text in fields { try device.index(text) }
        house.cloud.network.run(for: .seconds(20))
        let states = try device.indexes().map(\.state)
        #expect(
            states.contains(.refused) && states.contains(.ready) && !states.contains(.building), "\(states) \(used)")
        try device.save("last", ["n": .integer(3)])
        let ready = Int64(states.count { $0 == .ready })
        #expect(try house.rows(of: "record_index") == 451 * ready)
        try device.delete("last")
        for text in fields { try device.index(removing: [text]) }
        house.cloud.network.run(for: .seconds(3))
        #expect(try house.used(of: device.mover.account) == used && device.indexes().isEmpty)
        // Where there is room it is made.
        try device.index(fields[7])
        house.cloud.network.run(for: .seconds(1))
        #expect(try device.page("n == 3").plan.way == .indexSorted)
    }

    @Test func valuesOfIndexedFieldsAloneLieOpen() throws {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("records-\(UUID())")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        let engine = try SQLiteEngine(path: folder.appendingPathComponent("records.sqlite").path)
        let house = try RecordHouse(engine: engine)
        let device = try house.device()
        try device.index("Note(open)", "Note(words)")
        try device.save("a", ["open": .string("plain-marker"), "other": .string("hidden-marker and wordmarker")])
        #expect(try device.query("self CONTAINS 'wordmarker'") == ["a"])
        func contains(_ text: String) throws -> Bool {
            try FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil).contains {
                try Data(contentsOf: $0).range(of: Data(text.utf8)) != nil
            }
        }
        #expect(try contains("plain-marker"))
        #expect(try !contains("hidden-marker") && !contains("wordmarker"))
        engine.close()
    }

    @Test func whatAClosedAccountHadInIndexesGoes() throws {
        try house.cloud.createAccount("leaving")
        let device = try house.device(account: "leaving")
        try device.index("Note(n)")
        try device.modify((0..<300).map { .save("r\($0)", ["n": .integer(Int64($0))]) })
        try house.cloud.storage(of: .records).write { transaction in
            var turns = 0
            while try IndexRows.removeRemains(
                of: Owner(device.mover.account), limit: 100, in: transaction), turns < 100
            {
                turns += 1
            }
            #expect(turns > 3 && turns < 100)
        }
        #expect(try house.rows(of: "record_index") == 0 && house.rows(of: "record_index_zones") == 0)
        #expect(try house.rows(of: "record_indexes") == 0)
    }
}
