import Foundation
import NephosCore
import NephosWire

/// What a container should hold, said a second time in plain Swift: no rows, no pages, nothing that is done in steps.
struct DocumentModel {
    struct Content: Equatable {
        var version: Data
        var base: Data
        /// The bytes themselves, or the root of a long content.
        var inline = Data()
        var root = Data()
        var sameAs: [Data] = []

        init(_ wire: WireDocumentContent) {
            (version, base, inline, root, sameAs) = (wire.version, wire.base, wire.inline, wire.root, wire.sameAs)
        }

        func hasBytes(of other: Content) -> Bool { inline == other.inline && root == other.root }
    }

    struct Announcement: Equatable {
        var version: Data
        var length: UInt64
    }

    struct Item: Equatable {
        var parent: DocumentID
        var name: [UInt8]
        var place: Data
        /// Nil: it is a folder.
        var content: Content?
        var conflicts: [Content] = []
        /// All that are kept, the oldest first.
        var versions: [Content] = []
        var renditions: [String: Content] = [:]
        var announcements: [Announcement] = []
        var isInTrash = false

        var isFolder: Bool { content == nil }
        var live: [Content] { (content.map { [$0] } ?? []) + conflicts }

        /// Bytes that it counts besides its contents.
        var countedBytes: Int {
            256 + name.count + renditions.keys.reduce(0) { $0 + 512 + $1.utf8.count } + 512 * announcements.count
        }
    }

    /// A change that the service is to refuse.
    struct Refused: Error {
        var code: CloudError.Code
    }

    /// Whether names that differ only in case are the same.
    var foldsNames = false
    private(set) var items: [DocumentID: Item] = [:]
    /// What was removed for good.
    private(set) var ended: Set<DocumentID> = []

    /// Everything that is kept, each as often as it is.
    var contents: [Content] { items.values.flatMap { $0.versions + $0.renditions.values } }

    /// What items, their rows and short contents count: all but chunks and nodes.
    var countedBytes: Int {
        items.values.reduce(0) { sum, item in
            sum + item.countedBytes + item.versions.reduce(0) { $0 + 512 + $1.inline.count }
                + item.renditions.values.reduce(0) { $0 + $1.inline.count }
        }
    }

    // MARK: Batches

    /// Carries out all of the changes or none.
    ///
    /// - Returns: Bytes that have to be free for them on the plan, besides those of manifest nodes.
    /// - Throws: ``Refused``: the first that cannot be.
    mutating func apply(_ changes: [WireDocumentChange]) throws -> Int {
        var next = self
        var removed: Set<DocumentID> = []
        var charged = 0
        for change in changes {
            guard let id = DocumentID(bytes: change.item) else { throw Refused(code: .invalidArguments) }
            try next.apply(change, id, over: self, &removed, &charged)
        }
        let touched = Set(changes.compactMap { DocumentID(bytes: $0.item) })
        let more = touched.reduce(0) {
            $0 + (next.items[$1]?.countedBytes ?? 0) - (items[$1]?.countedBytes ?? 0)
        }
        next.removeWhatLies(in: removed)
        self = next
        return charged + max(0, more)
    }

    private mutating func removeWhatLies(in folders: Set<DocumentID>) {
        var gone = folders
        while true {
            let more = items.filter { gone.contains($0.value.parent) && !gone.contains($0.key) }.keys
            if more.isEmpty { break }
            gone.formUnion(more)
        }
        for id in gone { items[id] = nil }
        ended.formUnion(gone)
    }

    private mutating func apply(
        _ change: WireDocumentChange, _ id: DocumentID, over before: DocumentModel, _ removed: inout Set<DocumentID>,
        _ charged: inout Int
    ) throws {
        switch change.kind {
        case .create(let request): try create(id, request, removed, &charged)
        case .replace(let request): try replace(id, request, over: before, &charged)
        case .place(let request): try place(id, request)
        case .trash(let request):
            var item = try item(id)
            if item.isInTrash { return }
            guard request.base.isEmpty || request.base == item.content?.version ?? Data() else {
                throw Refused(code: .constraintViolation)
            }
            item.isInTrash = true
            items[id] = item
        case .restore(let request): try restore(id, request)
        case .remove:
            guard let item = items[id] else {
                guard ended.contains(id) || removed.contains(id) else { throw Refused(code: .unknownItem) }
                return
            }
            guard item.isInTrash else { throw Refused(code: .constraintViolation) }
            removed.insert(id)
            items[id] = nil
        case .resolve(let request):
            var item = try item(id)
            item.conflicts.removeAll { request.versions.contains($0.version) }
            items[id] = item
        case .versions(let request): try removeVersions(id, request.versions)
        case .announce(let request): try announce(id, request)
        case .rendition(let request): try setRendition(id, request, over: before, &charged)
        default: throw Refused(code: .incompatibleVersion)
        }
    }

