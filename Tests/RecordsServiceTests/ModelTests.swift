import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosRecords

/// Random saves and deletions by several devices, with indexes made and removed, the service killed, its commits failing
/// and an old copy of it restored in between, against a plain model: what there is, what is refused, what refers to what,
/// what counts, and after each step what a query finds, and in which order.
@Suite struct ModelTests {
    /// What the zone should hold.
    private struct Model {
        struct Entry: Equatable, Sendable {
            var version: Data
            var fields: [String: Int64] = [:]
            var target: String?
            var parent: String = ""
        }
        var records: [String: Entry] = [:]

        /// Records that go with this one.
        func cascade(of name: String) -> Set<String> {
            var gone: Set<String> = [name]
            while true {
                let more = records.filter { !gone.contains($0.key) && $0.value.target.map(gone.contains) ?? false }
                if more.isEmpty { return gone }
                gone.formUnion(more.keys)
            }
        }

        /// Whether a record of the rest has one of these for its parent.
        func hasChildren(of gone: Set<String>) -> Bool {
            records.contains { !gone.contains($0.key) && gone.contains($0.value.parent) }
        }

        /// Whether the record would be above itself.
        func isCircle(_ name: String, below parent: String) -> Bool {
            var (above, seen) = (parent, Set<String>())
            while !above.isEmpty, seen.insert(above).inserted {
                if above == name { return true }
                above = records[above]?.parent ?? ""
            }
            return false
        }
    }

    private static let names = (0..<12).map { "r\($0)" }

    @Test(arguments: 0..<(Int(ProcessInfo.processInfo.environment["NEPHOS_SEEDS"] ?? "") ?? 10))
    func theZoneIsWhatTheModelSays(_ seed: Int) throws {
        var random = SplitMix64(seed: UInt64(seed))
        let house = try RecordHouse(seed: UInt64(seed))
        let devices = try (0..<3).map { _ in try house.device() }
        let zone = try devices[0].makeZone("Work")
        for device in devices { device.zone = zone }
        var model = Model()
        /// What each device has seen of each record.
        var seen = Array(repeating: [String: Data](), count: devices.count)
        var copy: (storage: StorageCopy, model: Model)?
        var ways: [WireQueryPlan.Way: Int] = [:]
        for step in 0..<120 {
            try happen(step, house, devices[0], &model, &copy, &random)
            let which = Int.random(in: 0..<devices.count, using: &random)
            let name = try #require(Self.names.randomElement(using: &random))
            switch Int.random(in: 0..<10, using: &random) {
            case 0:
                seen[which] = try devices[which].list().mapValues(\.version)
            case 1:
                let gone = model.cascade(of: name)
                let codes = try devices[which].modify([.delete(name)]).codes
                if model.hasChildren(of: gone), model.records[name] != nil {
                    #expect(codes == [.referenceViolation], "step \(step)")
                } else {
                    #expect(codes == [nil], "step \(step)")
                    if model.records[name] != nil { for name in gone { model.records[name] = nil } }
                }
            case 2 where step % 40 == 0:
                house.cloud.crash(.records)
                try house.cloud.start(.records)
                house.cloud.network.run(for: .seconds(1))
            default:
                try save(name, by: devices[which], &seen[which], &model, &random)
            }
            try ask(devices[which], model, &ways, "step \(step)", &random)
        }
        #expect(ways[.index, default: 0] > 5 && ways[.scan, default: 0] > 5)
        try devices[0].index(removing: Self.indexes)
        try devices[0].settleIndexes()
        house.cloud.network.run(for: .seconds(2))
        let stored = try devices[0].list()
        #expect(stored.mapValues(Self.entry) == model.records)
        try checkRows(house, devices[0], model, stored)
    }

    // MARK: What happens besides

    private static let indexes = [
        "Note(x)", "Note(y, x descending)", "Note(to)", "Note(_parent, x)", "Note(x descending, y)",
        "Note(_recordName)",
    ]

