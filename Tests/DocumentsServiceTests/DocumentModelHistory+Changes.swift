import Foundation
import NephosChunks
import NephosCore
import NephosSimulation
import NephosWire

/// Long contents of the histories: of one chunk, of some, and of so many that nodes lie above nodes. Some share chunks,
/// and some whole nodes.
enum DocumentContents {
    static let all: [TestContent] = {
        let many = (0..<300).map { 4096 + $0 }
        var changed = many
        changed[150] += 1000
        return [
            TestContent(seed: 1, chunks: [5000, 7000]), TestContent(seed: 1, chunks: [5000, 7000, 6000]),
            TestContent(seed: 2, chunks: [9000]), TestContent(seed: 4, chunks: [4097, 4098, 4099, 5000]),
            TestContent(seed: 3, chunks: many), TestContent(seed: 3, chunks: changed),
            TestContent(seed: 3, chunks: many + [5000, 5001, 5002]),
        ]
    }()

    static let byRoot: [Data: TestContent] = Dictionary(all.map { (Data($0.root.bytes), $0) }) { $1 }

    static let byChunk: [ChunkID: [UInt8]] = Dictionary(
        all.flatMap { content in zip(content.ids, content.chunks).map { ($0, $1) } }
    ) { $1 }

    /// What each node names, by its id.
    static let children: [ChunkID: [(id: ChunkID, isNode: Bool)]] = {
        var children: [ChunkID: [(id: ChunkID, isNode: Bool)]] = [:]
        for node in all.flatMap(\.nodes) {
            guard let opened = try? node.withUnsafeBytes({ try ManifestNode(decoding: $0) }) else { continue }
            children[ChunkID(of: node)] = opened.children.map { ($0.id, opened.level > 0) }
        }
        return children
    }()

    /// Ids of the nodes of each content, by its root.
    static let nodes: [Data: [ChunkID]] = Dictionary(
        all.map { (Data($0.root.bytes), $0.nodes.map { ChunkID(of: $0) }) }
    ) { $1 }

    static func length(of chunk: ChunkID) -> Int { byChunk[chunk]?.count ?? 0 }
}

extension ChunkID {
    /// Of these bytes.
    init(of bytes: [UInt8]) { self = bytes.withUnsafeBytes { ChunkID(hashing: $0) } }
}

/// What the devices of a history ask for.
extension DocumentModelHistory {
    private static let names = ["a.txt", "A.txt", "b", "B", "鍵", "e\u{301}", "\u{e9}", ".c", "d.tar.gz"]

    func id() -> DocumentID { DocumentID.random(using: &random) }

    func makeChanges(in container: String) throws -> [WireDocumentChange] {
        let model = models[container] ?? DocumentModel()
        var changes: [WireDocumentChange] = []
        var made: [DocumentID] = []
        let count = flip(0.7) ? 1 : Int.random(in: 2...5, using: &random)
        while changes.count < count {
            let hasRendition = changes.contains { if case .rendition = $0.kind { true } else { false } }
            let change = try makeChange(model, made, mayHaveRendition: !hasRendition)
            if case .create = change.kind, let id = DocumentID(bytes: change.item) { made.append(id) }
            changes.append(change)
        }
        return changes
    }