    private func item(_ id: DocumentID) throws -> Item {
        guard let item = items[id] else { throw Refused(code: .unknownItem) }
        return item
    }

    private func contentItem(_ id: DocumentID) throws -> Item {
        let item = try item(id)
        guard !item.isFolder else { throw Refused(code: .invalidArguments) }
        return item
    }

    /// Announcements of contents that have not come within a day end.
    mutating func endAnnouncements() {
        for id in items.keys { items[id]?.announcements = [] }
    }

    // MARK: Places

    private func checkFolder(_ folder: DocumentID, moved: DocumentID? = nil) throws {
        var next = folder
        while !next.isFixed {
            guard next != moved else { throw Refused(code: .constraintViolation) }
            guard let item = items[next], item.isFolder, !item.isInTrash else { throw Refused(code: .unknownItem) }
            next = item.parent
        }
    }

    /// Neither it nor anything that it lies in is in the trash.
    private func checkLives(_ item: Item) throws {
        guard !item.isInTrash else { throw Refused(code: .unknownItem) }
        var next = item.parent
        while !next.isFixed {
            guard let above = items[next], !above.isInTrash else { throw Refused(code: .unknownItem) }
            next = above.parent
        }
    }

    func lives(_ item: Item) -> Bool { (try? checkLives(item)) != nil }

    private func isSame(_ left: [UInt8], _ right: [UInt8]) -> Bool {
        guard foldsNames else { return left == right }
        // Of strings Swift compares what they mean, not how they are written.
        return String(decoding: left, as: UTF8.self).lowercased() == String(decoding: right, as: UTF8.self).lowercased()
    }

    private func name(_ name: [UInt8], in folder: DocumentID, for id: DocumentID, _ clash: WireNameClash) throws
        -> [UInt8]
    {
        let others = items.filter { $0.key != id && $0.value.parent == folder && !$0.value.isInTrash }.map(\.value.name)
        var (taken, number) = (name, 2)
        while others.contains(where: { isSame($0, taken) }) {
            guard clash == .rename else { throw Refused(code: .alreadyExists) }
            let text = String(decoding: name, as: UTF8.self)
            let parts = text.split(separator: ".", omittingEmptySubsequences: false)
            let hasExtension = parts.count > 1 && !parts[0].isEmpty
            let stem = hasExtension ? parts.dropLast().joined(separator: ".") : text
            taken = [UInt8]((stem + " \(number)" + (hasExtension ? ".\(parts[parts.count - 1])" : "")).utf8)
            number += 1
        }
        return taken
    }

    private mutating func create(
        _ id: DocumentID, _ request: WireCreateItem, _ removed: Set<DocumentID>, _ charged: inout Int
    ) throws {
        if let known = items[id] {
            if known.place == request.placeVersion { return }
            if request.hasContent, known.versions.contains(where: { $0.version == request.content.version }) { return }
            throw Refused(code: .alreadyExists)
        }
        guard !ended.contains(id), !removed.contains(id) else { throw Refused(code: .unknownItem) }
        guard let folder = DocumentID(bytes: request.parent) else { throw Refused(code: .invalidArguments) }
        try checkFolder(folder)
        var item = Item(
            parent: folder, name: try name([UInt8](request.name), in: folder, for: id, request.clash),
            place: request.placeVersion)
        if request.hasContent {
            var content = Content(request.content)
            content.sameAs = []
            item.content = content
            item.versions = [content]
            charged += 512 + content.inline.count
        }
        items[id] = item
    }

    private mutating func place(_ id: DocumentID, _ request: WirePlaceItem) throws {
        var item = try item(id)
        if item.place == request.placeVersion { return }
        guard !item.isInTrash, request.base.isEmpty || request.base == item.place else {
            throw Refused(code: .constraintViolation)
        }
        guard let folder = DocumentID(bytes: request.parent) else { throw Refused(code: .invalidArguments) }
        try checkFolder(folder, moved: item.isFolder && folder != item.parent ? id : nil)
        item.name = try name([UInt8](request.name), in: folder, for: id, request.clash)
        (item.parent, item.place) = (folder, request.placeVersion)
        items[id] = item
    }