    private func happen(
        _ step: Int, _ house: RecordHouse, _ device: RecordDevice, _ model: inout Model,
        _ copy: inout (storage: StorageCopy, model: Model)?, _ random: inout SplitMix64
    ) throws {
        if step % 15 == 5 {
            let texts = Self.indexes.shuffled(using: &random)
            try device.index(texts[0], texts[1], removing: [texts[2]])
            // Some are asked for while they are made.
            if Bool.random(using: &random) { try device.settleIndexes() }
        }
        // What fails once is asked for again, and done once.
        if step % 12 == 7 { try house.cloud.faults.fail("records.commit") }
        if step == 50 { copy = (try house.cloud.copyStorage(of: .records), model) }
        if step == 85, let old = copy {
            // Nobody offers anything again: it is as it was.
            try house.cloud.restore(old.storage, of: .records)
            house.cloud.network.run(for: .seconds(2))
            model = old.model
        }
    }

    // MARK: Queries

    /// With what it means said a second time, in plain Swift that shares nothing with the language and its indexes.
    private struct Question {
        var text: String
        var holds: (String, Model.Entry) -> Bool
    }

    private static func questions(_ number: Int64, _ name: String) -> [Question] {
        [
            Question(text: "") { _, _ in true },
            Question(text: "x > \(number)") { $1.fields["x"].map { $0 > number } ?? false },
            Question(text: "x BETWEEN {\(number - 300), \(number)} AND y != NULL") { _, entry in
                entry.fields["y"] != nil && entry.fields["x"].map { (number - 300...number).contains($0) } ?? false
            },
            Question(text: "y == NULL") { $1.fields["y"] == nil },
            Question(text: "NOT (y <= \(number))") { !($1.fields["y"].map { $0 <= number } ?? false) },
            Question(text: "to == '\(name)'") { $1.target == name },
            Question(text: "to != NULL OR x < \(number)") { _, entry in
                entry.target != nil || entry.fields["x"].map { $0 < number } ?? false
            },
            Question(text: "_parent == '\(name)'") { $1.parent == name },
            Question(text: "_parent == NULL AND x >= \(number)") { _, entry in
                entry.parent.isEmpty && entry.fields["x"].map { $0 >= number } ?? false
            },
            Question(text: "_recordName IN {'\(name)', 'r1', 'none'}") { named, _ in [name, "r1"].contains(named) },
        ]
    }

    private struct Order: Sendable {
        var sort: [String]
        /// Below zero: the first comes first; 0: they are alike.
        var compare: @Sendable (Model.Entry, Model.Entry) -> Int
    }

    /// What has no value comes first.
    private static func compare<Value: Comparable>(_ left: Value?, _ right: Value?) -> Int {
        switch (left, right) {
        case (nil, nil): 0
        case (nil, _): -1
        case (_, nil): 1
        case (let left?, let right?): left < right ? -1 : left > right ? 1 : 0
        }
    }

    private static let orders = [
        Order(sort: []) { _, _ in 0 },
        Order(sort: ["x"]) { compare($0.fields["x"], $1.fields["x"]) },
        Order(sort: ["x descending"]) { -compare($0.fields["x"], $1.fields["x"]) },
        Order(sort: ["y", "x descending"]) { left, right in
            let first = compare(left.fields["y"], right.fields["y"])
            return first != 0 ? first : -compare(left.fields["x"], right.fields["x"])
        },
        Order(sort: ["to"]) { compare($0.target, $1.target) },
        Order(sort: ["_parent descending", "x descending"]) { left, right in
            let parents = [left, right].map { $0.parent.isEmpty ? nil : $0.parent }
            let first = -compare(parents[0], parents[1])
            return first != 0 ? first : -compare(left.fields["x"], right.fields["x"])
        },
    ]

