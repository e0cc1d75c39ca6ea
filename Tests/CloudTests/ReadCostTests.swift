import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// A service with many rows, which it reads in each of the ways that there are.
private final class Library: CloudService {
    let name = ServiceName.records
    static let rowCount = 1600

    let migrations = [
        Migration(
            name: "library",
            statements: [
                "CREATE TABLE books (id INTEGER PRIMARY KEY)",
                """
                WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < \(rowCount))
                INSERT INTO books (id) SELECT i FROM numbers
                """,
            ])
    ]
    private static let select = SQL("SELECT id FROM books")

    func register(on router: inout Router) {
        router.write(WireCreateAccount.self) { _, context, transaction in
            let account = try context.requireCaller().account
            for number in 0..<320 {
                _ = try transaction.put(
                    ScopeName(account, ItemName("s\(number)")),
                    [FeedItem(name: "i", deleted: false, digest: SetDigest(ofItem: [1]), size: 1, body: [1])])
            }
            return WireCreateAccountReply()
        }
        router.read(WireListAccounts.self) { _, context, transaction in
            _ = try transaction.scopeSizes(of: Owner(context.requireCaller().account))
            return WireListAccountsReply()
        }
        router.bulk(WireListApps.self) { _, context, _ in
            .read(Owner(try context.requireCaller().account))
        } read: { owner, feed in
            try feed.scopeSizes(of: owner).count
        } finish: {
            Frame([UInt8($0 % 256)])
        }
        router.bulk(WireListPlans.self) { _, _, _ in
            .read(0)
        } read: { _, feed -> Int in
            var count = 0
            try feed.query(Self.select, []) { _ in
                count += 1
                return true
            }
            throw CloudError(.constraintViolation, "Nothing came of it.", details: ["rows": "\(count)"])
        } finish: { _ in
            Frame([])
        }
    }
}

/// What is read costs its reader, whatever comes of it.
@Suite struct ReadCostTests {
    private func remaining(
        after request: some SwiftProtobuf.Message, _ guest: Guest, code: CloudError.Code? = nil
    ) throws -> Int {
        let reply = try guest.ask(request, to: .records)
        #expect(reply.code == code)
        return try #require(try guest.ask(WireListUsage(), to: .records).budget?.remaining)
    }

    @Test func whatIsReadCostsItsReaderAlsoWhereNothingCameOfIt() throws {
        var budgets = BudgetConfiguration()
        budgets.device = BudgetConfiguration.Limit(capacity: 2000, refillPerSecond: 1)
        let cloud = try TestCloud(seed: 3, budgets: budgets, factories: [.records: { _ in Library() }])
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        var left = try remaining(after: WireListPlans(), guest, code: .constraintViolation)
        // 1600 rows; and what the question how much is left costs.
        #expect((1880...1900).contains(left))
        left = try remaining(after: WireCreateAccount(), guest)
        for request in [WireListAccounts(), WireListApps()] as [any SwiftProtobuf.Message] {
            let before = left
            left = try remaining(after: request, guest)
            #expect((19...30).contains(before - left))
        }
    }
}
