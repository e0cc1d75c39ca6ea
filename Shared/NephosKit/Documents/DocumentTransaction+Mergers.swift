import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// Items that this device has made, and that became one with items of their names that other devices had made.
extension DocumentTransaction {
    static let mergers = """
        CREATE TABLE document_mergers (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL, survivor TEXT NOT NULL,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;

        """

    /// The item that this one became one with; nil: it is an item of its own, or nobody knows of it.
    func survivor(of id: DocumentID) throws -> DocumentID? {
        try String.fetchOne(
            cached("SELECT survivor FROM document_mergers WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(id.description)
        ).flatMap { DocumentID($0) }
    }

    /// Notes which items became one with others, and has later requests name the surviving ones. Moves and deletions of
    /// the merged items are dropped: they were meant for what this device had made.
    ///
    /// - Parameters:
    ///   - merged: The surviving item of each, as messages have them.
    ///   - position: Of the request that has made them.
    func redirect(_ merged: [Data: Data], after position: Int64) throws {
        guard !merged.isEmpty else { return }
        for case (let item?, let survivor?) in merged.map({ (DocumentID(bytes: $0), DocumentID(bytes: $1)) }) {
            try cached(
                "INSERT OR REPLACE INTO document_mergers (account, container, item, survivor) "
                    + "VALUES (?1, ?2, ?3, ?4)"
            ).execute(arguments: arguments(item.description, survivor.description))
            try renameItem(ofLocalFilesOf: item, to: survivor)
        }
        let later = try Int64.fetchAll(
            cached(
                "SELECT DISTINCT position FROM document_changes "
                    + "WHERE account = ?1 AND container = ?2 AND position > ?3 ORDER BY position"),
            arguments: arguments(position))
        for position in later {
            // What was sent is frozen, and what it was sent with.
            guard let operation = try rows.operation(at: position), operation.state == .unsent else { continue }
            var request = try WireApplyChanges(serializedBytes: operation.payload)
            guard request.redirect(merged) else { continue }
            guard !request.changes.isEmpty else {
                try removeChanges(at: position)
                try rows.removeOperation(at: position)
                continue
            }
            _ = try rows.setPayload(request.serializedData(), at: position)
            try setChanges(request.changes, at: position)
        }
    }
}

extension WireApplyChanges {
    /// - Returns: Whether one of the changes or conditions named a merged item.
    fileprivate mutating func redirect(_ merged: [Data: Data]) -> Bool {
        let dropped = Set(changes.filter { $0.isDropped(by: merged) }.map(\.item))
        changes.removeAll { $0.isDropped(by: merged) }
        // They guarded what is not done any more.
        conditions.removeAll { dropped.contains($0.item) }
        var isRedirected = !dropped.isEmpty
        for index in changes.indices where changes[index].redirect(merged) { isRedirected = true }
        for index in conditions.indices {
            guard let into = merged[conditions[index].item] else { continue }
            conditions[index].item = into
            isRedirected = true
        }
        return isRedirected
    }

    /// The same request as what it did to the surviving items.
    func merged(_ merged: [Data: Data]) -> WireApplyChanges {
        guard !merged.isEmpty else { return self }
        var request = self
        request.changes.removeAll { $0.isDropped(by: merged) }
        for (index, change) in request.changes.enumerated() {
            if case .create(let create)? = change.kind, merged[change.item] != nil {
                request.changes[index].kind = create.asChange
            }
            _ = request.changes[index].redirect(merged)
        }
        return request
    }
}

extension WireApplyChangesReply {
    /// The surviving item of each that the request was to make.
    ///
    /// - Returns: Nil: the reply names something else.
    func merged(by request: WireApplyChanges) -> [Data: Data]? {
        let made = Set(request.changes.filter(\.creates).map(\.item))
        var survivors: [Data: Data] = [:]
        for one in merged {
            guard made.contains(one.item), DocumentID(bytes: one.into)?.isFixed == false else { return nil }
            survivors[one.item] = one.into
        }
        return survivors
    }
}
