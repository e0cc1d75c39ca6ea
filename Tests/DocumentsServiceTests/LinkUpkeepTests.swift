import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Links that have ended go by themselves, whatever happens to others meanwhile, and give back what they used.
@Suite struct LinkUpkeepTests {
    private let house: ContainerHouse

    init() throws {
        house = try ContainerHouse(linksMax: 700)
        try house.cloud.createAccount("other")
        try house.cloud.createAccount("third")
    }

    private func wait(_ duration: Duration) { house.cloud.network.run(for: duration) }

    private func write(_ statement: String, _ values: [SQLValue] = []) throws {
        let sql = SQL(statement)
        _ = try house.cloud.storage(of: .documents).write { try $0.execute(sql, values) }
    }

    private static let open = SQL("SELECT COUNT(*) FROM document_links WHERE expires > 0")

    private func openLinks() throws -> Int {
        try house.cloud.storage(of: .documents).write { try $0.first(Self.open) { Int($0.integer(0)) } ?? 0 }
    }

    private func restart() throws {
        house.cloud.crash(.documents)
        house.cloud.network.crash("documents bulk")
        wait(.seconds(1))
        try house.cloud.start(.documents)
        wait(.seconds(1))
    }

    /// Two devices of two accounts: the one whose rows come first, and the other.
    private func inOrder(apps: (String, String) = (ContainerHouse.app, ContainerHouse.app)) throws -> [ContainerDevice]
    {
        let one = try house.device(app: apps.0)
        let two = try house.device(app: apps.1, account: "other")
        return [one, two].sorted {
            let (left, right) = ($0.mover.account, $1.mover.account)
            return (ScopeName(left, "").partition, left.rawValue) < (ScopeName(right, "").partition, right.rawValue)
        }
    }

    /// The wrong secret file, say, for an hour: what the links use is not known then, and is not lost.
    @Test func aKeyThatDoesNotOpenKeepsItsLinksAndNobodyElses() throws {
        let devices = try inOrder()
        let files = try devices.map { try $0.makeFile("a", "12345") }
        for (device, file) in zip(devices, files) { try device.publish(file, seconds: 10) }
        let revoked = try devices[0].publish(files[0])
        #expect(try used(devices[0]) == 15 && used(devices[1]) == 10)
        let owner = SQLValue.text(devices[0].mover.account.rawValue)
        let select = SQL("SELECT wrapped FROM owner_keys WHERE owner = ?1")
        let wrapped = try house.cloud.storage(of: .documents).write { try $0.first(select, [owner]) { $0.blob(0) } }
        try write("UPDATE owner_keys SET master_key_id = 'other', wrapped = zeroblob(60) WHERE owner = ?1", [owner])
        try restart()
        wait(.seconds(330))
        #expect(try house.linkRows() == 2)
        #expect(try used(devices[0]) == 15 && used(devices[1]) == 5)
        // To revoke one needs no key.
        #expect(try devices[0].revoke(revoked))
        #expect(try house.get(revoked).isGone)
        try write("UPDATE owner_keys SET wrapped = ?2 WHERE owner = ?1", [owner, .blob(try #require(wrapped))])
        try restart()
        wait(.seconds(330))
        #expect(try house.linkRows() == 0)
        #expect(try used(devices[0]) == 5)
    }

    /// Without what items, versions and links count besides contents.
    private static let selectUsed = SQL(
        """
        SELECT used - (SELECT COALESCE(SUM(counted), 0) FROM document_items WHERE owner = ?1)
            - (SELECT COALESCE(SUM(counted), 0) FROM document_versions WHERE owner = ?1)
            - (SELECT COALESCE(SUM(counted), 0) FROM document_links WHERE owner = ?1)
        FROM storage_owners WHERE owner_id = ?1
        """)

    private func used(_ device: ContainerDevice) throws -> Int64 {
        try house.cloud.storage(of: .documents).write {
            try $0.first(Self.selectUsed, [.text(device.mover.account.rawValue)]) { $0.integer(0) } ?? 0
        }
    }

    /// What is rolled back is looked at again, and not passed over.
    @Test func linksOfAStepThatFailedAreEndedByTheNext() throws {
        let here = try house.device()
        try here.publish(here.makeFile("a"))
        wait(.seconds(5))
        try house.cloud.storage(of: .documents).migrate([
            Migration(
                name: "damage",
                statements: [
                    """
                    CREATE TRIGGER refusal BEFORE UPDATE ON document_links
                    BEGIN SELECT RAISE(ABORT, 'refused'); END
                    """
                ])
        ])
        try house.removeApp()
        wait(.seconds(5))
        #expect(try openLinks() == 1)
        try write("DROP TRIGGER refusal")
        wait(.seconds(310))
        #expect(try openLinks() == 0)
    }

    /// Accounts are locked and unlocked all the time.
    @Test func whateverBecomesOfAccountsTheLastLinkOfAllHasItsTurn() throws {
        let devices = try inOrder()
        let file = try devices[0].makeFile("a")
        for _ in 0..<700 { try devices[0].publish(file) }
        try devices[1].publish(devices[1].makeFile("a"))
        wait(.seconds(5))
        try house.removeApp()
        var changes = 0
        while try openLinks() > 0, changes < 300 {
            var request = WireLockAccount()
            request.accountName = "third"
            request.locked = changes % 2 == 0
            try house.cloud.operate("LockAccount", request, as: WireLockAccountReply.self)
            changes += 1
        }
        #expect(try openLinks() == 0, "\(changes)")
    }
}
