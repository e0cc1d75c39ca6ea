import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// Who may do what with which database: every operation, by everyone, at the services' real doors. The page on security
/// has the very table that this makes.
@Suite struct AccessMatrixTests {
    /// Who asks.
    private enum Asker: String, CaseIterable {
        case creator = "its creator"
        case otherAccount = "other account"
        case administrator = "administrator"
        case listingApp = "app that lists it"
        case otherApp = "other app"
        case stranger = "without account"
    }

    private enum Operation: String, CaseIterable {
        case makeZone = "make a zone"
        case deleteZone = "delete a zone"
        case readDatabase = "`ReadChanges` of the database"
        case followDatabase = "`Subscribe` to the database"
        case create = "save a new record"
        case save = "save over the record"
        case delete = "delete the record"
        case fetch = "`FetchRecords`"
        case query = "`QueryRecords`"
        case read = "`ReadChanges`"
        case follow = "`Subscribe`"
        case history = "`ListRecordHistory`"
        case makeIndex = "`ModifyRecordIndexes`"
        case listIndexes = "`ListRecordIndexes`"
        case setRoles = "`ModifyRecordRoles`"
        case listRoles = "`ListRecordRoles`"
    }

    /// What came of it.
    private enum Outcome {
        case done
        /// It was taken for the caller's own database, and this one saw nothing of it.
        case elsewhere
        case refused(CloudError.Code)

        var text: String {
            switch self {
            case .done: "yes"
            case .elsewhere: "own"
            case .refused(let code): "\(code)"
            }
        }
    }

    /// One house, its people, and what each of them asks with.
    private final class Scene {
        let house: PublicHouse
        let isPublic: Bool
        let devices: [Asker: RecordDevice]
        let creator: RecordDevice

        init(isPublic: Bool) throws {
            self.isPublic = isPublic
            house = try PublicHouse()
            let container = "T.shared"
            creator = try house.house.device()
            var request = WireSaveContainer()
            request.definition.containerID = container
            request.administrators.accountNames = [PublicHouse.administrator]
            try house.cloud.operate("SaveContainer", request, as: WireSaveContainerReply.self)
            var stranded = WireApp()
            (stranded.appID, stranded.containerIds) = ("T.stranded", ["T.alone"])
            try house.cloud.createApp(stranded)
            house.cloud.network.run(for: .seconds(1))
            var devices: [Asker: RecordDevice] = [
                .creator: creator,
                .otherAccount: try house.house.device(account: PublicHouse.other),
                .administrator: try house.house.device(account: PublicHouse.administrator),
                .listingApp: try house.house.device(app: "T.other"),
                .otherApp: try house.house.device(app: "T.stranded"),
            ]
            let token = try house.makeAppToken(container: container)
            devices[.stranger] = try house.stranger(token.secret)
            for device in devices.values {
                (device.container, device.owner) = (container, RecordHouse.app)
                device.database = isPublic ? .public : .private
            }
            self.devices = devices
        }

        /// As which owner the database's scopes are asked for.
        var owner: String {
            isPublic ? Owner(AppID(RecordHouse.app)).rawValue : creator.mover.account.rawValue
        }
    }

    private func outcome(_ operation: Operation, _ actor: Asker, in scene: Scene) throws -> Outcome {
        let device = try #require(scene.devices[actor])
        let name = "\(operation)-\(actor)"
        let base = try scene.creator.save(name, ["n": .integer(1)])
        do {
            return try perform(operation, on: name, base, device, scene) ? .done : .elsewhere
        } catch { return .refused(CloudError(wrapping: error).code) }
    }

