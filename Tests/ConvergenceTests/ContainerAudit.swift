import Foundation
import NephosChunks
import NephosContent
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf

/// What the documents service has of an app's containers, as any device may see it, and what lies in its database.
struct ContainerAudit {
    private struct Contents {
        var items: [DocumentID: WireDocumentItem] = [:]
        var versions: [DocumentID: [WireDocumentContent]] = [:]
        /// Each item's share in the container's digest.
        var shares: [DocumentID: SetDigest] = [:]
    }

    private var containers: [String: Contents] = [:]
    private let storage: SQLiteEngine

    init(of cloud: TestCloud, app: String, _ names: [String]) throws {
        storage = try cloud.storage(of: .documents)
        let device = try TestBulk(of: cloud, app: app)
        for name in names { containers[name] = try Self.read(name, by: device) }
    }

    private static func read(_ container: String, by device: TestBulk) throws -> Contents {
        var request = WireReadChanges()
        request.scope = container
        let listing = try device.client.call(
            "ReadChanges", request, at: .requests(.documents), accessToken: device.accessToken,
            as: WireReadChangesReply.self)
        guard !listing.hasPlace else { throw Violation("The audit reads one page.") }
        var contents = Contents()
        var digest = SetDigest.empty
        for change in listing.changes where !change.deleted {
            guard let id = DocumentID(ItemName(change.item)) else {
                throw Violation("An item is called \(change.item)")
            }
            contents.items[id] = try WireDocumentItem(serializedBytes: change.body)
            let share = SetDigest(
                ofItem: [UInt8](listing.digestKey) + [UInt8](change.item.utf8) + [0] + [UInt8](change.body))
            contents.shares[id] = share
            digest.add(share)
            var request = WireListVersions()
            request.container = container
            request.item = Data(id.bytes)
            contents.versions[id] =
                try device.client.call(
                    "ListVersions", request, at: .requests(.documents), accessToken: device.accessToken,
                    as: WireListVersionsReply.self
                ).versions
        }
        guard contents.items.isEmpty || Data(digest.bytes) == listing.digest else {
            throw Violation("The digest is another.")
        }
        return contents
    }

    func items(of container: String) -> [DocumentID: WireDocumentItem] { containers[container]?.items ?? [:] }

    /// All that is kept, by root or bytes.
    var contents: Set<Data> {
        Set(containers.values.flatMap { $0.versions.values.joined() }.map { $0.root + $0.inline })
    }

    func versionCount(of item: DocumentID) -> Int {
        containers.values.reduce(0) { $0 + ($1.versions[item]?.count ?? 0) }
    }

    // MARK: What must hold

    func check() throws {
        for contents in containers.values { try checkTree(contents) }
        for (name, contents) in containers { try checkFolders(contents, of: name) }
        try checkContents()
    }

    /// Every chunk that a row names lies where it says.
    func checkChunks(in store: SegmentStore) throws {
        for (id, place) in try places() {
            do { _ = try store.read(place, of: id) } catch { throw Violation("The chunk \(id) is not there: \(error)") }
        }
    }

