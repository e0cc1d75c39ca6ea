internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit
internal import NephosPredicates

/// The calls of the page of files. Items are named by id, so a call means the same item after a rename.
enum FileCalls {
    private static let pageMax = 1000
    private static let foundMax = 200
    private static let searchTime: Duration = .seconds(10)

    static let methods: [String: ConsoleMethod] = [
        "files.list": ConsoleMethod(list), "files.changes": ConsoleMethod(changes), "files.item": ConsoleMethod(item),
        "files.search": ConsoleMethod(search), "files.makeFolder": ConsoleMethod(makeFolder),
        "files.move": ConsoleMethod(move), "files.copy": ConsoleMethod(copy), "files.trash": ConsoleMethod(trash),
        "files.deleted": ConsoleMethod(deleted), "files.restore": ConsoleMethod(restore),
        "files.erase": ConsoleMethod(erase), "files.versions": ConsoleMethod(versions),
        "files.restoreVersion": ConsoleMethod(choose), "files.resolve": ConsoleMethod(choose),
        "files.conflicts": ConsoleMethod(conflicts), "files.links": ConsoleMethod(links),
        "files.publish": ConsoleMethod(publish), "files.unpublish": ConsoleMethod(unpublish),
    ]

    // MARK: Read

    private struct InContainer: Decodable {
        var container: String
    }

    private struct OfItem: Decodable {
        var container: String
        var item: String
    }

    private struct List: Decodable {
        var container: String
        /// Nil: `Documents`, or what the path leads to.
        var folder: String?
        var path: [String]?
        var after: String?
        var limit: Int?
    }

    private struct Listed: Encodable {
        var folder: Step
        var trail: [Step]
        var entries: [FileRow]
        var next: String?
        var cursor: String
    }

    private static func list(_ user: WebUser, _ arguments: List) async throws -> Listed {
        let files = try await user.files(arguments.container)
        let folder = try folder(arguments, files)
        let page = try files.page(
            of: folder, after: arguments.after, limit: min(max(arguments.limit ?? 500, 1), pageMax))
        let trail = try files.trail(to: folder).map(Step.init)
        return Listed(
            folder: trail.last ?? Step(id: "\(DocumentID.documents)", name: "Documents"), trail: trail,
            entries: page.entries.map { FileRow($0) }, next: page.next, cursor: "\(page.cursor)")
    }

    private static func folder(_ arguments: List, _ files: AcceptedChanges) throws -> DocumentID {
        if let folder = arguments.folder { return try ConsoleJSON.id(folder) }
        guard let path = arguments.path, !path.isEmpty else { return .documents }
        let place = try DocumentPath(inDocuments: path.map { Data($0.utf8) })
        guard let entry = try files.entry(at: place), entry.kind == .folder else {
            throw CloudError(.unknownItem, "There is no such folder.", details: ["path": path.joined(separator: "/")])
        }
        return entry.id
    }

    private struct Changes: Decodable {
        var container: String
        var folder: String
        var cursor: String
    }

    private struct Changed: Encodable {
        var changed: [FileRow] = []
        var gone: [String] = []
        var cursor: String
        /// The folder has to be listed again.
        var all: Bool?
    }

    private static func changes(_ user: WebUser, _ arguments: Changes) async throws -> Changed {
        let files = try await user.files(arguments.container)
        guard let cursor = Int64(arguments.cursor) else {
            throw CloudError(.invalidArguments, "This is no cursor.", details: ["cursor": arguments.cursor])
        }
        guard let changes = try files.changed(after: cursor, in: ConsoleJSON.id(arguments.folder)), !changes.hasMore
        else { return Changed(cursor: arguments.cursor, all: true) }
        return Changed(
            changed: changes.entries.map { FileRow($0) }, gone: changes.gone.map { "\($0)" },
            cursor: "\(changes.cursor)")
    }

    private struct Item: Encodable {
        var entry: FileRow
        var trail: [Step]?
    }

    private static func item(_ user: WebUser, _ arguments: OfItem) async throws -> Item {
        let container = try await user.container(arguments.container)
        let id = try ConsoleJSON.id(arguments.item)
        guard let entry = try await container.item(id) else {
            throw CloudError(.unknownItem, "There is no such item.", details: ["item": arguments.item])
        }
        return Item(entry: FileRow(entry), trail: try container.accepted.trail(to: id).map(Step.init))
    }

    private struct Search: Decodable {
        var container: String
        var text: String
    }

    private struct Found: Encodable {
        var entries: [FileRow] = []
        /// There are more than these.
        var more = false
    }

