import NephosBulk
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Rows that the disk has damaged stop nothing but themselves.
@Suite struct DamageTests {
    private func run(_ statement: String, _ values: [SQLValue], in house: BulkHouse) throws {
        let sql = SQL(statement)
        try house.cloud.storage(of: .documents).write { transaction in
            let count = try transaction.execute(sql, values)
            #expect(count > 0)
        }
    }

    private func store(_ number: UInt8, _ mover: TestBulk, _ house: BulkHouse) throws {
        let client = try mover.connect(BulkClient.Purpose(upload: upload(number), uploadBytes: 1 << 20))
        #expect(house.store([content(Int(number))], with: client).allSatisfy { $0.isSuccess })
    }

    private static let damages = [
        "id = X'01'", "id = X''", "id = zeroblob(100)", "owner_id = 'app/nobody', partition_number = -1",
        "filled = 9000000000000000000",
        "bytes = -5", "bytes = 9000000000000000000, filled = 9000000000000000000",
    ]

    /// Of those that are closed, and of those whose time is over.
    @Test(arguments: damages, [true, false])
    func aDamagedReservationStopsNoOthers(damage: String, isClosed: Bool) throws {
        let log = LogLines()
        var configuration = Transfers.Configuration()
        configuration.retention = .seconds(600)
        let house = try BulkHouse(configuration: configuration, log: log)
        try house.cloud.createAccount("other")
        let movers = try [TestBulk(of: house.cloud), TestBulk(of: house.cloud, account: "other")]
            .sorted { $0.account.rawValue < $1.account.rawValue }
        for mover in movers {
            try store(1, mover, house)
            try store(2, mover, house)
        }
        let ended = isClosed ? "0" : "expires - 1000"
        try run(
            "UPDATE storage_reservations SET \(damage), expires = \(ended) WHERE owner_id = ?1 AND id = ?2",
            [.text(movers[0].account.rawValue), .blob(upload(1))], in: house)
        if isClosed {
            for mover in movers { try house.close(mover, upload: upload(2)) }
            try house.close(movers[1], upload: upload(1))
        }
        house.cloud.network.run(for: .seconds(800))
        #expect(try house.used(by: movers[1].account) == 0)
        #expect(try house.chunkCount(of: movers[1].account) == 0)
        // The numbers of a row that is found by its id are made the best of.
        let isGone = damage.contains("filled") || damage.contains("bytes")
        #expect(try house.chunkCount(of: movers[0].account) == (isGone ? 0 : 1))
        #expect(log.count(of: "The row of a reservation is damaged") == (isGone ? 0 : 1))
        #expect(log.count(of: "could not be removed") == 0)
        // And the service takes more.
        try store(3, movers[0], house)
    }

    @Test(arguments: [Int64.max, .min]) func damagedCountsOfWhatAnUploadHoldsEndNothing(counted: Int64) throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store((0..<4).map { content($0) }, with: client).allSatisfy { $0.isSuccess })
        try run("UPDATE content_holds SET counted = ?1", [.integer(counted)], in: house)
        try house.close(mover, upload: upload(1))
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.chunkCount(of: mover.account) == 0)
        #expect(try house.used(by: mover.account) == 0)
    }

    @Test func anUploadWhoseRemovalFailsKeepsNoOtherWaiting() throws {
        let log = LogLines()
        var configuration = Transfers.Configuration()
        configuration.retention = .seconds(600)
        let house = try BulkHouse(configuration: configuration, log: log)
        try house.cloud.createAccount("other")
        let movers = try [TestBulk(of: house.cloud), TestBulk(of: house.cloud, account: "other")]
            .sorted { $0.account.rawValue < $1.account.rawValue }
        for mover in movers { try store(1, mover, house) }
        // Whatever is done to the first one's rows fails.
        try house.cloud.storage(of: .documents).migrate([
            Migration(
                name: "damage",
                statements: [
                    """
                    CREATE TRIGGER damage BEFORE DELETE ON content_holds WHEN old.owner = '\(movers[0].account.rawValue)'
                    BEGIN SELECT RAISE(ABORT, 'damaged'); END
                    """
                ])
        ])
        house.cloud.network.run(for: .seconds(800))
        #expect(try house.chunkCount(of: movers[1].account) == 0)
        #expect(try house.used(by: movers[1].account) == 0)
        #expect(try house.chunkCount(of: movers[0].account) == 1)
        #expect(log.count(of: "could not be removed") >= 1)
        #expect(log.count(of: "could not be removed") < 10)
    }
}
