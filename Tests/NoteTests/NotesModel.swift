import GRDB
import NephosBus
import NephosCore
import NephosWire
import SwiftProtobuf

import struct Foundation.Data

@testable import NephosKit

/// The device's side of ``NotesService``: one table, and what a change does to it.
final class NotesModel: ScopeModel {
    static let migrations = [LocalMigration(name: "notes 1", sql: table)]
    private static let table = "CREATE TABLE notes (account, name, text, sequence INT, PRIMARY KEY (account, name))"

    let app = NotesKind.app
    let service = ServiceName.records
    unowned let engine: DeviceEngine
    var told: [ChangeNotification] = []
    var owner: Owner?

    init(_ engine: DeviceEngine) { self.engine = engine }

    func address(in session: SessionRecord) -> ScopeAddress {
        .known(LocalScope(account: session.accountID, service: service, owner: owner, path: app.rawValue))
    }

    func notifications(of news: News, in rows: ScopeTransaction) throws -> [ChangeNotification] {
        let notifications = news.entries.map { ChangeNotification($0.notification, $0.error) }
        told += notifications
        return notifications
    }

    func notes(in rows: ScopeTransaction) throws -> [Note] {
        try Row.fetchAll(
            rows.cached("SELECT name, text FROM notes WHERE account = ?1 AND text IS NOT NULL ORDER BY name"),
            arguments: [rows.account]
        ).map { Note(name: ItemName($0["name"] as String), text: [UInt8]($0["text"] as Data)) }
    }

    func forEachDigest(
        in rows: ScopeTransaction, key: [UInt8], _ body: (ItemName, SetDigest) throws -> Void
    ) throws {
        for note in try notes(in: rows) { try body(note.name, note.digest) }
    }

    func digest(of change: WireChange, key: [UInt8]) -> SetDigest? { Note(change).digest }

    func greatestSequence(in rows: ScopeTransaction) throws -> UInt64 {
        let sql = "SELECT max(sequence) FROM notes WHERE account = ?1"
        return UInt64(bitPattern: try Int64.fetchOne(rows.cached(sql), arguments: [rows.account]) ?? 0)
    }

    private func put(_ note: Note, at sequence: UInt64, in rows: ScopeTransaction, _ state: inout ScopeState) throws {
        if let old = try notes(in: rows).first(where: { $0.name == note.name }) { state.digest.remove(old.digest) }
        if note.text != nil { state.digest.add(note.digest) }
        try rows.cached("INSERT OR REPLACE INTO notes (account, name, text, sequence) VALUES (?1, ?2, ?3, ?4)")
            .execute(arguments: [
                rows.account, note.name.rawValue, note.text.map { Data($0) }, Int64(bitPattern: sequence),
            ])
    }

    func merge(_ pulled: PulledChanges, in rows: ScopeTransaction, _ state: inout ScopeState) throws -> MergedChanges? {
        if pulled.isListing {
            try rows.cached("DELETE FROM notes WHERE account = ?1").execute(arguments: [rows.account])
            state.digest = .empty
        }
        var changed: [ItemName] = []
        try pulled.changes.forEach { change in
            try put(Note(change), at: change.sequence, in: rows, &state)
            changed.append(ItemName(change.item))
        }
        let reason: ChangeReason = state.synced ? .serverChange : .initialSyncChange
        return MergedChanges(news: ChangeNotification(reason: reason, changedKeys: changed))
    }

    func pack(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> any SwiftProtobuf.Message {
        try WireChange(serializedBytes: operation.payload)
    }

    func receipt(_ reply: Frame, of operation: OutboxOperation, in rows: ScopeTransaction) throws -> PushReceipt? {
        guard let reply = try? reply.decode(WireNotification.self), let change = reply.changes.first else { return nil }
        let token = ChangeToken(reply.token)
        return PushReceipt(token: token, previousSequence: reply.previousSequence) { isCurrent, state in
            let isNew = isCurrent && token.sequence > state.head.sequence
            if isNew { try self.put(Note(change), at: token.sequence, in: rows, &state) }
            return nil
        }
    }

    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName] {
        [ItemName(try WireChange(serializedBytes: operation.payload).item)]
    }
}