    /// Items whose names contain a text, whatever the case.
    private static func search(_ user: WebUser, _ arguments: Search) async throws -> Found {
        let container = try await user.container(arguments.container)
        var found = Found()
        let end = ContinuousClock.now.advanced(by: searchTime)
        guard !arguments.text.isEmpty, let field = FieldName(DocumentField.name.rawValue) else { return found }
        let predicate = try QueryPredicate(
            .comparison(
                PredicateComparison(
                    field, .contains, [.string(arguments.text)], folding: [.caseInsensitive, .diacriticInsensitive])))
        gathering: for try await event in try container.query(predicate, scope: .documents, batchMax: foundMax + 1) {
            switch event {
            case .gathered(let entries): found.entries += entries.map { FileRow($0, withPath: true) }
            case .finishedGathering, .updated: break gathering
            }
            found.more = found.entries.count > foundMax || ContinuousClock.now > end
            if found.more { break }
        }
        found.entries = Array(found.entries.prefix(foundMax))
        return found
    }

    // MARK: Change

    private struct MakeFolder: Decodable {
        var container: String
        var folder: String
        var name: String
    }

    private static func makeFolder(_ user: WebUser, _ arguments: MakeFolder) async throws -> Item {
        let files = try await user.files(arguments.container)
        let entry = try await files.makeFolder(
            named: Data(arguments.name.utf8), in: ConsoleJSON.id(arguments.folder))
        return Item(entry: FileRow(entry))
    }

    private struct Move: Decodable {
        var container: String
        var item: String
        var folder: String
        /// Nil: it keeps its name.
        var name: String?
    }

    private static func move(_ user: WebUser, _ arguments: Move) async throws -> Item {
        let files = try await user.files(arguments.container)
        let entry = try await files.move(
            ConsoleJSON.id(arguments.item), to: ConsoleJSON.id(arguments.folder),
            named: arguments.name.map { Data($0.utf8) })
        return Item(entry: FileRow(entry))
    }

    private static func copy(_ user: WebUser, _ arguments: Move) async throws -> Item {
        let files = try await user.files(arguments.container)
        let entry = try await files.copy(
            ConsoleJSON.id(arguments.item), to: ConsoleJSON.id(arguments.folder),
            named: arguments.name.map { Data($0.utf8) })
        return Item(entry: FileRow(entry))
    }

    // MARK: Trash

    private struct Trash: Decodable {
        var container: String
        var items: [String]
    }

    private struct Trashed: Encodable {
        var batches: [String]
    }

    private static func trash(_ user: WebUser, _ arguments: Trash) async throws -> Trashed {
        let files = try await user.files(arguments.container)
        let ids = try arguments.items.map { text throws(CloudError) in try ConsoleJSON.id(text) }
        guard !ids.isEmpty else { return Trashed(batches: []) }
        return Trashed(batches: ["\(try await files.trash(ids))"])
    }

    private struct Deleted: Encodable {
        struct Batch: Encodable {
            var batch: String
            var trashed: UInt64?
            var expires: UInt64?
            var bytes: UInt64
            var deviceName: String?
            var items: [FileRow]
        }
        var batches: [Batch]
    }

    private static func deleted(_ user: WebUser, _ arguments: InContainer) async throws -> Deleted {
        let batches = try await user.container(arguments.container).trash.list()
        let names = await user.deviceNames()
        return Deleted(
            batches: batches.map { batch in
                Deleted.Batch(
                    batch: "\(batch.batch)", trashed: batch.trashed?.milliseconds,
                    expires: batch.expires?.milliseconds, bytes: batch.bytes,
                    deviceName: batch.device.flatMap { names[$0] },
                    items: batch.items.map { FileRow($0, withPath: true) })
            })
    }

    private struct OfBatch: Decodable {
        var container: String
        var batch: String
    }

    private struct Entries: Encodable {
        var entries: [FileRow]
    }

    private static func restore(_ user: WebUser, _ arguments: OfBatch) async throws -> Entries {
        let files = try await user.files(arguments.container)
        let entries = try await files.restore(batch: ConsoleJSON.id(arguments.batch))
        return Entries(entries: entries.map { FileRow($0, withPath: true) })
    }

    private static func erase(_ user: WebUser, _ arguments: OfBatch) async throws -> ConsoleDone {
        try await user.files(arguments.container).erase(batch: ConsoleJSON.id(arguments.batch))
        return ConsoleDone()
    }

    // MARK: Versions

    private struct Versions: Encodable {
        struct Version: Encodable {
            var version: String
            var size: UInt64
            var modified: Int64
            var committed: UInt64?
            var deviceName: String?
            var isCurrent: Bool?
            var isConflict: Bool?
        }
        var versions: [Version]
    }

