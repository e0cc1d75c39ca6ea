import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// What is there, as it is read: as the server told it, under what waits.
extension DocumentTransaction {
    /// Everything that is there, as it is read.
    ///
    /// - Parameter index: Which index of both tables is used; nil: their keys. SQLite, left to itself, reads a container
    ///   through.
    private static func visible(where condition: String, by index: String?) -> String {
        """
        SELECT item, body, 1 AS pending, name
            FROM document_views \(index.map { "INDEXED BY document_views_by_\($0)" } ?? "")
            WHERE account = ?1 AND container = ?2 AND body IS NOT NULL AND \(condition)
        UNION ALL
        SELECT item, body, 0, name
            FROM documents AS d \(index.map { "INDEXED BY documents_by_\($0)" } ?? "")
            WHERE account = ?1 AND container = ?2 AND body IS NOT NULL AND \(condition)
            AND NOT EXISTS (SELECT 1 FROM document_views v
                WHERE v.account = ?1 AND v.container = ?2 AND v.item = d.item)
        """
    }

    // Those that are asked a million times are made once.
    private static let one = visible(where: "item = ?3", by: nil)
    private static let page = visible(where: "parent = ?3 AND (name, item) > (?4, ?5)", by: "place") + pageEnd
    private static let pageOfName =
        visible(where: "parent = ?3 AND (name, item) > (?4, ?5) AND name = ?7", by: "place") + pageEnd
    private static let pageEnd = " ORDER BY name, item LIMIT ?6"

    /// - Returns: By name, and then by id.
    private func fetch(
        where condition: String, by index: String? = nil, _ values: (any DatabaseValueConvertible)?...
    ) throws -> [HeldDocument] {
        try Row.fetchAll(
            cached(Self.visible(where: condition, by: index)),
            arguments: StatementArguments([account, container] + values)
        ).compactMap(Self.held).sorted {
            $0.wire.name == $1.wire.name ? $0.id < $1.id : $0.wire.name.lexicographicallyPrecedes($1.wire.name)
        }
    }

    /// - Parameter row: An item, its body, and whether something of it waits, in this order: to find columns by their names
    ///   would take as long as the rest.
    /// - Returns: Nil: it cannot be read here.
    private static func held(_ row: Row) -> HeldDocument? {
        guard let id = DocumentID(row[0] as String), let wire = try? WireDocumentItem(serializedBytes: row[1] as Data)
        else { return nil }
        return HeldDocument(id: id, wire: wire, isPending: row[2])
    }

    /// The item of this id, or the one that it became one with.
    func document(_ id: DocumentID) throws -> HeldDocument? {
        func held(_ id: DocumentID) throws -> HeldDocument? {
            try Row.fetchOne(cached(Self.one), arguments: arguments(id.description)).flatMap(Self.held)
        }
        return try held(id) ?? survivor(of: id).flatMap(held)
    }

    /// What lies in the folder and not in the trash, by name.
    func children(of folder: DocumentID) throws -> [HeldDocument] {
        try fetch(where: "parent = ?3 AND trash IS NULL", by: "place", folder.wire)
    }

    /// What lies in the folder, in the trash or not, after a place in it, in an order of its own.
    ///
    /// - Parameter name: Only what is called so; nil: everything.
    /// - Returns: With the place of the last of them; nil: nothing follows.
    func everything(
        in folder: DocumentID, named name: Data?, after place: (name: Data, item: String), limit: Int
    ) throws -> (items: [HeldDocument], last: (name: Data, item: String)?) {
        var values = arguments(folder.wire, place.name, place.item, limit)
        if let name { values += [name] }
        let rows = try Row.fetchCursor(cached(name == nil ? Self.page : Self.pageOfName), arguments: values)
        var items: [HeldDocument] = []
        var count = 0
        var last = place
        while let row = try rows.next() {
            count += 1
            last = (row[3], row[0])
            if let item = Self.held(row) { items.append(item) }
        }
        return (items, count < limit ? nil : last)
    }

    func child(of folder: DocumentID, named name: Data) throws -> HeldDocument? {
        try children(of: folder, named: name).first
    }

    /// What a name of the folder stands for: what has these bytes first, then what clashes with them. More than one is
    /// there as long as the server has not said what they are called.
    func children(of folder: DocumentID, named name: Data) throws -> [HeldDocument] {
        let found = try fetch(
            where: "parent = ?3 AND name_key IN (?4, x'') AND trash IS NULL", by: "name_key", folder.wire, key(of: name)
        )
        let other = try found.filter { try $0.wire.name != name && key(of: $0.wire.name) == key(of: name) }
        return found.filter { $0.wire.name == name } + other
    }

    /// What lies in the trash in its own right.
    ///
    /// - Parameter batch: Nil: of all.
    func trashed(batch: DocumentID? = nil) throws -> [HeldDocument] {
        guard let batch else { return try fetch(where: "trash IS NOT NULL", by: "trash") }
        return try fetch(where: "trash = ?3 AND trash IS NOT NULL", by: "trash", batch.wire)
    }

    /// Items of which something waits to be sent.
    func pending() throws -> [HeldDocument] {
        try Row.fetchAll(
            cached(
                "SELECT item, body, 1 AS pending FROM document_views "
                    + "WHERE account = ?1 AND container = ?2 AND body IS NOT NULL ORDER BY item"),
            arguments: arguments()
        ).compactMap(Self.held)
    }

    /// Goes through everything with a body, one by one, in no order that means anything.
    func eachItem(_ body: (HeldDocument) throws -> Void) throws {
        let rows = try Row.fetchCursor(cached(Self.visible(where: "1", by: nil)), arguments: arguments())
        while let row = try rows.next() { if let item = Self.held(row) { try body(item) } }
    }

    /// Everything with a body, in no order that means anything.
    func all() throws -> [HeldDocument] { try fetch(where: "1") }
}
