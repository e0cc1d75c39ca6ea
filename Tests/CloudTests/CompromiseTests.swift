import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// What a single service in the wrong hands cannot do.
@Suite struct CompromiseTests {
    private func code(of body: () throws -> Void) -> CloudError.Code? {
        do { try body() } catch { return (error as? CloudError)?.code }
        return nil
    }

    @Test func aCompromisedServiceIsNeitherTheOperatorNorADeviceNorAnotherService() throws {
        let cloud = try TestCloud(seed: 3)
        defer { cloud.close() }
        try cloud.addDevice()
        let account = try #require(cloud.devices[0].session?.accountID)
        let thief = try cloud.makeClient(asService: .keyValue)

        // Not the operator.
        var lock = WireLockAccount()
        lock.accountName = TestCloud.accountName
        lock.locked = true
        #expect(
            code { try thief.call("LockAccount", lock, at: .requests(.identity), as: WireLockAccountReply.self) }
                == .permissionFailure)
        #expect(
            code {
                try thief.call(
                    "ListAccounts", WireListAccounts(), at: .requests(.identity), as: WireListAccountsReply.self)
            } == .permissionFailure)
        // Not a device: it has no token, and can make none.
        var devices = WireListDevices()
        devices.accountName = TestCloud.accountName
        #expect(
            code { try thief.call("ListDevices", devices, at: .requests(.identity), as: WireListDevicesReply.self) }
                == .notAuthenticated)
        // It speaks in the ledger for itself alone: the key decides who it is.
        var settle = WireSettleAllotment()
        settle.ownerID = account.rawValue
        settle.revision = 1
        settle.wantedBytes = 1_000_000
        try thief.call(
            "SettleAllotment", settle, at: .requests(.identity), as: WireSettleAllotmentReply.self)
        let book = try cloud.storage(of: .identity).write {
            try $0.all(SQL("SELECT DISTINCT service FROM allotments")) { $0.text(0) }
        }
        #expect(book == ["keyvalue"])
        // It cannot say that an account was closed which was not.
        var report = WireReportClosure()
        report.accountID = account.rawValue
        #expect(
            code { try thief.call("ReportClosure", report, at: .requests(.identity), as: WireReportClosureReply.self) }
                == .unknownItem)
    }

    @Test func whatAServicesEventsCarryIsForNotificationsAlone() throws {
        let cloud = try TestCloud(seed: 5)
        defer { cloud.close() }
        let relay = try cloud.makeListener(to: .keyValue)
        let thieves = try [ServiceName.documents, .records, .identity].map {
            try cloud.makeListener(to: .keyValue, as: $0)
        }
        let curious = try cloud.makeListener(to: .identity, as: .records)
        cloud.network.run(for: .seconds(5))
        try cloud.addDevice()
        try cloud.devices[0].store?.set("only-ann-may-read-this", forKey: "diary")
        #expect(cloud.settle())
        #expect("\(relay.events)".contains("only-ann-may-read-this"))
        #expect(thieves.allSatisfy { $0.events.isEmpty })
        // Identity's facts are for all.
        try cloud.revoke(cloud.devices[0])
        cloud.network.run(for: .seconds(5))
        #expect(!curious.events.isEmpty)
    }

    @Test func aServicesFeedTellsOthersThatSomethingChangedAndNotWhat() throws {
        let cloud = try TestCloud(seed: 4)
        defer { cloud.close() }
        try cloud.addDevice()
        try cloud.devices[0].store?.set("only-ann-may-read-this", forKey: "diary")
        #expect(cloud.settle())
        let account = try #require(cloud.devices[0].session?.accountID)
        let thief = try cloud.makeClient(asService: .records)
        var read = WireReadChanges()
        read.partition = UInt32(ScopeName(account, "").partition)
        let reply: WireReadChangesReply = try thief.call("ReadChanges", read, at: .requests(.keyValue))
        #expect(reply.changes.map(\.item) == ["\(account.rawValue)/default"])
        let head = try WireScopeHead(serializedBytes: reply.changes[0].body)
        #expect(head.scope == "default" && head.token.sequence == 1)
        #expect(!"\(reply)".contains("diary"))
        // Without a token it cannot read what changed.
        read.scope = "default"
        read.owner = account.rawValue
        #expect(
            code { try thief.call("ReadChanges", read, at: .requests(.keyValue), as: WireReadChangesReply.self) }
                == .permissionFailure)
    }
}
