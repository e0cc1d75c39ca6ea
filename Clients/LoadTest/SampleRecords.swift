import Foundation
import NephosBus
import NephosCore
import NephosWire

/// The records of a run, and what is asked of them. Whatever their number, a kind and a word have twenty records, and a
/// range is asked for its first twenty: so that an operation has the same work among few and among many.
struct SampleRecords: Sendable {
    static let zone = "_defaultZone"
    static let type = "Note"
    /// Records of a kind, with a word, and in an answer.
    static let alike = 20
    private static let wordsOfRecord = 6

    let container: String
    /// Records that there are before anything is measured.
    let count: Int
    /// Bytes of what no index has.
    var dataBytes = 100

    private var kinds: Int { max(1, count / Self.alike) }
    private var words: Int { max(1, count * Self.wordsOfRecord / Self.alike) }

    static func name(_ number: Int) -> String {
        let digits = String(number)
        return "r" + String(repeating: "0", count: max(0, 9 - digits.count)) + digits
    }

    /// Places that look random, and each once: numbers that are saved one after the other lie apart in every index.
    private static func scrambled(_ number: Int) -> Int {
        var bits = UInt64(truncatingIfNeeded: number) &* 0x9e37_79b9_7f4a_7c15
        bits ^= bits >> 29
        bits &*= 0xbf58_476d_1ce4_e5b9
        return Int(bits >> 2)
    }

    private func kind(_ number: Int) -> String { "k\(Self.scrambled(number) % kinds)" }
    private func rank(_ number: Int) -> Int64 { Int64(Self.scrambled(number) % 1_000_000_000_000) }
    private func word(_ number: Int, _ place: Int) -> String {
        "w\(Self.scrambled(number &* Self.wordsOfRecord &+ place) % words)"
    }

    // MARK: Saving

    /// - Parameter title: Of which number it has the words; others are another content of the same record.
    private func change(_ number: Int, policy: WireSavePolicy, title: Int) -> WireRecordChange {
        func field(_ name: String, _ value: WireRecordField.OneOf_Value) -> WireRecordField {
            var field = WireRecordField()
            field.name = name
            field.value = value
            return field
        }
        var change = WireRecordChange()
        change.record = Self.name(number)
        change.save.version = Data((0..<16).map { _ in UInt8.random(in: 0...255) })
        change.save.type = Self.type
        change.save.policy = policy
        change.save.fields = [
            field("count", .integer(Int64(title))),
            field("data", .data(Data(repeating: UInt8(truncatingIfNeeded: title), count: dataBytes))),
            field("kind", .string(kind(number))),
            field("rank", .integer(rank(number))),
            field(
                "title", .string((0..<Self.wordsOfRecord).map { word(title, $0) }.joined(separator: " "))),
        ]
        return change
    }

    private func request(_ changes: [WireRecordChange]) -> LoadRequest {
        var zone = WireZoneChanges()
        zone.zoneID = Self.zone
        zone.changes = changes
        var request = WireModifyRecords()
        request.container = container
        request.zones = [zone]
        return LoadRequest(method: "ModifyRecords", body: Frame(encoding: request))
    }

    /// The public database's one record, which the first save makes, with another content.
    func publicSave(_ title: UInt64, bytes: Int) -> WireModifyRecords {
        var count = WireRecordField()
        (count.name, count.value) = ("count", .integer(Int64(clamping: title)))
        var data = WireRecordField()
        (data.name, data.value) = ("data", .data(Data(repeating: 0x5a, count: bytes)))
        var change = WireRecordChange()
        change.record = Self.name(0)
        change.save.version = Data((0..<16).map { _ in UInt8.random(in: 0...255) })
        change.save.type = Self.type
        change.save.policy = .changedKeys
        change.save.fields = [count, data]
        var zone = WireZoneChanges()
        zone.zoneID = Self.zone
        zone.changes = [change]
        var request = WireModifyRecords()
        request.container = container
        request.zones = [zone]
        request.database = .public
        return request
    }

    /// New records.
    func save(_ numbers: Range<Int>) -> LoadRequest {
        request(numbers.map { change($0, policy: .ifServerRecordUnchanged, title: $0) })
    }

    /// Another content of a record that there is.
    func change(_ number: Int, to title: Int) -> LoadRequest {
        request([change(number, policy: .changedKeys, title: title)])
    }

    /// Another content of many.
    func change(_ numbers: Range<Int>) -> LoadRequest {
        request(numbers.map { change($0, policy: .changedKeys, title: $0 + count) })
    }

    // MARK: Asking

    func fetch(_ number: Int) -> LoadRequest {
        var request = WireFetchRecords()
        request.container = container
        request.zoneID = Self.zone
        request.records = [Self.name(number)]
        return LoadRequest(method: "FetchRecords", body: Frame(encoding: request))
    }

    private func query(_ predicate: String, sort: String? = nil) -> LoadRequest {
        var request = WireQueryRecords()
        request.container = container
        request.zoneID = Self.zone
        request.type = Self.type
        request.predicate = predicate
        request.limit = UInt32(Self.alike)
        if let sort {
            var order = WireRecordSort()
            order.field = sort
            request.sort = [order]
        }
        return LoadRequest(method: "QueryRecords", body: Frame(encoding: request))
    }

    func equal(to number: Int) -> LoadRequest { query("kind == '\(kind(number))'") }

    func range(from number: Int) -> LoadRequest {
        query("rank >= \(rank(number))", sort: "rank")
    }

    func words(of number: Int) -> LoadRequest { query("self CONTAINS '\(word(number, 0))'") }

    // MARK: Indexes

    /// Of the kind, the rank and the words.
    var indexes: WireModifyRecordIndexes {
        func index(_ fields: [String]) -> WireRecordIndex {
            var index = WireRecordIndex()
            index.type = Self.type
            index.fields = fields.map {
                var field = WireIndexedField()
                field.field = $0
                return field
            }
            return index
        }
        var request = WireModifyRecordIndexes()
        request.container = container
        request.save = [index(["kind"]), index(["rank"]), index([])]
        return request
    }
}
