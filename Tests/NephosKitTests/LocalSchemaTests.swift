import Foundation
import GRDB
import NephosCore
import NephosWire
import Testing

@testable import NephosKit

/// The tables of a home.
@Suite struct LocalSchemaTests {
    @Test func aHomeOfAnotherVersionIsRefusedAndLeftAlone() throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: home) }
        let path = home + "/device.sqlite"
        _ = try LocalStore(path: path)
        // 0: from before there were numbers.
        for version in [0, 99] {
            let other = try DatabaseQueue(path: path)
            try other.writeWithoutTransaction { try $0.execute(sql: "PRAGMA user_version = \(version)") }
            let before = try other.read { try Int.fetchOne($0, sql: "PRAGMA data_version") }
            let refused = #expect(throws: CloudError.self) { try LocalStore(path: path) }
            #expect(refused?.code == .incompatibleVersion && refused?.details["schema_version"] == "\(version)")
            #expect(try other.read { try Int.fetchOne($0, sql: "PRAGMA data_version") } == before)
            try other.close()
        }
    }

    /// Else each command would wait until others have written.
    @Test func openingAHomeWritesNothing() throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: home) }
        let path = home + "/device.sqlite"
        // As long as it is open the log stays, which whoever opens the home would have to begin.
        let first = try LocalStore(path: path)
        let other = try DatabaseQueue(path: path)
        try other.inTransaction(.immediate) { _ in
            _ = try LocalStore(path: path)
            return .rollback
        }
        withExtendedLifetime(first) {}
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
        change.deleted = true
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