    private static func versions(_ user: WebUser, _ arguments: OfItem) async throws -> Versions {
        let container = try await user.container(arguments.container)
        let versions = try await container.versions.list(of: ConsoleJSON.id(arguments.item))
        let names = await user.deviceNames()
        return Versions(
            versions: versions.map { version in
                Versions.Version(
                    version: "\(version.id)", size: version.size, modified: version.modified.milliseconds,
                    committed: version.committed?.milliseconds, deviceName: version.device.flatMap { names[$0] },
                    isCurrent: version.standing == .current ? true : nil,
                    isConflict: version.standing == .conflict ? true : nil)
            })
    }

    private struct OfVersion: Decodable {
        var container: String
        var item: String
        var version: String
    }

    private static func choose(_ user: WebUser, _ arguments: OfVersion) async throws -> Item {
        let files = try await user.files(arguments.container)
        let entry = try await files.choose(ConsoleJSON.id(arguments.version), of: ConsoleJSON.id(arguments.item))
        return Item(entry: FileRow(entry))
    }

    private static func conflicts(_ user: WebUser, _ arguments: InContainer) async throws -> Entries {
        let entries = try await user.container(arguments.container).conflicts.list()
        return Entries(entries: entries.map { FileRow($0, withPath: true) })
    }

    // MARK: Links

    private struct LinkRow: Encodable {
        var id: String
        var item: String
        var name: String
        var size: UInt64
        /// Only of a link that was just made: it is not kept.
        var url: String?
        var created: UInt64
        var expires: UInt64
        var deviceName: String?
        var damaged: Bool?

        init(_ link: PublishedLink, _ names: [DeviceID: String] = [:]) {
            (id, item, name, size) = ("\(link.id)", "\(link.item)", link.name, link.size)
            url = link.url?.absoluteString
            (created, expires) = (link.created.milliseconds, link.expires.milliseconds)
            deviceName = names[link.device]
            damaged = link.isDamaged ? true : nil
        }
    }

    private struct Links: Encodable {
        var links: [LinkRow]
    }

    private static func links(_ user: WebUser, _ arguments: InContainer) async throws -> Links {
        let links = try await user.container(arguments.container).links.list()
        let names = await user.deviceNames()
        return Links(links: links.map { LinkRow($0, names) })
    }

    private struct Publish: Decodable {
        var container: String
        var item: String
        /// How long it is good, in milliseconds; nil: for as long as usual.
        var expires: Int64?
    }

    private struct Link: Encodable {
        var link: LinkRow
    }

    private static func publish(_ user: WebUser, _ arguments: Publish) async throws -> Link {
        let container = try await user.container(arguments.container)
        let link = try await container.links.publish(
            ConsoleJSON.id(arguments.item), expiresAfter: arguments.expires.map { .milliseconds($0) })
        return Link(link: LinkRow(link))
    }

    private struct Unpublish: Decodable {
        var container: String
        var link: String
    }

    private static func unpublish(_ user: WebUser, _ arguments: Unpublish) async throws -> ConsoleDone {
        try await user.container(arguments.container).links.unpublish(ConsoleJSON.id(arguments.link))
        return ConsoleDone()
    }
}

/// A folder on the way to another.
struct Step: Encodable {
    var id: String
    var name: String

    init(id: String, name: String) { (self.id, self.name) = (id, name) }
    init(_ entry: DocumentEntry) { self.init(id: "\(entry.id)", name: entry.name) }
}

/// An item as the pages have it.
struct FileRow: Encodable {
    var id: String
    var name: String
    var kind: String
    var size: UInt64
    var modified: Int64?
    var created: Int64?
    var version: String?
    var conflicts: Int?
    var executable: Bool?
    var tags: [String]?
    /// From the container's top.
    var path: String?
    /// A change of it is not on the server yet.
    var pending: Bool?
    /// The media type, if the ending of its name is known.
    var type: String?

    init(_ entry: DocumentEntry, withPath: Bool = false) {
        id = "\(entry.id)"
        (name, kind, size) = (entry.name, entry.kind.rawValue, entry.size)
        (modified, created) = (entry.modified?.milliseconds, entry.created?.milliseconds)
        version = entry.version.map { "\($0)" }
        conflicts = entry.conflictCount == 0 ? nil : entry.conflictCount
        executable = entry.isExecutable ? true : nil
        tags = entry.tags.isEmpty ? nil : entry.tags
        path = withPath ? entry.path : nil
        pending = entry.pending == .none ? nil : true
        type = entry.kind == .file ? ContentTypes.type(of: .file, named: entry.nameBytes) : nil
    }
}

extension WebUser {
    /// The names of the account's devices, also of those that have signed out.
    func deviceNames() async -> [DeviceID: String] {
        let devices = (try? await session.devices(withSignedOut: true, timeout: .seconds(2))) ?? []
        return Dictionary(devices.map { ($0.id, $0.name) }) { first, _ in first }
    }
}
