import Foundation
import NephosChunks
import NephosContent
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf

/// What the documents service has of one container, as any device may see it, and what lies in its database.
struct ContainerAudit {
    private(set) var items: [DocumentID: WireDocumentItem] = [:]
    private(set) var versions: [DocumentID: [WireDocumentContent]] = [:]
    private let storage: SQLiteEngine

    init(of cloud: TestCloud, app: String, _ container: String) throws {
        storage = try cloud.storage(of: .documents)
        let device = try TestBulk(of: cloud, app: app)
        var request = WireReadChanges()
        request.scope = container
        let listing = try device.client.call(
            "ReadChanges", request, at: .requests(.documents), accessToken: device.accessToken,
            as: WireReadChangesReply.self)
        guard !listing.hasPlace else { throw Violation("The audit reads one page.") }
        var digest = SetDigest.empty
        for change in listing.changes where !change.deleted {
            guard let id = DocumentID(ItemName(change.item)) else {
                throw Violation("An item is called \(change.item)")
            }
            items[id] = try WireDocumentItem(serializedBytes: change.body)
            digest.add(
                SetDigest(ofItem: [UInt8](listing.digestKey) + [UInt8](change.item.utf8) + [0] + [UInt8](change.body)))
            var request = WireListVersions()
            request.container = container
            request.item = Data(id.bytes)
            versions[id] =
                try device.client.call(
                    "ListVersions", request, at: .requests(.documents), accessToken: device.accessToken,
                    as: WireListVersionsReply.self
                ).versions
        }
        guard items.isEmpty || Data(digest.bytes) == listing.digest else { throw Violation("The digest is another.") }
    }

    // MARK: What must hold

    func check() throws {
        try checkTree()
        try checkContents()
    }

    /// Each item lies in a folder that is there, names are one of a kind, and each version that is named is kept.
    private func checkTree() throws {
        var names: [DocumentID: Set<Data>] = [:]
        for (id, item) in items {
            guard let parent = DocumentID(bytes: item.parent), parent.isFixed || items[parent]?.kind == .folder else {
                throw Violation("\(id) lies in no folder")
            }
            if !item.hasTrash, !names[parent, default: []].insert(item.name).inserted {
                throw Violation("Two items of \(parent) have one name")
            }
            let kept = Set((versions[id] ?? []).map(\.version))
            let named = ([item.content] + item.conflicts).map(\.version).filter { !$0.isEmpty }
            guard named.allSatisfy({ kept.contains($0) }) else {
                throw Violation("\(id) names a version that is not kept")
            }
        }
    }

    private struct Part: Hashable {
        var id: [UInt8]
        var isNode: Bool
    }

    /// Everything that contents rest on is there, is counted once for each use, and nothing else is; and the account is
    /// charged for just that and for its items, which is the container's sum too.
    private func checkContents() throws {
        let rows = try read()
        var uses: [Part: Int64] = [:]
        var charged: Int64 = 0
        let counted = Dictionary(uniqueKeysWithValues: try items.map { ($0, Int64(try $1.countedBytes())) })
        guard rows.items == counted else { throw Violation("Items count \(rows.items), and should \(counted)") }
        charged += counted.values.reduce(0, +)
        charged += Int64(versions.values.joined().count * DocumentLimits.rowBytes)
        for content in Array(versions.values.joined()) + items.values.flatMap({ $0.renditions.map(\.content) }) {
            charged += content.root.isEmpty ? Int64(content.length) : 0
            guard !content.root.isEmpty else { continue }
            uses[Part(id: [UInt8](content.root), isNode: content.depth > 0), default: 0] += 1
        }
        for node in rows.nodes {
            charged += Int64(node.count)
            let manifest = try node.withUnsafeBytes { try ManifestNode(decoding: $0) }
            for child in manifest.children {
                uses[Part(id: child.id.bytes, isNode: manifest.level > 0), default: 0] += 1
            }
        }
        guard uses == rows.uses else { throw Violation("Uses are \(rows.uses), and should be \(uses)") }
        let nodes = Set(rows.nodes.map { $0.withUnsafeBytes { ChunkID(hashing: $0).bytes } })
        guard nodes == Set(uses.keys.filter(\.isNode).map(\.id)) else { throw Violation("Nodes lie there unused") }
        let chunks = Set(uses.keys.filter { !$0.isNode }.map(\.id))
        guard Set(rows.chunks.keys) == chunks else {
            throw Violation("\(rows.chunks.count) chunks lie there, \(chunks.count) are used")
        }
        charged += rows.chunks.values.reduce(0) { $0 + $1 - Int64(ChunkSealer.overhead) }
        guard rows.charged == charged else { throw Violation("The account is charged \(rows.charged), not \(charged)") }
        guard rows.renditions == items.values.reduce(0, { $0 + Int64($1.renditions.count) }) else {
            throw Violation("\(rows.renditions) further contents lie there")
        }
        guard rows.sum == charged else { throw Violation("The container's sum is \(rows.sum), not \(charged)") }
        guard rows.left == 0 else { throw Violation("\(rows.left) endings, holds and removals are left") }
    }

    private struct Rows {
        var uses: [Part: Int64] = [:]
        var nodes: [[UInt8]] = []
        var chunks: [[UInt8]: Int64] = [:]
        var items: [DocumentID: Int64] = [:]
        var charged: Int64 = 0
        var sum: Int64 = 0
        var left: Int64 = 0
        var renditions: Int64 = 0
    }

    private static let selectUses = SQL("SELECT chunk, is_node, use_count FROM content_uses")
    private static let selectNodes = SQL("SELECT node FROM content_nodes")
    private static let selectChunks = SQL("SELECT id, length FROM content_chunks")
    private static let selectItems = SQL("SELECT item, counted FROM document_items")
    private static let selectSum = SQL("SELECT SUM(bytes) FROM content_sums")
    private static let selectUsed = SQL("SELECT used FROM storage_owners")
    private static let selectRenditions = SQL("SELECT COUNT(*) FROM document_renditions")
    private static let selectLeft = SQL(
        """
        SELECT (SELECT COUNT(*) FROM content_endings) + (SELECT COUNT(*) FROM content_holds)
            + (SELECT COUNT(*) FROM document_removals)
        """)

    private func read() throws -> Rows {
        try storage.write { transaction in
            var rows = Rows()
            for (part, count) in try transaction.all(
                Self.selectUses, [],
                { row in
                    (Part(id: row.blob(0), isNode: row.integer(1) != 0), row.integer(2))
                })
            { rows.uses[part] = count }
            rows.nodes = try transaction.all(Self.selectNodes, []) { $0.blob(0) }
            for (id, length) in try transaction.all(Self.selectChunks, [], { ($0.blob(0), $0.integer(1)) }) {
                rows.chunks[id] = length
            }
            for (id, counted) in try transaction.all(Self.selectItems, [], { ($0.blob(0), $0.integer(1)) }) {
                rows.items[DocumentID(bytes: id) ?? .top] = counted
            }
            rows.sum = try transaction.first(Self.selectSum) { $0.integer(0) } ?? 0
            rows.charged = try transaction.first(Self.selectUsed) { $0.integer(0) } ?? 0
            rows.renditions = try transaction.first(Self.selectRenditions) { $0.integer(0) } ?? 0
            rows.left = try transaction.first(Self.selectLeft) { $0.integer(0) } ?? 0
            return rows
        }
    }
}
