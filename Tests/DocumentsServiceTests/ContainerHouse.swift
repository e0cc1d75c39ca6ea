import Foundation
import NephosBulk
import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// A cloud with an app that has containers, and devices that change them.
final class ContainerHouse {
    static let app = "T.letters"
    static let container = "T.letters"

    let cloud: TestCloud
    private let folder: String

    /// - Parameters:
    ///   - linksMax: Links of an account; nil: nothing is published.
    ///   - streamBytesMax: What an account may have in streams, in bytes.
    ///   - engine: Documents' database; nil: in memory.
    ///   - wrap: What documents has for its store.
    init(
        seed: UInt64 = 1, linksMax: Int? = nil, streamBytesMax: Int? = nil, budgets: BudgetConfiguration = .unlimited,
        storageTurns: StorageTurns = .ofEnvironment, engine: SQLiteEngine? = nil, log: LogLines? = nil,
        wrapping wrap: (SegmentStore) -> any BlobStore = { $0 }
    ) throws {
        folder = NSTemporaryDirectory() + "container-tests-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        cloud = try TestCloud(
            seed: seed, budgets: budgets, engines: engine.map { [.documents: $0] } ?? [:],
            content: ContentOptions(
                store: wrap(try SegmentStore(folder: folder, segmentBytesMax: 1 << 20)), linksMax: linksMax,
                streamBytesMax: streamBytesMax),
            storageTurns: storageTurns, logger: log?.logger)
        try createApp(Self.app, [Self.container, "T.shared"])
        try createApp("T.other", ["T.elsewhere", "T.shared"])
    }

    private func createApp(_ id: String, _ containers: [String]) throws {
        var app = WireApp()
        app.appID = id
        app.containerIds = containers
        try cloud.createApp(app)
    }

    deinit {
        cloud.close()
        try? FileManager.default.removeItem(atPath: folder)
    }

    /// Changes the last byte of each segment: a chunk's.
    func damageSegments() throws { try SegmentDamage.damageAll(in: folder) }

    func device(app: String = ContainerHouse.app, account: String = TestCloud.accountName) throws -> ContainerDevice {
        ContainerDevice(self, try TestBulk(of: cloud, account: account, app: app))
    }
}

/// A device that changes containers, at documents' real door.
final class ContainerDevice {
    let mover: TestBulk
    private let house: ContainerHouse
    var container = ContainerHouse.container { didSet { mover.container = container } }

    init(_ house: ContainerHouse, _ mover: TestBulk) {
        self.house = house
        self.mover = mover
    }

    /// Lets time pass until it holds, for two minutes at most.
    func run(until condition: () -> Bool) { _ = house.cloud.network.run(within: .seconds(120), until: condition) }

    // MARK: Requests

    @discardableResult
    func call<Request: SwiftProtobuf.Message, Reply: SwiftProtobuf.Message>(
        _ method: String, _ request: Request, id: OperationID? = nil, as reply: Reply.Type
    ) throws -> Reply {
        try mover.client.call(
            method, request, at: .requests(.documents), accessToken: mover.accessToken, id: id, as: reply)
    }

    /// As far as it has heard.
    private var head = WireChangeToken()

    @discardableResult
    func apply(
        _ changes: [WireDocumentChange], nodes: [[UInt8]] = [], upload: [UInt8] = [], source: String = "",
        if conditions: [WireItemCondition] = [], id: OperationID? = nil
    ) throws -> WireApplyChangesReply {
        var request = WireApplyChanges()
        request.container = container
        request.changes = changes
        request.nodes = nodes.map { Data($0) }
        request.transferID = Data(upload)
        request.sourceContainer = source
        request.head = head
        request.conditions = conditions
        let reply = try call("ApplyChanges", request, id: id, as: WireApplyChangesReply.self)
        head = reply.token
        return reply
    }

    /// Everything in the container, by id.
    func list() throws -> [DocumentID: WireDocumentItem] {
        var request = WireReadChanges()
        request.scope = container
        let reply = try call("ReadChanges", request, as: WireReadChangesReply.self)
        var items: [DocumentID: WireDocumentItem] = [:]
        var digest = SetDigest.empty
        for change in reply.changes where !change.deleted {
            let id = try #require(DocumentID(ItemName(change.item)))
            items[id] = try WireDocumentItem(serializedBytes: change.body)
            digest.add(
                SetDigest(ofItem: [UInt8](reply.digestKey) + [UInt8](change.item.utf8) + [0] + [UInt8](change.body)))
        }
        #expect(reply.digest.isEmpty && items.isEmpty || Data(digest.bytes) == reply.digest)
        return items
    }

    /// What the folder holds, by name.
    func names(in folder: DocumentID = .documents) throws -> [String: DocumentID] {
        let items = try list().filter { !$0.value.hasTrash && DocumentID(bytes: $0.value.parent) == folder }
        return Dictionary(items.map { (String(decoding: $0.value.name, as: UTF8.self), $0.key) }) { $1 }
    }

