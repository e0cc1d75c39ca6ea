import Foundation
import NephosBulk
import NephosBus
import NephosChunks
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf

/// How a history asks the service, and what the service has.
extension DocumentModelHistory {
    /// What passes: who is told so asks again, under the same id.
    private static let passing: Set<CloudError.Code> = [
        .storageFailure, .serviceBusy, .serviceUnavailable, .deadlineExceeded, .networkFailure,
    ]

    private func call<Reply: SwiftProtobuf.Message>(
        _ method: String, _ request: some SwiftProtobuf.Message, by member: Member, as _: Reply.Type = Reply.self
    ) throws -> Reply {
        let id = OperationID(at: SimulatedNetwork.epoch.advanced(by: house.cloud.network.now), using: &random)
        for attempt in 1...20 {
            do {
                return try member.mover.client.call(
                    method, request, at: .requests(.documents), accessToken: member.mover.accessToken, id: id)
            } catch let error as CloudError where Self.passing.contains(error.code) && attempt < 20 {
                note("  \(method): \(error.code)")
                house.cloud.network.run(for: .seconds(1))
            }
        }
        throw Violation("It was tried for ever.")
    }

    /// - Returns: Why it was refused; nil: it was not.
    func apply(
        _ changes: [WireDocumentChange], nodes: [[UInt8]], upload: [UInt8], source: String, by member: Member,
        to container: String
    ) throws -> CloudError.Code? {
        var request = WireApplyChanges()
        request.container = container
        request.changes = changes
        request.nodes = nodes.map { Data($0) }
        request.transferID = Data(upload)
        request.sourceContainer = source
        request.head = member.head
        do {
            member.head = try call("ApplyChanges", request, by: member, as: WireApplyChangesReply.self).token
            return nil
        } catch let error as CloudError {
            note("  \(error.code) \(error.details)")
            return error.code
        }
    }

    func closeUpload(_ upload: [UInt8], by member: Member) throws {
        var request = WireCloseTransfer()
        request.transferID = Data(upload)
        let _: WireCloseTransferReply = try call("CloseTransfer", request, by: member)
    }

    /// Which of these the container lacks.
    func ask(
        _ ids: [ChunkID], in container: String, besides source: String, by member: Member
    ) throws -> [ChunkID] {
        guard !ids.isEmpty else { return [] }
        var request = WireFindMissing()
        request.container = container
        request.ids = ids.map { Data($0.bytes) }
        request.sourceContainer = source
        let reply: WireFindMissingReply = try call("FindMissing", request, by: member)
        return reply.missing.map { ids[Int($0)] }
    }

    /// Sends chunks. What a disk refuses for a moment is sent again.
    ///
    /// - Returns: Why they were refused; nil: they are stored.
    func store(
        _ ids: [ChunkID], room: Int, in upload: [UInt8], _ container: String, by member: Member
    ) throws -> CloudError.Code? {
        member.mover.container = container
        var left = ids
        for _ in 0..<10 {
            let client = try member.mover.connect(BulkClient.Purpose(upload: upload, uploadBytes: UInt64(room)))
            let ends = Ends()
            for id in left {
                let chunk = DocumentContents.byChunk[id] ?? []
                client.store(bytes: chunk.count) { target in
                    target.copyBytes(from: chunk)
                    return id
                } then: { result in
                    if case .failure(let error) = result {
                        ends.all.append((id, [], error))
                    } else {
                        ends.all.append((id, [], nil))
                    }
                }
            }
            _ = house.cloud.network.run(within: .seconds(120)) { ends.all.count == left.count }
            let errors = ends.errors
            left = left.filter { id in !ends.all.contains { $0.id == id && $0.error == nil } }
            if left.isEmpty { return nil }
            note("  \(left.count) chunks: \(errors.first.map { "\($0.code)" } ?? "no answer")")
            if let error = errors.first, !Self.passing.contains(error.code) { return error.code }
            house.cloud.network.run(for: .seconds(1))
        }
        throw Violation("\(left.count) chunks could not be stored.")
    }

    /// What ends of requests for content have come.
    private final class Ends {
        /// Bytes are those of what was fetched.
        var all: [(id: ChunkID, bytes: [UInt8], error: CloudError?)] = []
        var errors: [CloudError] { all.compactMap(\.error) }
    }

    // MARK: What should be

    private func roots(of container: String) -> Set<Data> {
        Set((models[container]?.contents ?? []).map(\.root).filter { !$0.isEmpty })
    }

    private func chunks(of roots: Set<Data>) -> (ids: Set<ChunkID>, bytes: Int) {
        if let known = chunksOfRoots[roots] { return known }
        let ids = Set(roots.flatMap { DocumentContents.byRoot[$0]?.ids ?? [] })
        let chunks = (ids, ids.reduce(0) { $0 + DocumentContents.length(of: $1) })
        chunksOfRoots[roots] = chunks
        return chunks
    }

