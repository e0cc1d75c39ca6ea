import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// What a home's processes have to be told of one scope.
///
/// Whichever process brings a change in tells all: it writes the notification into this log, in the transaction that
/// stores the change. Each process reads the log from where it was itself, so that it hears of every change once,
/// in the order in which they were stored.
struct News {
    /// Entries kept, of all scopes together.
    static let entriesMax = 1000
    /// A notification whose items are larger is kept without them; who reads it takes the items as they are then.
    static let itemBytesMax = 16 << 10

    var entries: [(notification: WireNotification, error: CloudError?)] = []
    /// The place of the newest entry.
    var latest: Int64
    /// Whether nothing was removed that has not been read here.
    var isComplete: Bool
}

extension ScopeTransaction {
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
        try cached("INSERT INTO news (account, service, scope, notification, error) VALUES (?1, ?2, ?3, ?4, ?5)")
            .execute(arguments: [
                account, service, scope.name, try wire.serializedData(), notification.error.map(StoredError.encode),
            ])
        try cached("DELETE FROM news WHERE position <= ?1")
            .execute(arguments: [database.lastInsertedRowID - Int64(News.entriesMax)])
    }

    /// The place of the newest entry.
    func latestNews() throws -> Int64 {
        try Int64.fetchOne(cached("SELECT seq FROM sqlite_sequence WHERE name = 'news'")) ?? 0
    }

    /// What this scope's followers were told after the entry at this place.
    func news(after position: Int64) throws -> News {
        let latest = try latestNews()
        var news = News(latest: latest, isComplete: latest - position <= Int64(News.entriesMax))
        guard latest > position else { return news }
        let rows = try Row.fetchCursor(
            cached(
                "SELECT notification, error FROM news WHERE position > ?1 AND account = ?2 AND service = ?3 "
                    + "AND scope = ?4 ORDER BY position"),
            arguments: [position, account, service, scope.name])
        while let row = try rows.next() {
            let error = (row["error"] as Data?).flatMap(StoredError.decode)
            news.entries.append((try WireNotification(serializedBytes: row["notification"] as Data), error))
        }
        return news
    }
}

extension ChangeNotification {
    /// As it was told, without the items' states.
    init(_ wire: WireNotification, _ error: CloudError?) {
        self.init(
            reason: ChangeReason(rawValue: wire.reason.rawValue) ?? .serverChange,
            changedKeys: wire.changes.map { ItemName($0.item) },
            device: wire.deviceID.isEmpty ? nil : DeviceID(wire.deviceID), token: ChangeToken(wire.token),
            error: error)
    }
}