    func item(_ id: DocumentID) throws -> WireDocumentItem { try #require(try list()[id]) }

    func versions(of id: DocumentID) throws -> [WireDocumentContent] {
        var request = WireListVersions()
        request.container = container
        request.item = Data(id.bytes)
        return try call("ListVersions", request, as: WireListVersionsReply.self).versions
    }

    // MARK: Changes

    /// Makes a folder.
    @discardableResult
    func makeFolder(_ name: String, in folder: DocumentID = .documents) throws -> DocumentID {
        let id = Self.makeID()
        try apply([.create(id, name, in: folder)])
        return id
    }

    /// Makes a file with these bytes.
    @discardableResult
    func makeFile(_ name: String, in folder: DocumentID = .documents, _ text: String = "text") throws -> DocumentID {
        let id = Self.makeID()
        try apply([.create(id, name, in: folder, .inline(text))])
        return id
    }

    static func makeID() -> DocumentID {
        var generator = SystemRandomNumberGenerator()
        return DocumentID.random(using: &generator)
    }
}

extension WireDocumentContent {
    static func inline(_ text: String, base: Data = Data(), version: DocumentID = ContainerDevice.makeID()) -> Self {
        var content = WireDocumentContent()
        content.version = Data(version.bytes)
        content.base = base
        content.inline = Data(text.utf8)
        content.length = UInt64(text.utf8.count)
        return content
    }

    var text: String { String(decoding: inline, as: UTF8.self) }
}

extension WireDocumentChange {
    private static func make(_ item: DocumentID, _ set: (inout WireDocumentChange) -> Void) -> Self {
        var change = WireDocumentChange()
        change.item = Data(item.bytes)
        set(&change)
        return change
    }

    /// - Parameter content: Nil: it is a folder.
    static func create(
        _ id: DocumentID, _ name: String, in folder: DocumentID = .documents, _ content: WireDocumentContent? = nil,
        clash: WireNameClash = .refuse, place: DocumentID = ContainerDevice.makeID()
    ) -> Self {
        create(id, Data(name.utf8), in: folder, content, clash: clash, place: place)
    }

    static func create(
        _ id: DocumentID, _ name: Data, in folder: DocumentID, _ content: WireDocumentContent? = nil,
        clash: WireNameClash = .refuse, place: DocumentID = ContainerDevice.makeID()
    ) -> Self {
        make(id) {
            $0.create.kind = content == nil ? .folder : .file
            $0.create.parent = Data(folder.bytes)
            $0.create.name = name
            $0.create.placeVersion = Data(place.bytes)
            if let content { $0.create.content = content }
            $0.create.clash = clash
        }
    }

    static func replace(_ id: DocumentID, _ content: WireDocumentContent, failOnConflict: Bool = false) -> Self {
        make(id) {
            $0.replace.content = content
            $0.replace.failOnConflict = failOnConflict
        }
    }

    static func place(
        _ id: DocumentID, _ name: String, in folder: DocumentID, base: Data = Data(), clash: WireNameClash = .refuse,
        place: DocumentID = ContainerDevice.makeID()
    ) -> Self {
        make(id) {
            $0.place.parent = Data(folder.bytes)
            $0.place.name = Data(name.utf8)
            $0.place.placeVersion = Data(place.bytes)
            $0.place.base = base
            $0.place.clash = clash
        }
    }

    static func trash(
        _ id: DocumentID, base: Data = Data(), seen: WireChangeToken? = nil, changed: [DocumentID: [Data]] = [:]
    ) -> Self {
        make(id) {
            $0.trash.batch = Data(ContainerDevice.makeID().bytes)
            $0.trash.base = base
            if let seen { $0.trash.seen = seen }
            $0.trash.changed = changed.map { id, versions in
                var item = WireSeenItem()
                item.item = Data(id.bytes)
                item.versions = versions
                return item
            }
        }
    }

    static func restore(_ id: DocumentID, clash: WireNameClash = .refuse) -> Self {
        make(id) { $0.restore.clash = clash }
    }
    /// - Parameter batch: What it was deleted with; empty: whatever.
    static func remove(_ id: DocumentID, batch: Data = Data()) -> Self { make(id) { $0.remove.batch = batch } }
    static func resolve(_ id: DocumentID, _ versions: [Data]) -> Self { make(id) { $0.resolve.versions = versions } }
    static func announce(_ id: DocumentID, _ version: Data, length: UInt64) -> Self {
        make(id) {
            $0.announce.version = version
            $0.announce.length = length
        }
    }
    static func coming(_ items: [WireComingItem], from device: DeviceID) -> Self {
        make(.coming(from: device)) {
            var coming = WireAnnounceItems()
            coming.items = items
            $0.coming = coming
        }
    }
    static func attributes(_ id: DocumentID, _ set: (inout WireSetAttributes) -> Void) -> Self {
        make(id) { set(&$0.attributes) }
    }
}

extension WireComingItem {
    static func named(_ name: String, in folder: DocumentID = .documents) -> Self {
        var item = WireComingItem()
        item.item = Data(ContainerDevice.makeID().bytes)
        item.parent = Data(folder.bytes)
        item.name = Data(name.utf8)
        item.version = Data(ContainerDevice.makeID().bytes)
        item.length = 5_000_000
        return item
    }
}

extension WireItemCondition {
    static func make(_ item: DocumentID, _ kind: OneOf_Kind) -> Self {
        var condition = WireItemCondition()
        condition.item = Data(item.bytes)
        condition.kind = kind
        return condition
    }
}

extension WireExtendedAttribute {
    static func named(_ name: String, _ value: [UInt8]) -> Self {
        var attribute = WireExtendedAttribute()
        attribute.name = Data(name.utf8)
        attribute.value = Data(value)
        return attribute
    }
}

/// Expects a typed error.
func expect(_ code: CloudError.Code, _ body: () throws -> Void, _ location: SourceLocation = #_sourceLocation) {
    do {
        try body()
        Issue.record("Nothing was thrown.", sourceLocation: location)
    } catch {
        #expect((error as? CloudError)?.code == code, "\(error)", sourceLocation: location)
    }
}

/// What manifest nodes count: their bytes, and their rows.
func counted(_ nodes: [[UInt8]]) -> Int64 { Int64(nodes.reduce(0) { $0 + $1.count + DocumentLimits.rowBytes }) }
