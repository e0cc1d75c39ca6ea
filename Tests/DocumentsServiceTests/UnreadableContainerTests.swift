import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// One account's key does not open, or what is stored of one container is damaged: nothing that the service does by
/// itself waits for it, and it has its turn when it can be read again.
@Suite struct UnreadableContainerTests {
    private let house: ContainerHouse
    private let devices: [ContainerDevice]

    init() throws {
        house = try ContainerHouse(linksMax: 5)
        try house.cloud.createAccount("other")
        devices = [try house.device(), try house.device(account: "other")]
    }

    enum Damage: CaseIterable {
        case key, container

        var table: String { self == .key ? "owner_keys" : "feed_scopes" }
        var column: String { self == .key ? "wrapped" : "metadata" }
        var condition: String { self == .key ? "owner = ?1" : "id = ?1" }
    }

    private func value(of damage: Damage, _ key: SQLValue) throws -> [UInt8]? {
        let select = SQL("SELECT \(damage.column) FROM \(damage.table) WHERE \(damage.condition)")
        return try house.cloud.storage(of: .documents).write { try $0.first(select, [key]) { $0.blob(0) } }
    }

    private func set(_ damage: Damage, _ key: SQLValue, _ value: [UInt8]) throws {
        let update = SQL("UPDATE \(damage.table) SET \(damage.column) = ?2 WHERE \(damage.condition)")
        _ = try house.cloud.storage(of: .documents).write { try $0.execute(update, [key, .blob(value)]) }
        house.cloud.crash(.documents)
        house.cloud.network.crash("documents bulk")
        house.cloud.network.run(for: .seconds(1))
        try house.cloud.start(.documents)
        house.cloud.network.run(for: .seconds(1))
    }

    private static let count = SQL(
        """
        SELECT (SELECT COUNT(*) FROM document_trash WHERE owner = ?1)
            + (SELECT COUNT(*) FROM document_announcements WHERE owner = ?1)
            + (SELECT COUNT(*) FROM document_links WHERE owner = ?1)
        """)

    /// What is to go of a device's account.
    private func rows(_ device: ContainerDevice) throws -> Int64 {
        try house.cloud.storage(of: .documents).write {
            try $0.first(Self.count, [.text(device.mover.account.rawValue)]) { $0.integer(0) } ?? 0
        }
    }

    private func pass(days: Int) {
        house.cloud.skip(.seconds(days * 24 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(400))
    }

    @Test(arguments: Damage.allCases) func keepsNobodysWaiting(damage: Damage) throws {
        for device in devices {
            let file = try device.makeFile("a", "12345")
            try device.apply([.trash(file)])
            try device.publish(device.makeFile("b"), seconds: 3600)
            #expect(try rows(device) == 2)
        }
        let account = devices[0].mover.account
        let key: SQLValue
        switch damage {
        case .key: key = .text(account.rawValue)
        case .container: key = .integer(try scope(of: account))
        }
        let whole = try #require(try value(of: damage, key))
        try set(damage, key, whole.prefix(1) + Array(repeating: 7, count: whole.count - 1))
        pass(days: 31)
        #expect(try rows(devices[0]) == 2)
        #expect(try rows(devices[1]) == 0)
        try set(damage, key, whole)
        pass(days: 2)
        #expect(try rows(devices[0]) == 0)
    }

    /// What had its time first cannot be ended; who comes after it has its turn all the same, in the same round.
    @Test func whatCannotBeEndedKeepsNobodysWaiting() throws {
        for device in devices { try device.apply([.trash(try device.makeFile("a", "12345"))]) }
        let damaged = devices[0].mover.account.rawValue
        let storage = try house.cloud.storage(of: .documents)
        try storage.migrate([
            Migration(
                name: "damage",
                statements: [
                    """
                    CREATE TRIGGER damage BEFORE DELETE ON document_trash WHEN OLD.owner = '\(damaged)'
                    BEGIN SELECT RAISE(ABORT, 'damaged'); END
                    """
                ])
        ])
        pass(days: 31)
        #expect(try devices.map(rows) == [1, 0])
        let before = try groups()
        house.cloud.network.run(for: .seconds(600))
        #expect(try groups() - before < 200)
        try storage.migrate([Migration(name: "mended", statements: ["DROP TRIGGER damage"])])
        house.cloud.network.run(for: .seconds(7200))
        #expect(try devices.map(rows) == [0, 0])
    }

    private static let insertRemoval = SQL(
        """
        INSERT INTO document_removals (partition_number, owner, container, folder)
        SELECT DISTINCT partition_number, owner, ?2, ?3 FROM document_items WHERE owner = ?1
        """)
    private static let countRemovals = SQL("SELECT container, COUNT(*) FROM document_removals GROUP BY container")

    private func groups() throws -> UInt64 {
        let health: WireCheckHealthReply = try devices[1].mover.client.call(
            "CheckHealth", WireCheckHealth(), at: .requests(.documents))
        return health.counters["groups"] ?? 0
    }

    /// Neither other containers of the same owner, nor do they keep the service busy.
    @Test func removalsOfOneKeepNobodysWaiting() throws {
        try devices[0].makeFile("a")
        let account = devices[0].mover.account
        let scope = SQLValue.integer(try scope(of: account))
        let whole = try #require(try value(of: .container, scope))
        try set(.container, scope, [7] + whole.dropFirst())
        let (damaged, other) = (ContainerHouse.container, "zzz")
        _ = try house.cloud.storage(of: .documents).write { transaction in
            for (container, count) in [(damaged, 70), (other, 1)] {
                for _ in 0..<count {
                    try transaction.execute(
                        Self.insertRemoval,
                        [.text(account.rawValue), .text(container), .blob(ContainerDevice.makeID().bytes)])
                }
            }
        }
        house.cloud.network.run(for: .seconds(100))
        let left = try house.cloud.storage(of: .documents).write {
            try $0.all(Self.countRemovals, []) { ($0.text(0), $0.integer(1)) }
        }
        #expect(left.map(\.0) == [damaged] && left.map(\.1) == [70])
        let before = try groups()
        house.cloud.network.run(for: .seconds(600))
        #expect(try groups() - before < 200)
        try set(.container, scope, whole)
        house.cloud.network.run(for: .seconds(100))
        #expect(
            try house.cloud.storage(of: .documents).write { try $0.all(Self.countRemovals, []) { $0.text(0) } }.isEmpty)
    }

    private static let scopes = SQL("SELECT id FROM feed_scopes WHERE owner = ?1 AND LENGTH(metadata) > 0")

    private func scope(of account: AccountID) throws -> Int64 {
        try #require(
            try house.cloud.storage(of: .documents).write {
                try $0.first(Self.scopes, [.text(account.rawValue)]) { $0.integer(0) }
            })
    }
}