    /// Each item lies in a folder that is there, names are one of a kind, and each version that is named is kept.
    private func checkTree(_ contents: Contents) throws {
        let (items, versions) = (contents.items, contents.versions)
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

    /// A folder's digest is of all that lies in it, and there is one for each folder and no other.
    private func checkFolders(_ contents: Contents, of container: String) throws {
        var digests: [DocumentID: SetDigest] = [:]
        for (id, share) in contents.shares {
            var next = contents.items[id].flatMap { DocumentID(bytes: $0.parent) }
            while let folder = next {
                digests[folder, default: .empty].add(share)
                next = folder == .documents ? .top : contents.items[folder].flatMap { DocumentID(bytes: $0.parent) }
            }
        }
        for (id, item) in contents.items where item.kind == .folder { digests[id] = digests[id] ?? .empty }
        digests = digests.filter { !$0.key.isFixed || $0.value != .empty }
        let rows = try storage.write { transaction in
            try transaction.all(Self.selectTrees, [.text(container)]) { ($0.blob(0), $0.blob(1)) }
        }
        let kept = Dictionary(
            rows.map { (DocumentID(bytes: $0) ?? .top, SetDigest(bytes: $1) ?? .empty) }
        ) { $1 }
        guard kept == digests else { throw Violation("Folders' digests are \(kept), and should be \(digests)") }
    }

    private static let selectTrees = SQL("SELECT folder, digest FROM document_trees WHERE container = ?1")

    private struct Part: Hashable {
        /// Chunks are the account's; what each container rests on it counts for itself.
        var container: String
        var id: [UInt8]
        var isNode: Bool
    }

    /// Everything that contents rest on is there, is counted once for each use, and nothing else is; and the account is
    /// charged for just that and for its items, which is the sum of its containers too.
    private func checkContents() throws {
        let rows = try read()
        var uses: [Part: Int64] = [:]
        var charged: Int64 = 0
        var counted: [DocumentID: Int64] = [:]
        for (name, there) in containers {
            for (id, item) in there.items { counted[id] = Int64(try item.countedBytes()) }
            charged += Int64(there.versions.values.joined().count * DocumentLimits.rowBytes)
            let renditions = there.items.values.flatMap { $0.renditions.map(\.content) }
            for content in Array(there.versions.values.joined()) + renditions {
                charged += content.root.isEmpty ? Int64(content.length) : 0
                guard !content.root.isEmpty else { continue }
                uses[Part(container: name, id: [UInt8](content.root), isNode: content.depth > 0), default: 0] += 1
            }
        }
        guard rows.items == counted else { throw Violation("Items count \(rows.items), and should \(counted)") }
        charged += counted.values.reduce(0, +)
        for (name, node) in rows.nodes {
            charged += Int64(node.count + DocumentLimits.rowBytes)
            let manifest = try node.withUnsafeBytes { try ManifestNode(decoding: $0) }
            for child in manifest.children {
                uses[Part(container: name, id: child.id.bytes, isNode: manifest.level > 0), default: 0] += 1
            }
        }
        guard uses == rows.uses else { throw Violation("Uses are \(rows.uses), and should be \(uses)") }
        let nodes = Set(
            rows.nodes.map { name, node in
                Part(container: name, id: node.withUnsafeBytes { ChunkID(hashing: $0).bytes }, isNode: true)
            })
        guard nodes == Set(uses.keys.filter(\.isNode)) else { throw Violation("Nodes lie there unused") }
        let chunks = Set(uses.keys.filter { !$0.isNode }.map(\.id))
        guard Set(rows.chunks.keys) == chunks else {
            throw Violation("\(rows.chunks.count) chunks lie there, \(chunks.count) are used")
        }
        charged += rows.chunks.values.reduce(0, +)
        guard rows.charged == charged else { throw Violation("The account is charged \(rows.charged), not \(charged)") }
        let renditions = containers.values.flatMap { $0.items.values }.reduce(0) { $0 + Int64($1.renditions.count) }
        guard rows.renditions == renditions else {
            throw Violation("\(rows.renditions) further contents lie there, not \(renditions)")
        }
        guard rows.sum == charged else { throw Violation("The containers' sums are \(rows.sum), not \(charged)") }
        guard rows.left == 0 else { throw Violation("\(rows.left) endings, holds and removals are left") }
        guard rows.damaged == 0 else { throw Violation("\(rows.damaged) chunks are damaged") }
    }

    private struct Rows {
        var uses: [Part: Int64] = [:]
        var nodes: [(container: String, node: [UInt8])] = []
        var chunks: [[UInt8]: Int64] = [:]
        var items: [DocumentID: Int64] = [:]
        var charged: Int64 = 0
        var sum: Int64 = 0
        var left: Int64 = 0
        var renditions: Int64 = 0
        var damaged: Int64 = 0
    }

    private static let selectUses = SQL("SELECT container, chunk, is_node, use_count FROM content_uses")
    private static let selectNodes = SQL("SELECT container, node FROM content_nodes")
    private static let selectChunks = SQL("SELECT id, content_length FROM content_chunks")
    private static let selectItems = SQL("SELECT item, counted FROM document_items")
    private static let selectSum = SQL("SELECT SUM(bytes) FROM content_sums")
    private static let selectUsed = SQL("SELECT used FROM storage_owners")
    private static let selectRenditions = SQL("SELECT COUNT(*) FROM document_renditions")
    private static let selectLeft = SQL(
        """
        SELECT (SELECT COUNT(*) FROM content_endings) + (SELECT COUNT(*) FROM content_holds)
            + (SELECT COUNT(*) FROM document_removals)
        """)

    private static let selectDamaged = SQL("SELECT COUNT(*) FROM content_damaged")
    private static let selectPlaces = SQL(
        "SELECT id, partition_number, segment_number, segment_offset, length FROM content_chunks")

    private func places() throws -> [(ChunkID, SegmentPlace)] {
        try storage.write { transaction in
            try transaction.all(Self.selectPlaces, []) { row in
                (
                    ChunkID(bytes: row.blob(0)),
                    SegmentPlace(
                        segment: SegmentID(partition: Int(row.integer(1)), number: row.integer(2)),
                        offset: Int(row.integer(3)), length: Int(row.integer(4)))
                )
            }.compactMap { id, place in id.map { ($0, place) } }
        }
    }

    private func read() throws -> Rows {
        try storage.write { transaction in
            var rows = Rows()
            for (part, count) in try transaction.all(
                Self.selectUses, [],
                { row in
                    (Part(container: row.text(0), id: row.blob(1), isNode: row.integer(2) != 0), row.integer(3))
                })
            { rows.uses[part] = count }
            rows.nodes = try transaction.all(Self.selectNodes, []) { ($0.text(0), $0.blob(1)) }
            for (id, length) in try transaction.all(Self.selectChunks, [], { ($0.blob(0), $0.integer(1)) }) {
                rows.chunks[id] = length
            }
            for (id, counted) in try transaction.all(Self.selectItems, [], { ($0.blob(0), $0.integer(1)) }) {
                rows.items[DocumentID(bytes: id) ?? .top] = counted
            }
            rows.sum = try transaction.first(Self.selectSum) { $0.integer(0) } ?? 0
            rows.charged = try transaction.first(Self.selectUsed) { $0.integer(0) } ?? 0
            rows.renditions = try transaction.first(Self.selectRenditions) { $0.integer(0) } ?? 0
            rows.damaged = try transaction.first(Self.selectDamaged) { $0.integer(0) } ?? 0
            rows.left = try transaction.first(Self.selectLeft) { $0.integer(0) } ?? 0
            return rows
        }
    }
}