    private func perform(
        _ operation: Operation, on name: String, _ base: Data, _ device: RecordDevice, _ scene: Scene
    ) throws -> Bool {
        let creator = scene.creator
        let zone = "\(device.container)/\(device.zone)"
        switch operation {
        case .makeZone:
            try device.makeZone(name)
            return try creator.zones()[name] != nil
        case .deleteZone:
            let mine = scene.isPublic ? nil : try creator.makeZone(name)
            try device.deleteZone(name)
            return try mine != nil && creator.zones()[name] == nil
        case .readDatabase:
            if !scene.isPublic { try creator.makeZone(name) }
            var request = WireReadChanges()
            (request.owner, request.scope) = (scene.owner, device.container)
            let reply = try device.call("ReadChanges", request, as: WireReadChangesReply.self)
            return reply.changes.contains { $0.item == name }
        case .followDatabase:
            var scope = WireSubscribedScope()
            (scope.service, scope.owner, scope.scope) = (
                ServiceName.records.rawValue, scene.owner, device.container
            )
            var request = WireSubscribe()
            request.scopes = [scope]
            try device.client.call(
                "Subscribe", request, at: .subscriptions, accessToken: device.accessToken, as: WireSubscribeReply.self)
            guard !scene.isPublic else { return false }
            let before = device.client.notifications.count
            try (device === creator ? scene.devices[.listingApp] ?? creator : creator).makeZone(name)
            scene.house.cloud.network.run(for: .seconds(1))
            return device.client.notifications.count > before
        case .create:
            try device.save(name + "-new")
            return try creator.fetch([name + "-new"]).count == 1
        case .save:
            // Whatever it has become: in another database it is made.
            try device.save(name, ["n": .integer(2)], base: base, policy: .changedKeys)
            return try creator.fetch([name])[name]?["n"] == .integer(2)
        case .delete:
            try device.delete(name)
            return try creator.fetch([name]).isEmpty
        case .fetch: return try device.fetch([name]).count == 1
        case .query: return try device.find().names.contains(name)
        case .read:
            var request = WireReadChanges()
            (request.owner, request.scope) = (scene.owner, zone)
            let reply = try device.call("ReadChanges", request, as: WireReadChangesReply.self)
            return reply.changes.contains { $0.item == name }
        case .follow:
            var scope = WireSubscribedScope()
            (scope.service, scope.owner, scope.scope) = (ServiceName.records.rawValue, scene.owner, zone)
            var request = WireSubscribe()
            request.scopes = [scope]
            try device.client.call(
                "Subscribe", request, at: .subscriptions, accessToken: device.accessToken, as: WireSubscribeReply.self)
            let before = device.client.notifications.count
            try (device === creator ? scene.devices[.listingApp] ?? creator : creator).save(name + "-told")
            scene.house.cloud.network.run(for: .seconds(1))
            return device.client.notifications.count > before
        case .history:
            // What was overwritten of the creator's.
            try creator.save(name, ["n": .integer(3)], policy: .allKeys)
            return try !device.history(of: name).isEmpty
        case .makeIndex:
            var index = WireRecordIndex()
            index.type = "T" + String(abs(name.hashValue))
            var field = WireIndexedField()
            field.field = "n"
            index.fields = [field]
            var request = WireModifyRecordIndexes()
            (request.container, request.database, request.save) = (device.container, device.database, [index])
            try device.call("ModifyRecordIndexes", request, as: WireModifyRecordIndexesReply.self)
            (request.save, request.delete) = ([], [index])
            let listed = try indexes(creator)
            try device.call("ModifyRecordIndexes", request, as: WireModifyRecordIndexesReply.self)
            scene.house.cloud.network.run(for: .seconds(2))
            return listed.contains(index.type)
        case .listIndexes:
            let mark = try makeMark(scene)
            return try indexes(device).contains(mark)
        case .setRoles:
            var request = WireModifyRecordRoles()
            request.container = device.container
            try device.call("ModifyRecordRoles", request, as: WireModifyRecordRolesReply.self)
            return true
        case .listRoles:
            var request = WireListRecordRoles()
            request.container = device.container
            try device.call("ListRecordRoles", request, as: WireListRecordRolesReply.self)
            return true
        }
    }

    private func indexes(_ device: RecordDevice) throws -> [String] {
        var request = WireListRecordIndexes()
        (request.container, request.database) = (device.container, device.database)
        return try device.call("ListRecordIndexes", request, as: WireListRecordIndexesReply.self).indexes
            .map(\.index.type)
    }

    /// An index of the database that is asked about.
    private func makeMark(_ scene: Scene) throws -> String {
        var index = WireRecordIndex()
        index.type = "Mark"
        var request = WireModifyRecordIndexes()
        let maker = try #require(scene.devices[scene.isPublic ? .administrator : .creator])
        (request.container, request.database, request.save) = (maker.container, maker.database, [index])
        try maker.call("ModifyRecordIndexes", request, as: WireModifyRecordIndexesReply.self)
        return index.type
    }

    private func table(isPublic: Bool) throws -> String {
        let scene = try Scene(isPublic: isPublic)
        let title = isPublic ? "public database" : "private database"
        var lines = ["| \(title) | " + Asker.allCases.map(\.rawValue).joined(separator: " | ") + " |"]
        lines.append(String(repeating: "| --- ", count: Asker.allCases.count + 1) + "|")
        for operation in Operation.allCases {
            if !isPublic, operation == .setRoles || operation == .listRoles { continue }
            let cells = try Asker.allCases.map { try outcome(operation, $0, in: scene).text }
            lines.append("| \(operation.rawValue) | " + cells.joined(separator: " | ") + " |")
        }
        return lines.joined(separator: "\n")
    }

    @Test(arguments: [false, true]) func everyOperationByEveryoneIsAsThePageOnSecuritySays(isPublic: Bool) throws {
        let made = try table(isPublic: isPublic)
        let page = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "docs/security.md")
        let text = try String(contentsOf: page, encoding: .utf8)
        #expect(text.contains(made), "docs/security.md does not have this table:\n\(made)")
    }
}
