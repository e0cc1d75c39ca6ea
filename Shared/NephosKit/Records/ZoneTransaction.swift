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
        var zone = try items.item(ItemName(name)).flatMap(\.zone)
        for request in try pending() {
            if request.delete.contains(name) { zone = nil }
            if zone == nil, request.save.contains(where: { $0.name == name }) { zone = RecordZone(name: name) }
        }
        return zone
    }

    /// All zones, in the order of their names, the default zone first.
    func all() throws -> [RecordZone] {
        var zones = Dictionary(try items.all().compactMap(\.zone).map { ($0.name, $0) }) { $1 }
        for request in try pending() {
            for name in request.delete { zones[name] = nil }
            for zone in request.save where zones[zone.name] == nil { zones[zone.name] = RecordZone(name: zone.name) }
        }
        return [RecordZone(name: RecordZone.defaultName, id: RecordZone.defaultName)]
            + zones.values.sorted { $0.name < $1.name }
    }

    /// Whether the server has the zone, as far as this device knows, and it is not about to be deleted.
    func isMade(_ name: String) throws -> Bool { try id(of: name) != nil || !rows.state().synced }

    /// What the server calls the zone; nil: it is not there, or about to be deleted.
    func id(of name: String) throws -> String? {
        if name == RecordZone.defaultName { return name }
        guard try !pending().contains(where: { $0.delete.contains(name) }) else { return nil }
        return try items.item(ItemName(name)).flatMap(\.zone)?.id
    }

    /// The zone's records.
    func records(of name: String) -> RecordTransaction {
        RecordTransaction(
            ScopeTransaction(rows.database, RecordPlace.zone(container, name).scope(of: rows.scope.account)),
            zone: name)
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
