import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosRecords

/// Random saves and deletions by several devices, with the service killed in between, against a plain model: what there
/// is, what is refused, what refers to what, and what counts.
@Suite struct ModelTests {
    /// What the zone should hold.
    private struct Model {
        struct Entry: Equatable {
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

    @Test(arguments: 0..<(Int(ProcessInfo.processInfo.environment["NEPHOS_SEEDS"] ?? "") ?? 20))
    func theZoneIsWhatTheModelSays(_ seed: Int) throws {
        var random = SplitMix64(seed: UInt64(seed))
        let house = try RecordHouse(seed: UInt64(seed))
        let devices = try (0..<3).map { _ in try house.device() }
        let zone = try devices[0].makeZone("Work")
        for device in devices { device.zone = zone }
        var model = Model()
        /// What each device has seen of each record.
        var seen = Array(repeating: [String: Data](), count: devices.count)
        for step in 0..<120 {
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
        }
        let stored = try devices[0].list()
        #expect(stored.mapValues(Self.entry) == model.records)
        try checkRows(house, devices[0], model, stored)
    }

    private func save(
        _ name: String, by device: RecordDevice, _ seen: inout [String: Data], _ model: inout Model,
        _ random: inout SplitMix64
    ) throws {
        let policy: WireSavePolicy =
            [.ifServerRecordUnchanged, .ifServerRecordUnchanged, .changedKeys].randomElement(using: &random)!
        let parent = Int.random(in: 0..<6, using: &random) == 0 ? Self.names.randomElement(using: &random)! : ""
        let target = Int.random(in: 0..<4, using: &random) == 0 ? Self.names.randomElement(using: &random)! : nil
        let field = ["x", "y"].randomElement(using: &random)!
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
