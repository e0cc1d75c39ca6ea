import Foundation
import GRDB
import NephosCore
import NephosWire
import Testing

@testable import NephosKit

/// A home that an earlier release has made goes on where it was.
@Suite struct MigrationTests {
    @Test func whatWaitedAndWhereAStoreStoodIsThereAfterwards() throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: home) }
        do {
            let path = home + "/device.sqlite"
            let before = try DatabaseQueue(path: path)
            try LocalSchema.migrator.migrate(before, upTo: "2: values of refused writes")
            try before.write { database in
                try database.execute(
                    sql: """
                        INSERT INTO stores (account, store, epoch, sequence, token_check, digest, digest_key, synced, limits)
                            VALUES ('acc_one', 'store.one', 3, 9, x'', zeroblob(32), x'07', 1, x'');
                        INSERT INTO pending (position, account, store, operation, state, writer, created)
                            VALUES (41, 'acc_one', 'store.one', zeroblob(16), 'unsent', 1, 5),
                                (42, 'acc_one', 'store.one', zeroblob(16), 'sent', 1, 5);
                        DELETE FROM pending WHERE position = 42;
                        INSERT INTO news (position, account, store, notification) VALUES (7, 'acc_one', 'store.one', x'');
                        """)
            }
            try before.close()

            let local = try LocalStore(path: path)
            let scope = StoreScope(account: AccountID("acc_one"), store: StoreID("store.one"))
            let (state, waiting, news) = try local.read { database in
                let rows = ScopeTransaction(database, scope.local)
                return (try rows.state(), try rows.operations(), try rows.news(after: 6))
            }
            #expect(state.head == ChangeToken(epoch: 3, sequence: 9) && state.synced && state.digestKey == [7])
            #expect(waiting.map(\.position) == [41])
            #expect(news.entries.count == 1 && news.latest == 7)
            // A position names an operation for good, also one that is gone.
            let now = Timestamp(milliseconds: 1_700_000_000_000)
            let next = try local.write {
                try ScopeTransaction($0, scope.local).append(id: OperationID(at: now), writer: 1, now: now)
            }
            #expect(next == 43)
        }
    }

    @Test func whateverTableHasSomethingOfAnAccountIsClearedWithIt() throws {
        let local = try LocalStore()
        try local.prepare([LocalMigration(name: "later 1", sql: "CREATE TABLE later (account TEXT, what TEXT)")])
        try local.write { database in
            try database.execute(sql: "INSERT INTO later VALUES ('acc_one', 'a'), ('acc_two', 'b')")
            try database.execute(sql: "INSERT INTO facts VALUES ('acc_one', x'00')")
            try ScopeTransaction.removeAll(of: AccountID("acc_one"), database)
        }
        let (later, facts) = try local.read { database in
            (
                try String.fetchAll(database, sql: "SELECT what FROM later"),
                try Int.fetchOne(database, sql: "SELECT count(*) FROM facts")
            )
        }
        #expect(later == ["b"] && facts == 1)
    }

    /// Pages that were read of it and not brought in yet lie in a table of the connection.
    @Test func whatWasStagedOfAnAccountIsGoneWithIt() throws {
        let local = try LocalStore()
        func scope(_ account: String) -> LocalScope {
            LocalScope(account: AccountID(account), service: .keyValue, path: "T.app")
        }
        var change = WireChange()
        change.item = "a"
        try local.write { database in
            for account in ["acc_one", "acc_two"] {
                try ScopeTransaction(database, scope(account)).stage([change], isFirst: true, by: 1)
            }
            try ScopeTransaction.removeAll(of: AccountID("acc_one"), database)
            for (account, count) in [("acc_one", 0), ("acc_two", 1)] {
                let staged = try ScopeTransaction(database, scope(account)).staged(by: 1)
                var found = 0
                while try staged.next() != nil { found += 1 }
                #expect(found == count, "\(account)")
            }
        }
    }
}
