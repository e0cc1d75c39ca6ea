import Foundation
import NephosBulk
import NephosBus
import NephosChunks
import NephosCore
import NephosServiceKit
import NephosStorage
import NephosWire
import SwiftProtobuf
import Synchronization

@testable import NephosKit

/// Documents as small as they can be: no limits, no history, names compared by bytes. What holds the chunks is real.
final class SmallDocuments: CloudService {
    static let digestKey: [UInt8] = [7, 7, 7]

    let name = ServiceName.documents
    var migrations: [Migration] { Transfers.migrations }
    private let transfers: Transfers
    /// Chunks and nodes that containers have, and the nodes' bytes.
    private var held: Set<ChunkID> = []
    private var nodes: [ChunkID: Data] = [:]
    private var versions: [Data: [WireDocumentContent]] = [:]

    /// What the next changes are answered with.
    private let troubles: Troubles

    final class Troubles: Sendable {
        private let left = Mutex<[CloudError]>([])

        func add(_ error: CloudError) { left.withLock { $0.append(error) } }
        func next() -> CloudError? { left.withLock { $0.isEmpty ? nil : $0.removeFirst() } }
    }

    init(_ transfers: Transfers, _ troubles: Troubles) {
        self.transfers = transfers
        self.troubles = troubles
    }

    func start(_ host: any ServiceRuntime) throws { try transfers.start(host, as: name) }
    func stop() { transfers.stop() }

    func register(on router: inout Router) {
        transfers.register(on: &router)
        router.write(WireApplyChanges.self) { [unowned self] in try apply($0, $1, $2) }
        router.write(WireFindMissing.self, remembersReply: false, idsAge: false) { [unowned self] request, _, _ in
            var reply = WireFindMissingReply()
            reply.missing = request.ids.enumerated().compactMap { index, id in
                ChunkID(bytes: [UInt8](id)).map { held.contains($0) ? nil : UInt32(index) } ?? nil
            }
            return reply
        }
        router.write(WireReadNodes.self, remembersReply: false, idsAge: false) { [unowned self] request, _, _ in
            var reply = WireReadNodesReply()
            reply.nodes = try request.ids.map { id in
                guard let node = ChunkID(bytes: [UInt8](id)).flatMap({ nodes[$0] }) else {
                    throw CloudError(.unknownItem, "There is no such node.")
                }
                return node
            }
            return reply
        }
        router.write(WireListVersions.self, remembersReply: false, idsAge: false) { [unowned self] request, _, _ in
            var reply = WireListVersionsReply()
            reply.versions = versions[request.item, default: []].reversed()
            return reply
        }
    }

    func presenter(
        of scope: ScopeName, for caller: Caller, in transaction: any HandlerTransaction
    ) throws -> any ScopePresenter {
        guard scope.owner == Owner(caller.account), caller.entitlements.include(scope.path, of: name) else {
            throw CloudError(.missingEntitlement, "The app lists no such container.")
        }
        return Presenter()
    }

    private struct Presenter: ScopePresenter {
        let digestKey = SmallDocuments.digestKey
        let audience = ScopeAudience.reader

        func write(_ item: FeedItem, to body: inout FieldWriter) throws -> PresentedItem {
            body.append(encoded: item.body)
            return PresentedItem(digest: item.deleted ? nil : item.digest)
        }
    }

    // MARK: Changes