    func chunks(of container: String) -> Set<ChunkID> { chunks(of: roots(of: container)).ids }

    func nodes(of container: String) -> Set<ChunkID> {
        Set(roots(of: container).flatMap { DocumentContents.nodes[$0] ?? [] })
    }

    private var allRoots: Set<Data> { Self.containers.reduce(into: Set()) { $0.formUnion(roots(of: $1)) } }
    private var allChunks: Set<ChunkID> { chunks(of: allRoots).ids }

    /// What should count, in bytes: of uploads that are open too.
    var used: Int { stored + open.reduce(0) { $0 + $1.room } }

    private var stored: Int {
        let nodes = Self.containers.reduce(0) { sum, name in
            sum
                + self.nodes(of: name).reduce(0) {
                    $0 + (DocumentContents.nodeLengths[$1] ?? 0) + DocumentLimits.rowBytes
                }
        }
        return models.values.reduce(0) { $0 + $1.countedBytes } + nodes + chunks(of: allRoots).bytes
    }

    // MARK: What is

    /// Waits until what is done in steps is done.
    func settle() throws {
        let held = Int64(open.reduce(0) { $0 + $1.chunks.count })
        for _ in 0..<150 {
            let left = try number(Self.selectLeft)
            if left == 0, try number(Self.selectHolds) == held { return }
            house.cloud.network.run(for: .seconds(1))
        }
        throw Violation(
            "\(try number(Self.selectLeft)) steps are left, and \(try number(Self.selectHolds)) holds of \(held)")
    }

    func check() throws {
        for name in Self.containers { try check(name) }
        try checkRows()
        if flip(0.3),
            let chunk = allChunks.sorted(by: { $0.bytes.lexicographicallyPrecedes($1.bytes) })
                .randomElement(using: &random)
        {
            try fetch([chunk])
        }
    }

    private func check(_ container: String) throws {
        guard let model = models[container], let member = members.randomElement(using: &random) else { return }
        var request = WireReadChanges()
        request.scope = container
        let reply: WireReadChangesReply = try call("ReadChanges", request, by: member)
        guard !reply.hasPlace else { throw Violation("A model is read in one page.") }
        var items: [DocumentID: DocumentModel.Item] = [:]
        var digest = SetDigest.empty
        for change in reply.changes where !change.deleted {
            guard let id = DocumentID(ItemName(change.item)) else { throw Violation("An item is no item's.") }
            digest.add(
                SetDigest(ofItem: [UInt8](reply.digestKey) + [UInt8](change.item.utf8) + [0] + [UInt8](change.body)))
            items[id] = try DocumentModel.Item(WireDocumentItem(serializedBytes: change.body))
        }
        guard Data(digest.bytes) == reply.digest || items.isEmpty else { throw Violation("The digest is another.") }
        for id in Set(items.keys).union(model.items.keys).sorted() {
            var expected = model.items[id]
            let versions = expected?.versions ?? []
            expected?.versions = []
            guard items[id] == expected else {
                throw Violation("\(id) is \(items[id] as Any), and should be \(expected as Any)")
            }
            guard expected?.isFolder == false, flip(0.2) else { continue }
            var request = WireListVersions()
            request.container = container
            request.item = Data(id.bytes)
            let reply: WireListVersionsReply = try call("ListVersions", request, by: member)
            let kept = Array(reply.versions.map { DocumentModel.Content($0) }.reversed())
            guard kept == versions else { throw Violation("\(id) has \(kept), and should have \(versions)") }
        }
    }

