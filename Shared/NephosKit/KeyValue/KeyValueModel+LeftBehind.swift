import GRDB
import NephosCore

/// Writes for a store that the app had before: they were meant for what was in it, so nobody but a person puts them
/// into another.
extension KeyValueModel {
    /// The stores that the app no longer has, where something of it waits.
    private func formerStores(in rows: ScopeTransaction) throws -> [StoreTransaction] {
        guard let session = try Facts(rows.database).session, session.accountID == rows.scope.account else { return [] }
        return (session.formerStoreIDs?[app.rawValue] ?? []).filter { store in
            // Another app has it now, and sends what waits there.
            !session.storeIDs.values.contains(store)
        }.map { StoreTransaction(rows.database, StoreScope(account: session.accountID, store: StoreID($0))) }
    }

    func leftBehind(in rows: ScopeTransaction) throws -> [StoreStatus.LeftBehind] {
        try formerStores(in: rows).compactMap { store in
            let pending = try store.pending(limit: ScopeDriver.listedMax)
            guard let first = pending.first else { return nil }
            return StoreStatus.LeftBehind(
                place: store.store, names: Set(pending.flatMap(\.writes).map(\.key)).sorted(),
                since: first.operation.created)
        }
    }

    func discardLeftBehind(in rows: ScopeTransaction) throws {
        for store in try formerStores(in: rows) {
            for pending in try store.pending() { try store.removePending(pending.operation.position) }
        }
    }

    /// Lets the app's present store have them, with the times at which they were written.
    ///
    /// - Returns: What they write, in that order.
    func adoptLeftBehind(in rows: ScopeTransaction) throws -> [KeyValueItem] {
        var offered: [KeyValueItem] = []
        for former in try formerStores(in: rows) {
            for pending in try former.pending() {
                offered += pending.writes
                // Another request than the one that may have gone out for the store before.
                try StoreTransaction(rows).append(
                    pending.writes, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
                try former.removePending(pending.operation.position)
            }
        }
        return offered
    }
}