    private func ask(
        _ device: RecordDevice, _ model: Model, _ ways: inout [WireQueryPlan.Way: Int], _ step: String,
        _ random: inout SplitMix64
    ) throws {
        let name = try #require(Self.names.randomElement(using: &random))
        let number = Int64.random(in: 0..<1000, using: &random)
        let question = try #require(Self.questions(number, name).randomElement(using: &random))
        let order = try #require(Self.orders.randomElement(using: &random))
        let limit = UInt32.random(in: 0..<5, using: &random)
        // The last page has no more of the way than the first.
        ways[try device.page(question.text, sort: order.sort).plan.way, default: 0] += 1
        let found = try device.query(question.text, sort: order.sort, limit: limit)
        let meant = model.records.filter { question.holds($0.key, $0.value) }
        // What is alike comes in the order of names, or, where an index is read from its end, in the opposite one.
        let expected = [false, true].map { isReversed in
            meant.sorted { left, right in
                let order = order.compare(left.value, right.value)
                return order != 0 ? order < 0 : isReversed ? left.key > right.key : left.key < right.key
            }.map(\.key)
        }
        #expect(
            found == expected[0] || found == expected[1] && !order.sort.isEmpty,
            "\(step): \(question.text) by \(order.sort): \(found), not \(expected[0])")
    }

    // MARK: Saving

    private func save(
        _ name: String, by device: RecordDevice, _ seen: inout [String: Data], _ model: inout Model,
        _ random: inout SplitMix64
    ) throws {
        let policy: WireSavePolicy =
            pick([.ifServerRecordUnchanged, .ifServerRecordUnchanged, .changedKeys], &random)
        let parent = Int.random(in: 0..<6, using: &random) == 0 ? pick(Self.names, &random) : ""
        let target = Int.random(in: 0..<4, using: &random) == 0 ? pick(Self.names, &random) : nil
        let field = pick(["x", "y"], &random)
        let value = Int64.random(in: 0..<1000, using: &random)
        var fields: [String: WireRecordField.OneOf_Value] = [field: .integer(value)]
        if let target { fields["to"] = .with(target) }
        let base = seen[name] ?? Data()
        let change = WireRecordChange.save(
            name, fields, base: base, policy: policy, parent: parent.isEmpty ? nil : parent)
        let code = try #require(try device.modify([change]).codes.first)
        let known = model.records[name]
        var made = known ?? Model.Entry(version: Data())
        made.version = change.save.version
        made.fields[field] = value
        if let target { made.target = target }
        if !parent.isEmpty { made.parent = parent }
        if known == nil, !base.isEmpty, policy == .ifServerRecordUnchanged {
            #expect(code == .unknownItem)
            seen[name] = nil
        } else if let known, known.version != base, Self.isSame(known, made) {
            #expect(code == nil)
            seen[name] = known.version
        } else if let known, known.version != base, policy == .ifServerRecordUnchanged {
            #expect(code == .serverRecordChanged)
        } else if !made.parent.isEmpty,
            model.records[made.parent] == nil && made.parent != name
                || model.isCircle(name, below: made.parent)
        {
            #expect(code == .referenceViolation)
        } else {
            #expect(code == nil)
            model.records[name] = made
            seen[name] = made.version
        }
    }

    private static func isSame(_ left: Model.Entry, _ right: Model.Entry) -> Bool {
        left.fields == right.fields && left.target == right.target && left.parent == right.parent
    }

    private static func entry(_ record: WireRecord) -> Model.Entry {
        var entry = Model.Entry(version: record.version, parent: record.parent)
        for field in record.fields {
            switch field.value {
            case .integer(let value): entry.fields[field.name] = value
            case .reference(let reference): entry.target = reference.record
            default: Issue.record("A field that nobody saved.")
            }
        }
        return entry
    }

    /// The ledger has what is stored, and there is a row for each reference.
    private func checkRows(
        _ house: RecordHouse, _ device: RecordDevice, _ model: Model, _ stored: [String: WireRecord]
    ) throws {
        let references = model.records.values.reduce(0) {
            $0 + ($1.target == nil ? 0 : 1) + ($1.parent.isEmpty ? 0 : 1)
        }
        #expect(try house.rows(of: "record_references") == Int64(references))
        let records = try stored.reduce(0) {
            $0 + $1.value.countedBytes(ItemName($1.key), encoded: try $1.value.serializedData().count)
        }
        let history = try house.cloud.storage(of: .records).write { transaction in
            let sum = try transaction.first(SQL("SELECT SUM(counted) FROM record_history"), []) { $0.integer(0) } ?? 0
            let told = try transaction.first(SQL("SELECT SUM(bytes) FROM record_history_zones"), []) { $0.integer(0) }
            #expect(told ?? 0 == sum)
            return sum
        }
        #expect(try house.used(of: device.mover.account) == Int64(records) + history)
    }
}
