import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosRecords

extension RecordDevice {
    /// Declares indexes such as `Note(count, title[cd] descending)`; without fields those of words.
    @discardableResult
    func index(_ texts: String..., removing: [String] = []) throws -> [WireRecordIndexState] {
        var request = WireModifyRecordIndexes()
        request.container = container
        request.database = database
        request.save = texts.map(WireRecordIndex.init(text:))
        request.delete = removing.map(WireRecordIndex.init(text:))
        return try call("ModifyRecordIndexes", request, as: WireModifyRecordIndexesReply.self).indexes
    }

    func indexes() throws -> [WireRecordIndexState] {
        var request = WireListRecordIndexes()
        request.container = container
        request.database = database
        return try call("ListRecordIndexes", request, as: WireListRecordIndexesReply.self).indexes
    }

    /// Until all are made and removed.
    func settleIndexes() throws {
        var turns = 0
        while try indexes().contains(where: { $0.state != .ready }), turns < 10_000 {
            turns += 1
            house.cloud.network.run(for: .milliseconds(20))
        }
    }

    func page(
        _ predicate: String, type: String = "Note", sort: [String] = [], after: String = "", limit: UInt32 = 0,
        scan: Bool = false
    ) throws -> WireQueryRecordsReply {
        var request = WireQueryRecords()
        request.container = container
        request.database = database
        request.zoneID = zone
        request.type = type
        request.predicate = predicate
        request.after = after
        request.limit = limit
        request.scan = scan
        request.explain = true
        request.sort = sort.map { text in
            let field = WireRecordIndex(text: "Note(\(text))").fields[0]
            var sort = WireRecordSort()
            sort.field = field.field
            sort.descending = field.descending
            sort.folding = field.folding
            return sort
        }
        return try call("QueryRecords", request, as: WireQueryRecordsReply.self)
    }

    /// Names of all that it is true of, in the order in which they come.
    func query(
        _ predicate: String, type: String = "Note", sort: [String] = [], limit: UInt32 = 0,
        between: (WireQueryRecordsReply) throws -> Void = { _ in }
    ) throws -> [String] {
        var names: [String] = []
        var after = ""
        while true {
            let reply = try page(predicate, type: type, sort: sort, after: after, limit: limit)
            names += reply.records.map(\.item)
            if reply.after.isEmpty { return names }
            after = reply.after
            try between(reply)
        }
    }
}

extension WireRecordIndex {
    /// As an index is described.
    init(text: String) {
        self.init()
        foldingVersion = 1
        let parts = text.dropLast().split(separator: "(")
        type = String(parts[0])
        guard parts[1] != "words" else { return }
        fields = parts[1].split(separator: ",").map { part in
            let words = part.split(whereSeparator: { " []".contains($0) })
            var field = WireIndexedField()
            field.field = String(words[0])
            field.descending = words.contains("descending")
            field.folding = words.contains("cd") ? 3 : words.contains("c") ? 1 : words.contains("d") ? 2 : 0
            return field
        }
    }
}

extension WireRecordField.OneOf_Value {
    static func list(_ texts: [String]) -> Self {
        var list = WireStringList()
        list.values = texts
        return .strings(list)
    }

    static func list(_ numbers: [Int64]) -> Self {
        var list = WireIntegerList()
        list.values = numbers
        return .integers(list)
    }

    static func place(_ latitude: Double, _ longitude: Double) -> Self {
        var place = WireRecordLocation()
        place.latitude = latitude
        place.longitude = longitude
        return .location(place)
    }
}
