import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// A database's zones inside a local transaction: those that the server has, and over them what waits to be sent.
struct ZoneTransaction {
    let rows: ScopeTransaction
    var items: RecordItems { RecordItems(rows: rows) }
    /// The container's id.
    var container: String { rows.scope.path }

    init(_ rows: ScopeTransaction) { self.rows = rows }

    /// Zones that are to be made or deleted, in the order in which that was said.
    func pending() throws -> [WireModifyZones] {
        try rows.operations().map { try WireModifyZones(serializedBytes: $0.payload) }
    }

    /// A zone as the app sees it; nil: there is none.
    func zone(_ name: String) throws -> RecordZone? {
        if name == RecordZone.defaultName { return RecordZone(name: name, id: name) }
        return try latest(name)?.zone
    }

    /// - Returns: With the id that it has, or gets once it is made.
    private func latest(_ name: String) throws -> (zone: RecordZone, id: String)? {
        var latest = try items.item(ItemName(name)).flatMap(\.zone).map { ($0, $0.id ?? "") }
        for request in try pending() {
            if let (_, id) = latest, request.deletes(name, id) { latest = nil }
            if latest == nil, let new = request.save.first(where: { $0.name == name }) {
                latest = (RecordZone(name: name), new.zoneID)
            }
        }
        return latest
    }

    /// What deletes the zone, as it is called by whoever has just said so; nil: there is none.
    ///
    /// Before anybody here knows which zones there are it has no id, and gets it by the first download.
    func deletion(of name: String) throws -> WireDeletedZone? {
        let id = try latest(name)?.id
        guard try id != nil || !rows.state().synced else { return nil }
        return WireDeletedZone(name, id ?? "")
    }

    /// All zones, in the order of their names, the default zone first.
    func all() throws -> [RecordZone] {
        var zones = Dictionary(try items.all().compactMap(\.zone).map { ($0.name, ($0, $0.id ?? "")) }) { $1 }
        for request in try pending() {
            for name in request.delete.map(\.name) {
                if let (_, id) = zones[name], request.deletes(name, id) { zones[name] = nil }
            }
            for new in request.save where zones[new.name] == nil {
                zones[new.name] = (RecordZone(name: new.name), new.zoneID)
            }
        }
        return [RecordZone(name: RecordZone.defaultName, id: RecordZone.defaultName)]
            + zones.values.map(\.0).sorted { $0.name < $1.name }
    }

    /// Whether the server has the zone, as far as this device knows, and it is not about to be deleted.
    func isMade(_ name: String) throws -> Bool { try id(of: name) != nil || !rows.state().synced }

    /// What the server calls the zone; nil: it is not there, or about to be deleted.
    func id(of name: String) throws -> String? {
        if name == RecordZone.defaultName { return name }
        guard let id = try items.item(ItemName(name)).flatMap(\.zone)?.id else { return nil }
        return try pending().contains { $0.deletes(name, id) } ? nil : id
    }

    // MARK: What waits

    /// The first download has told which zones there are: deletions from before mean those.
    func nameDeletions() throws {
        for operation in try rows.operations() where operation.state == .unsent {
            var request = try WireModifyZones(serializedBytes: operation.payload)
            guard request.delete.contains(where: \.zoneID.isEmpty) else { continue }
            request.delete = try request.delete.compactMap { zone in
                guard zone.zoneID.isEmpty else { return zone }
                return try items.item(ItemName(zone.name)).flatMap(\.zone)?.id.map { WireDeletedZone(zone.name, $0) }
            }
            try replace(operation, with: request)
        }
    }

    /// What is to be made gets another id: what deletes it follows.
    func rename(_ ids: [String: String]) throws {
        for operation in try rows.operations() where operation.state == .unsent {
            var request = try WireModifyZones(serializedBytes: operation.payload)
            guard request.delete.contains(where: { ids[$0.zoneID] != nil }) else { continue }
            request.delete = request.delete.map { WireDeletedZone($0.name, ids[$0.zoneID] ?? $0.zoneID) }
            try replace(operation, with: request)
        }
    }

    private func replace(_ operation: OutboxOperation, with request: WireModifyZones) throws {
        guard request.save.isEmpty, request.delete.isEmpty, request.ended.isEmpty else {
            _ = try rows.setPayload(request.serializedData(), at: operation.position)
            return
        }
        try rows.removeOperation(at: operation.position)
    }

    /// The zone's records.
    func records(of name: String) -> RecordTransaction {
        RecordTransaction(
            ScopeTransaction(rows.database, RecordPlace.zone(container, name).scope(of: rows.scope.account)),
            zone: name)
    }
}

extension WireModifyZones {
    /// Whether it deletes the zone of this name that has this id.
    func deletes(_ name: String, _ id: String) -> Bool {
        delete.contains { $0.name == name && ($0.zoneID.isEmpty || $0.zoneID == id) }
    }
}

extension WireDeletedZone {
    init(_ name: String, _ id: String) {
        self.init()
        self.name = name
        zoneID = id
    }
}

extension RecordItems.Item {
    /// Nil: it was deleted, or cannot be read.
    var zone: RecordZone? {
        guard let body, let wire = try? WireRecordZone(serializedBytes: body) else { return nil }
        return RecordZone(
            name: name.rawValue, id: wire.zoneID.isEmpty ? nil : wire.zoneID,
            created: wire.created == 0 ? nil : RecordDate(nanoseconds: wire.created))
    }
}
