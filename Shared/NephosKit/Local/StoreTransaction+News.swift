import Core
import Foundation
import GRDB
import SwiftProtobuf
import Wire

/// What a home's processes have to be told of one store.
///
/// Whichever process brings a change in tells all: it writes the notification into this log, in the transaction that
/// stores the change. Each process reads the log from where it was itself, so that it hears of every change once,
/// in the order in which they were stored.
struct News {
    /// Entries kept, of all stores together.
    static let entriesMax = 1000
    /// A notification whose items are larger is kept without them; who reads it takes the items as they are then.
    static let itemBytesMax = 16 << 10

    var notifications: [ChangeNotification] = []
    /// The place of the newest entry.
    var latest: Int64
    /// Whether nothing was removed that has not been read here.
    var isComplete: Bool
}

extension StoreTransaction {
    /// Tells every process of the home, this one included.
    func tell(_ notification: ChangeNotification) throws {
        var wire = WireNotification()
        wire.reason = WireChangeReason(rawValue: notification.reason.rawValue) ?? .serverChange
        wire.token = WireChangeToken(notification.token)
        wire.deviceID = notification.device?.rawValue ?? ""
        let items = notification.items.map { ($0.key, $0) }
        let bytes = items.reduce(0) { $0 + ($1.1.value?.canonicalBytes.count ?? 0) }
        let known = bytes <= News.itemBytesMax ? Dictionary(items) { $1 } : [:]
        let deleted = Set(notification.items.filter { $0.value == nil }.map(\.key))
        wire.changes = try notification.changedKeys.map { key in
            var change = WireChange()
            change.item = key.rawValue
            change.deleted = deleted.contains(key)
            if let item = known[key] { change.body = try WireKeyValueItem(item).serializedBytes() }
            return change
        }
        try database.cachedStatement(
            sql: "INSERT INTO news (account, store, notification, error) VALUES (?1, ?2, ?3, ?4)"
        ).execute(arguments: [
            scope.account?.rawValue ?? "", scope.store.rawValue, try wire.serializedData(),
            notification.error.map(StoredError.encode),
        ])
        try database.cachedStatement(sql: "DELETE FROM news WHERE position <= ?1")
            .execute(arguments: [database.lastInsertedRowID - Int64(News.entriesMax)])
    }

    /// The place of the newest entry.
    func latestNews() throws -> Int64 {
        try Int64.fetchOne(database.cachedStatement(sql: "SELECT seq FROM sqlite_sequence WHERE name = 'news'")) ?? 0
    }

    /// What this store's followers were told after the entry at this place.
    func news(after position: Int64) throws -> News {
        let latest = try latestNews()
        var news = News(latest: latest, isComplete: latest - position <= Int64(News.entriesMax))
        guard latest > position else { return news }
        let rows = try Row.fetchCursor(
            database.cachedStatement(
                sql: "SELECT notification, error FROM news WHERE position > ?1 AND account = ?2 AND store = ?3 "
                    + "ORDER BY position"),
            arguments: [position, scope.account?.rawValue ?? "", scope.store.rawValue])
        var found: [(Data, Data?)] = []
        while let row = try rows.next() { found.append((row["notification"], row["error"])) }
        news.notifications = try found.map { try notification($0, error: $1) }
        return news
    }

    private func notification(_ data: Data, error: Data?) throws -> ChangeNotification {
        let wire = try WireNotification(serializedBytes: data)
        let device = wire.deviceID.isEmpty ? nil : DeviceID(wire.deviceID)
        let items = try wire.changes.compactMap { change -> KeyValueItem? in
            if !change.body.isEmpty { return try KeyValueItem(WireKeyValueItem(serializedBytes: change.body)) }
            if let item = try visible(ItemName(change.item)) { return item }
            guard change.deleted else { return nil }
            return KeyValueItem(
                key: ItemName(change.item), value: nil, timestamp: .zero, deviceID: device ?? DeviceID(""))
        }
        return ChangeNotification(
            reason: ChangeReason(rawValue: wire.reason.rawValue) ?? .serverChange,
            changedKeys: wire.changes.map { ItemName($0.item) }, items: items, device: device,
            token: ChangeToken(wire.token),
            error: error.flatMap(StoredError.decode))
    }
}
