import NephosBulk
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// A house whose container has a public database, several accounts, one of which is the container's administrator, and
/// devices without an account.
final class PublicHouse {
    static let administrator = "admin"
    static let other = "bert"

    let house: RecordHouse
    var cloud: TestCloud { house.cloud }

    init(
        seed: UInt64 = 1, budgets: BudgetConfiguration = .unlimited,
        configuration: Transfers.Configuration = Transfers.Configuration()
    ) throws {
        house = try RecordHouse(seed: seed, budgets: budgets, configuration: configuration)
        try cloud.createAccount(Self.administrator)
        try cloud.createAccount(Self.other)
        var request = WireSaveContainer()
        request.definition.containerID = RecordHouse.container
        request.administrators.accountNames = [Self.administrator]
        try cloud.operate("SaveContainer", request, as: WireSaveContainerReply.self)
        // The services hear of it.
        cloud.network.run(for: .seconds(1))
    }

    /// A device, of the public database.
    func device(_ account: String = TestCloud.accountName, app: String = RecordHouse.app) throws -> RecordDevice {
        try house.device(app: app, account: account).ofPublic()
    }

    func makeAppToken(
        app: String = RecordHouse.app, container: String = ""
    ) throws -> WireCreateAppTokenReply {
        var request = WireCreateAppToken()
        (request.appID, request.containerID) = (app, container)
        return try cloud.operate("CreateAppToken", request)
    }

    func publicToken(_ secret: String, by client: TestClient) throws -> WireIssuePublicTokenReply {
        var request = WireIssuePublicToken()
        request.secret = secret
        return try client.call("IssuePublicToken", request, at: .requests(.identity))
    }

    /// A device without an account.
    ///
    /// - Parameter other: From whose address it comes; nil: from one of its own.
    func stranger(_ secret: String? = nil, besides other: RecordDevice? = nil) throws -> RecordDevice {
        let client = try other.map { try cloud.makeClient(besides: $0.client) } ?? cloud.makeClient()
        let reply = try publicToken(try secret ?? makeAppToken().secret, by: client)
        return RecordDevice(
            house, client, token: reply.accessToken.token, owner: reply.accessToken.app.containerOwners[0])
    }

    /// Says who may do what with records of a type.
    @discardableResult
    func setRoles(
        of type: String, creator: WireRecordRights = .reading(write: true), signedIn: WireRecordRights = .creating,
        everyone: WireRecordRights = .reading(), by device: RecordDevice? = nil
    ) throws -> WireRecordRoles {
        var request = WireModifyRecordRoles()
        request.container = RecordHouse.container
        var roles = WireRecordTypeRoles()
        (roles.type, roles.creator, roles.signedIn, roles.everyone) = (type, creator, signedIn, everyone)
        request.save = [roles]
        let device = try device ?? self.device(Self.administrator)
        let reply = try device.call("ModifyRecordRoles", request, as: WireModifyRecordRolesReply.self).roles
        // The feed is brought in line.
        cloud.network.run(for: .seconds(5))
        return reply
    }
}

extension WireRecordRights {
    static let none = WireRecordRights()
    static let creating: WireRecordRights = {
        var rights = WireRecordRights()
        rights.create = true
        return rights
    }()

    static func reading(create: Bool = false, write: Bool = false) -> WireRecordRights {
        var rights = WireRecordRights()
        (rights.create, rights.read, rights.write) = (create, true, write)
        return rights
    }
}

extension RecordDevice {
    /// Names of the records that a query finds, and all that was said of it.
    func find(
        _ predicate: String = "", type: String = "", limit: UInt32 = 0, explain: Bool = false
    ) throws -> (names: [String], replies: [WireQueryRecordsReply]) {
        var request = WireQueryRecords()
        (request.container, request.zoneID, request.database) = (container, zone, database)
        (request.type, request.predicate, request.limit) = (type, predicate, limit)
        (request.scan, request.explain) = (true, explain)
        var replies: [WireQueryRecordsReply] = []
        repeat {
            let reply = try call("QueryRecords", request, as: WireQueryRecordsReply.self)
            request.after = reply.after
            replies.append(reply)
        } while !request.after.isEmpty
        return (replies.flatMap { $0.records.map(\.item) }, replies)
    }

    /// What has changed in the zone after a token: each record, and whether it is gone.
    func changes(after token: WireChangeToken = WireChangeToken()) throws -> (
        gone: [String: Bool], token: WireChangeToken, reply: WireReadChangesReply
    ) {
        var request = WireReadChanges()
        request.scope = "\(container)/\(zone)"
        request.owner = database == .public ? Owner(AppID(owner)).rawValue : ""
        request.after = token
        let reply = try call("ReadChanges", request, as: WireReadChangesReply.self)
        return (Dictionary(reply.changes.map { ($0.item, $0.deleted) }) { $1 }, reply.token, reply)
    }
}