    private func apply(
        _ request: WireApplyChanges, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireApplyChangesReply {
        if let trouble = troubles.next() { throw trouble }
        let caller = try context.requireCaller()
        let scope = ScopeName(Owner(caller.account), ItemName(request.container))
        guard caller.entitlements.include(scope.path, of: name) else {
            throw CloudError(.missingEntitlement, "The app lists no such container.")
        }
        var items: [ItemName: WireDocumentItem] = [:]
        try transaction.items(scope, after: 0) { row in
            if !row.deleted { items[row.name] = try WireDocumentItem(serializedBytes: row.body) }
            return true
        }
        let before = items
        var touched: [ItemName] = []
        for change in request.changes {
            guard let id = DocumentID(bytes: change.item) else { throw Self.refused("item") }
            let item = id.itemName
            if !touched.contains(item) { touched.append(item) }
            items[item] = try applied(change, to: items[item], among: items, caller)
        }
        take(request)
        let stored = try touched.filter { items[$0] != before[$0] || items[$0] == nil }.map { name in
            let body: [UInt8] = try items[name]?.serializedBytes() ?? []
            return FeedItem(
                name: name, deleted: items[name] == nil,
                digest: SetDigest(ofItem: Self.digestKey + [UInt8](name.utf8) + [0] + body), size: body.count,
                body: body)
        }
        guard !stored.isEmpty else { throw Self.refused("nothing") }
        let change = try transaction.put(scope, stored)
        var notification = WireNotification(name, change)
        notification.deviceID = caller.device.rawValue
        notification.changes = stored.map { item in
            var change = WireChange()
            change.item = item.name.rawValue
            change.deleted = item.deleted
            change.body = Data(item.body)
            return change
        }
        notification.operationID = Data(context.id.bytes)
        transaction.publish(OutgoingEvent(change, notification: Frame(encoding: notification)))
        var reply = WireApplyChangesReply()
        reply.token = notification.token
        reply.previousSequence = notification.previousSequence
        reply.items = notification.changes
        return reply
    }

    private func applied(
        _ change: WireDocumentChange, to item: WireDocumentItem?, among items: [ItemName: WireDocumentItem],
        _ caller: Caller
    ) throws -> WireDocumentItem? {
        if let target = change.target.flatMap({ DocumentID(bytes: $0) }), !target.isFixed {
            guard let folder = items[target.itemName], folder.kind == .folder, !folder.hasTrash else {
                throw CloudError(.unknownItem, "There is no such folder.")
            }
        }
        if case .create = change.kind {
        } else if item == nil {
            throw CloudError(.unknownItem, "There is no such item.")
        }
        var next = DocumentChanges.apply(change, to: item)
        switch change.kind {
        case .replace(let replace):
            guard var old = item, replace.content.version != old.content.version else { return item }
            if replace.content.base != old.content.version {
                if replace.failOnConflict { throw Self.refused("conflict") }
                old.conflicts.append(replace.content)
                next = old
            }
        case .trash(let trash):
            guard trash.base.isEmpty || trash.base == item?.content.version else { throw Self.refused("base") }
            next?.trash.trashed = 1_000_000_000
        case .remove: guard item?.hasTrash == true else { throw Self.refused("not in the trash") }
        default: break
        }
        if next?.hasContent == true, next?.content.version != item?.content.version {
            next?.content.deviceID = caller.device.rawValue
            next?.content.committed = 1_000_000_000
            if let content = next?.content { versions[change.item, default: []].append(content) }
        }
        return next.map { renamed($0, change.item, items) }
    }

    /// Gives what clashes another name.
    private func renamed(
        _ item: WireDocumentItem, _ id: Data, _ items: [ItemName: WireDocumentItem]
    ) -> WireDocumentItem {
        var item = item
        let own = DocumentID(bytes: id)?.itemName
        let taken = Set(
            items.filter { $0.key != own && $0.value.parent == item.parent && !$0.value.hasTrash }.map(\.value.name))
        var number = 2
        let name = item.name
        while !item.hasTrash, taken.contains(item.name) {
            item.name = name + Data(" \(number)".utf8)
            number += 1
        }
        return item
    }

    private func take(_ request: WireApplyChanges) {
        for node in request.nodes {
            let id = node.withUnsafeBytes { ChunkID(hashing: $0) }
            nodes[id] = node
            held.insert(id)
            let decoded = try? node.withUnsafeBytes { try ManifestNode(decoding: $0) }
            for child in decoded?.children ?? [] { held.insert(child.id) }
        }
        for content in request.changes.compactMap(\.content) where !content.root.isEmpty {
            if let id = ChunkID(bytes: [UInt8](content.root)) { held.insert(id) }
        }
    }

    private static func refused(_ reason: String) -> CloudError {
        CloudError(.constraintViolation, "The change does not fit what is there.", details: ["reason": reason])
    }
}