    /// Every content that is kept can be fetched, as it was sent.
    func checkContents() throws {
        try fetch(allChunks.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) })
        for name in Self.containers {
            let ids = nodes(of: name).sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
            for start in stride(from: 0, to: ids.count, by: DocumentLimits.nodesReadMax) {
                let page = ids[start..<min(ids.count, start + DocumentLimits.nodesReadMax)]
                var request = WireReadNodes()
                request.container = name
                request.ids = page.map { Data($0.bytes) }
                let reply: WireReadNodesReply = try call("ReadNodes", request, by: members[0])
                guard reply.nodes.map({ ChunkID(of: [UInt8]($0)) }) == Array(page) else {
                    throw Violation("A node is another.")
                }
            }
        }
    }

    private func fetch(_ ids: [ChunkID]) throws {
        var left = ids
        for _ in 0..<5 where !left.isEmpty {
            let client = try members[0].mover.connect(BulkClient.Purpose())
            let ends = Ends()
            for id in left {
                client.fetch(id) { result in
                    switch result {
                    case .success(let frame): ends.all.append((id, frame.withContent { [UInt8]($0) }, nil))
                    case .failure(let error): ends.all.append((id, [], error))
                    }
                }
            }
            _ = house.cloud.network.run(within: .seconds(120)) { ends.all.count == left.count }
            for (id, bytes, error) in ends.all where error == nil {
                guard bytes == DocumentContents.byChunk[id] else { throw Violation("The chunk \(id) is another.") }
                left.removeAll { $0 == id }
            }
            if let error = ends.errors.first { note("  fetching: \(error)") }
        }
        guard left.isEmpty else { throw Violation("\(left.count) chunks cannot be fetched.") }
    }

    // MARK: Rows

    private static let selectLeft = SQL(
        "SELECT (SELECT COUNT(*) FROM content_endings) + (SELECT COUNT(*) FROM document_removals)")
    private static let selectHolds = SQL("SELECT COUNT(*) FROM content_holds")
    private static let selectSum = SQL("SELECT COALESCE(SUM(bytes), 0) FROM content_sums")
    private static let selectDamaged = SQL("SELECT COUNT(*) FROM content_damaged")
    private static let selectUses = SQL("SELECT container, chunk, is_node, use_count FROM content_uses")
    private static let selectNodes = SQL("SELECT container, node FROM content_nodes")
    private static let selectChunks = SQL("SELECT id FROM content_chunks")

    private func number(_ sql: SQL) throws -> Int64 {
        try house.cloud.storage(of: .documents).write { try $0.first(sql) { $0.integer(0) } ?? 0 }
    }

    private struct Part: Hashable {
        var container: String
        var id: ChunkID
        var isNode: Bool
    }

    /// There is a row for whatever is in use, counted as often as it is, and none besides; and the account is charged
    /// for just that.
    private func checkRows() throws {
        var uses: [Part: Int] = [:]
        for (name, model) in models {
            for content in model.contents {
                guard let long = DocumentContents.byRoot[content.root] else { continue }
                uses[Part(container: name, id: long.root, isNode: long.depth > 0), default: 0] += 1
            }
            for node in nodes(of: name) {
                for child in DocumentContents.children[node] ?? [] {
                    uses[Part(container: name, id: child.id, isNode: child.isNode), default: 0] += 1
                }
            }
        }
        let (used, nodes, chunks) = try house.cloud.storage(of: .documents).write { transaction in
            (
                try transaction.all(Self.selectUses, []) { row in
                    (
                        Part(
                            container: row.text(0), id: ChunkID(bytes: row.blob(1)) ?? .none,
                            isNode: row.integer(2) != 0), Int(row.integer(3))
                    )
                }, try transaction.all(Self.selectNodes, []) { row in "\(row.text(0)) \(ChunkID(of: row.blob(1)))" },
                try transaction.all(Self.selectChunks, []) { ChunkID(bytes: $0.blob(0)) ?? .none }
            )
        }
        guard Dictionary(used, uniquingKeysWith: +) == uses else {
            throw Violation("Uses are \(used.count), not \(uses.count)")
        }
        let named = Self.containers.flatMap { name in self.nodes(of: name).map { "\(name) \($0)" } }
        guard nodes.sorted() == named.sorted() else {
            throw Violation("\(nodes.count) nodes lie there, and \(named.count) should")
        }
        let held = open.reduce(into: allChunks) { $0.formUnion($1.chunks) }
        guard Set(chunks) == held, chunks.count == held.count else {
            throw Violation("\(chunks.count) chunks lie there, \(allChunks.count) are used")
        }
        guard try house.counted() == Int64(self.used) else {
            throw Violation("The account is charged \(try house.counted()), not \(self.used)")
        }
        guard try number(Self.selectSum) == Int64(stored) else {
            throw Violation("The containers' sums are \(try number(Self.selectSum)), not \(stored)")
        }
        guard try number(Self.selectDamaged) == 0 else { throw Violation("Chunks are noted as damaged.") }
    }
}

extension DocumentContents {
    static let nodeLengths: [ChunkID: Int] = Dictionary(
        all.flatMap(\.nodes).map { (ChunkID(of: $0), $0.count) }
    ) { $1 }
}

extension DocumentModel.Item {
    /// As the service tells it, without the versions that it keeps.
    fileprivate init(_ wire: WireDocumentItem) throws {
        guard let parent = DocumentID(bytes: wire.parent) else { throw Violation("It lies in no folder.") }
        self.init(
            parent: parent, name: [UInt8](wire.name), place: wire.placeVersion,
            content: wire.kind == .folder ? nil : DocumentModel.Content(wire.content))
        conflicts = wire.conflicts.map { DocumentModel.Content($0) }
        for rendition in wire.renditions {
            renditions[String(decoding: rendition.name, as: UTF8.self)] = DocumentModel.Content(rendition.content)
        }
        announcements = wire.announcements.map { DocumentModel.Announcement(version: $0.version, length: $0.length) }
        isInTrash = wire.hasTrash
    }
}