    private func makeChange(
        _ model: DocumentModel, _ made: [DocumentID], mayHaveRendition: Bool
    ) throws -> WireDocumentChange {
        let kind = Int.random(in: 0..<100, using: &random)
        let item = item(for: kind, model) ?? anyItem(model, made)
        let known = model.items[item]
        let clash: WireNameClash = flip(0.6) ? .rename : .refuse
        let name = Self.names.randomElement(using: &random) ?? "a"
        switch kind {
        case ..<8: return .create(flip(0.95) ? id() : item, name, in: folder(model, made), clash: clash, place: id())
        case ..<26:
            return .create(
                flip(0.95) ? id() : item, name, in: folder(model, made), content(base: Data()), clash: clash,
                place: id())
        case ..<56:
            var content = content(base: base(of: known))
            if flip(0.4), let announced = known?.announcements.first { content.version = announced.version }
            return .replace(item, content, failOnConflict: flip(0.2))
        case ..<63:
            let base = flip(0.7) ? Data() : flip(0.8) ? known?.place ?? Data() : Data(id().bytes)
            return .place(item, name, in: folder(model, made), base: base, clash: clash, place: id())
        case ..<68:
            return .trash(item, base: flip(0.7) ? Data() : base(of: known))
        case ..<74: return .restore(trashed(model) ?? item, clash: clash)
        case ..<78: return .remove(trashed(model) ?? item)
        case ..<83:
            return .resolve(item, (known?.conflicts ?? []).map(\.version).filter { _ in flip(0.6) })
        case ..<88:
            let versions = (known?.versions ?? []).filter { version in
                flip(0.7) && (flip(0.05) || known?.live.contains { $0.version == version.version } == false)
            }
            return .removeVersions(item, versions.map(\.version))
        case ..<95 where mayHaveRendition:
            var change = WireDocumentChange()
            change.item = Data(item.bytes)
            change.rendition.name = Data((flip(0.5) ? "small" : "large").utf8)
            if flip(0.8) {
                change.rendition.content = content(base: Data())
                change.rendition.ofVersion = known?.content?.version ?? Data(id().bytes)
            }
            return change
        default:
            let announced = known?.announcements.randomElement(using: &random)?.version
            if let announced, flip(0.5) { return .announce(item, announced, length: 0) }
            return .announce(
                item, flip(0.5) ? announced ?? Data(id().bytes) : Data(id().bytes),
                length: flip(0.8) ? .random(in: 1...5_000_000, using: &random) : 0)
        }
    }

    /// One that there is, mostly.
    private func anyItem(_ model: DocumentModel, _ made: [DocumentID]) -> DocumentID {
        if flip(0.03) { return id() }
        if flip(0.04), let ended = model.ended.sorted().randomElement(using: &random) { return ended }
        return (model.items.keys.sorted() + made + made).randomElement(using: &random) ?? id()
    }

    /// Mostly one that lives, of which there is something that the kind of change concerns; nil: whichever.
    private func item(for kind: Int, _ model: DocumentModel) -> DocumentID? {
        guard flip(0.9), (26..<56).contains(kind) || kind >= 78 else { return nil }
        let files = model.items.filter { !$1.isFolder && model.lives($1) }
        let concerned =
            switch kind {
            case 78..<83: files.filter { !$1.conflicts.isEmpty }
            case 83..<88: files.filter { $1.versions.count > 1 }
            case 88..<95: files.filter { !$1.renditions.isEmpty }
            case 95...: files.filter { !$1.announcements.isEmpty }
            default: files.filter { $1.versions.count > 1 }
            }
        return (flip(0.7) && !concerned.isEmpty ? concerned : files).keys.sorted().randomElement(using: &random)
    }

    private func trashed(_ model: DocumentModel) -> DocumentID? {
        guard flip(0.9) else { return nil }
        return model.items.filter(\.value.isInTrash).keys.sorted().randomElement(using: &random)
    }

    private func folder(_ model: DocumentModel, _ made: [DocumentID]) -> DocumentID {
        if flip(0.4) { return flip(0.7) ? .documents : .top }
        if flip(0.05) { return anyItem(model, made) }
        let isAny = flip(0.1)
        let folders = model.items.filter { $1.isFolder && (isAny || model.lives($1)) }.keys.sorted() + made
        return folders.randomElement(using: &random) ?? .documents
    }

    /// What a device may have seen last of an item.
    private func base(of item: DocumentModel.Item?) -> Data {
        guard let item, let content = item.content else { return flip(0.5) ? Data() : Data(id().bytes) }
        if flip(0.5) { return content.version }
        let seen = item.versions.map(\.version) + item.conflicts.map(\.version) + content.sameAs + [Data(id().bytes)]
        return seen.randomElement(using: &random) ?? Data()
    }

    private func content(base: Data) -> WireDocumentContent {
        number += 1
        let long = DocumentContents.all[Int.random(in: 0..<(flip(0.3) ? 7 : 4), using: &random)]
        var content = WireDocumentContent()
        content.version = Data(id().bytes)
        content.base = base
        if flip(0.35) {
            (content.root, content.length, content.depth) = (
                Data(long.root.bytes), UInt64(long.length), UInt32(long.depth)
            )
        } else {
            // Some have the same bytes.
            let text = flip(0.2) ? "the same" : "\(number) " + String(repeating: "x", count: flip(0.3) ? 3000 : 0)
            (content.inline, content.length) = (Data(text.utf8), UInt64(text.utf8.count))
        }
        return content
    }
}
