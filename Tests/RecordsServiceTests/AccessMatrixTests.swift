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
        case findMissing = "`FindMissing` of its assets"
        case openUpload = "`OpenTransfer` to store assets for it"
        case storeNodes = "`StoreNodes` for it"
        case saveAsset = "save a new record with an asset"
        case fetchAsset = "fetch the bytes of its asset"
        case readNodes = "`ReadNodes` of its asset"
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
        if let asset = Self.asset(of: operation, actor) {
            do { return try perform(operation, on: name, asset, device, scene) ? .done : .elsewhere } catch {
                return .refused(CloudError(wrapping: error).code)
            }
        }
        do {
            return try perform(operation, on: name, base, device, scene) ? .done : .elsewhere
        } catch { return .refused(CloudError(wrapping: error).code) }
    }

    /// An asset that nobody else has; nil: the operation is of none.
    private static func asset(of operation: Operation, _ actor: Asker) -> TestContent? {
        let ofAssets: [Operation] = [.findMissing, .openUpload, .storeNodes, .saveAsset, .fetchAsset, .readNodes]
        guard let place = ofAssets.firstIndex(of: operation), let asker = Asker.allCases.firstIndex(of: actor) else {
            return nil
        }
        return TestContent(seed: UInt64(10 * place + asker + 1), chunks: [5000, 6000])
    }

    private func perform(
        _ operation: Operation, on name: String, _ asset: TestContent, _ device: RecordDevice, _ scene: Scene
    ) throws -> Bool {
        let creator = scene.creator
        /// What was stored counts for the owner of the database, or for somebody else.
        func counts(_ body: () throws -> Void) throws -> Bool {
            let before = try scene.house.house.used(of: Owner(rawValue: scene.owner))
            try body()
            return try scene.house.house.used(of: Owner(rawValue: scene.owner)) > before
        }
        func close(_ upload: [UInt8]) throws {
            try device.close(upload, for: name)
            scene.house.cloud.network.run(for: .seconds(5))
        }
        func saveWithAsset() throws {
            let upload = try creator.store(asset, for: name)
            try creator.save(name, ["photo": .asset(asset.asset)], policy: .allKeys, upload: upload)
            try creator.close(upload, for: name)
            scene.house.cloud.network.run(for: .seconds(5))
        }
        switch operation {
        case .findMissing:
            try saveWithAsset()
            return try device.missing(asset.ids, for: name).isEmpty
        case .openUpload:
            var request = WireOpenTransfer()
            (request.container, request.transferID) = (device.content(of: name), RecordDevice.version())
            request.uploadBytes = 50_000
            let isCounted = try counts { try device.call("OpenTransfer", request, as: WireOpenTransferReply.self) }
            try close([UInt8](request.transferID))
            return isCounted
        case .storeNodes:
            var request = WireStoreNodes()
            (request.container, request.nodes) = (
                device.content(of: name, nodesOf: asset), asset.nodes.map { Data($0) }
            )
            var upload = [UInt8](RecordDevice.version())
            // Who may store nothing asks all the same.
            let isCounted = try counts {
                if let stored = try? device.store(asset, for: name, nodes: false) { upload = stored }
                request.transferID = Data(upload)
                try device.call("StoreNodes", request, as: WireStoreNodesReply.self)
            }
            try close(upload)
            return isCounted
        case .saveAsset:
            let new = name + "-new"
            let upload = try? device.store(asset, for: new)
            try device.save(new, ["photo": .asset(asset.asset)], upload: upload ?? [])
            if let upload { try device.close(upload, for: new) }
            scene.house.cloud.network.run(for: .seconds(5))
            return try creator.fetch([new]).count == 1
        case .fetchAsset:
            try saveWithAsset()
            return try device.fetch(asset.ids[0], of: name) == asset.chunks[0]
        default:
            try saveWithAsset()
            return try device.readNodes(asset, of: name) == asset.nodes
        }
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
            try device.deleteZone(name, id: mine ?? RecordDevice.zoneID())
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
        case .findMissing, .openUpload, .storeNodes, .saveAsset, .fetchAsset, .readNodes: return false
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
            .deletingLastPathComponent().appending(path: "docs/access.md")
        let text = try String(contentsOf: page, encoding: .utf8)
        #expect(text.contains(made), "docs/access.md does not have this table:\n\(made)")
    }
}