    private mutating func restore(_ id: DocumentID, _ request: WireRestoreItem) throws {
        var item = try item(id)
        guard item.isInTrash else { return }
        do { try checkFolder(item.parent) } catch { item.parent = .documents }
        item.name = try name(item.name, in: item.parent, for: id, request.clash)
        item.isInTrash = false
        items[id] = item
    }

    // MARK: Contents

    private mutating func replace(
        _ id: DocumentID, _ request: WireReplaceContent, over before: DocumentModel, _ charged: inout Int
    ) throws {
        var item = try contentItem(id)
        var content = Content(request.content)
        content.sameAs = []
        if let heir = item.live.first(where: { $0.sameAs.contains(content.base) }) { content.base = heir.version }
        if item.versions.contains(where: { $0.version == content.version }) { return }
        try checkLives(item)
        item.announcements.removeAll { $0.version == content.version }
        guard let current = item.content else { return }
        var isHeir = false
        if content.base == current.version {
            if current.hasBytes(of: content), !item.conflicts.contains(where: { $0.base == current.version }) {
                content.sameAs = Array(([current.version] + current.sameAs).prefix(8))
                // One that the same batch has brought has no row yet that another could take.
                isHeir = before.items[id]?.versions.contains { $0.version == current.version } ?? false
                if isHeir { item.versions.removeAll { $0.version == current.version } }
            } else if let equal = item.conflicts.first(where: { $0.hasBytes(of: content) }) {
                content.sameAs = Array(([equal.version] + equal.sameAs).prefix(8))
            }
            item.content = content
            item.conflicts.removeAll { $0.hasBytes(of: content) }
        } else if item.live.contains(where: { $0.hasBytes(of: content) }) {
            return items[id] = item
        } else if let index = item.conflicts.firstIndex(where: { $0.version == content.base }) {
            item.conflicts[index] = content
        } else {
            guard !request.failOnConflict else { throw Refused(code: .constraintViolation) }
            guard item.conflicts.count < 16 else { throw Refused(code: .limitExceeded) }
            item.conflicts.append(content)
        }
        item.versions.append(content)
        if !isHeir { charged += 512 + content.inline.count }
        items[id] = item
    }

    private mutating func removeVersions(_ id: DocumentID, _ versions: [Data]) throws {
        var item = try contentItem(id)
        guard !item.live.contains(where: { versions.contains($0.version) }) else {
            throw Refused(code: .constraintViolation)
        }
        item.versions.removeAll { versions.contains($0.version) }
        items[id] = item
    }

    private mutating func announce(_ id: DocumentID, _ request: WireAnnounceContent) throws {
        var item = try contentItem(id)
        if item.versions.contains(where: { $0.version == request.version }) { return }
        if request.length > 0 { try checkLives(item) }
        let place = item.announcements.firstIndex { $0.version == request.version }
        if request.length == 0 {
            if let place { item.announcements.remove(at: place) }
        } else if let place {
            item.announcements[place].length = request.length
        } else {
            guard item.announcements.count < 8 else { throw Refused(code: .limitExceeded) }
            item.announcements.append(Announcement(version: request.version, length: request.length))
        }
        items[id] = item
    }

    private mutating func setRendition(
        _ id: DocumentID, _ request: WireSetRendition, over before: DocumentModel, _ charged: inout Int
    ) throws {
        var item = try contentItem(id)
        let name = String(decoding: request.name, as: UTF8.self)
        let former = item.renditions[name]
        if request.hasContent, former?.version == request.content.version { return }
        guard request.hasContent || former != nil else { return }
        if request.hasContent { try checkLives(item) }
        if let former, before.items[id]?.renditions[name] != former { charged -= former.inline.count }
        item.renditions[name] = nil
        if request.hasContent {
            guard item.renditions.count < 8 else { throw Refused(code: .limitExceeded) }
            var content = Content(request.content)
            (content.base, content.sameAs) = (Data(), [])
            item.renditions[name] = content
            charged += content.inline.count
        }
        items[id] = item
    }
}
