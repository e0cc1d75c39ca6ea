internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosStorage
internal import NephosWire

private import struct Foundation.Data

/// Tells identity what it has said, after its database has come back from an
/// old copy: a service that follows it may know of endings, and of rights, that
/// identity has forgotten.
///
/// What has to be told is in the database, so that a crash forgets none of it.
final class DirectoryReport {
    static let migrations = [
        Migration(
            name: "host-004-directory-report",
            statements: ["CREATE TABLE directory_untold (item TEXT NOT NULL PRIMARY KEY, body BLOB NOT NULL)"])
    ]

    /// Items in one request.
    private static let itemsMax: Int64 = 64
    private static let retryPause: Duration = .seconds(5)

    private static let keep = SQL(
        """
        INSERT INTO directory_untold (item, body) SELECT item, body FROM directory_items WHERE item IS NOT NULL
        ON CONFLICT (item) DO UPDATE SET body = excluded.body
        """)
    private static let select = SQL("SELECT item, body FROM directory_untold ORDER BY item LIMIT ?1")
    private static let delete = SQL("DELETE FROM directory_untold WHERE item = ?1")

    private unowned let host: ServiceHost
    private var isRunning = false

    init(host: ServiceHost) { self.host = host }

    /// Notes that what is known now has to be told: before what identity says from now on takes its place.
    func begin(in transaction: any Transaction) throws { try transaction.execute(Self.keep, []) }

    /// Goes on with what has to be told, if that is anything.
    func resume() {
        guard !isRunning else { return }
        isRunning = true
        next(after: .zero)
    }

    private func next(after pause: Duration) {
        host.loop.schedule(after: pause) { [weak self] in self?.tell() }
    }

    private func tell() {
        guard !host.isClosed else { return }
        host.run { transaction in
            try transaction.all(Self.select, [.integer(Self.itemsMax)]) { row in
                var item = WireChange()
                item.item = row.text(0)
                item.body = Data(row.blob(1))
                return item
            }
        } then: { [weak self] result in
            guard let self, !host.isClosed else { return }
            guard case .success(let items) = result else { return next(after: Self.retryPause) }
            guard !items.isEmpty else { return isRunning = false }
            tell(items)
        }
    }

    private func tell(_ items: [WireChange]) {
        var request = WireReportDirectory()
        request.items = items
        host.call(.identity, "ReportDirectory", body: Frame(encoding: request), causeID: nil) { [weak self] result in
            guard let self, !host.isClosed else { return }
            if case .failure(let error) = result {
                host.logger.error("Identity could not be told what it has forgotten", error)
                return next(after: Self.retryPause)
            }
            host.run { transaction in
                for item in items { try transaction.execute(Self.delete, [.text(item.item)]) }
            } then: { [weak self] result in
                self?.next(after: result.isSuccess ? .zero : Self.retryPause)
            }
        }
    }
}
