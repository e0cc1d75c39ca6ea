internal import Foundation
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// An item that a batch has changed.
struct ChangedItem {
    var name: ItemName
    /// A `DocumentItem`; nil: it was removed.
    var body: [UInt8]?

    func stored(in container: Container, digestKey: [UInt8]) throws -> FeedItem {
        guard let body else { return FeedItem(name: name, deleted: true, digest: .empty, size: 0, body: []) }
        return FeedItem(
            name: name, deleted: false, digest: SetDigest(ofItem: name, body: body, key: digestKey), size: body.count,
            body: try container.seal(body, as: .item(name)))
    }

    /// As devices get it.
    ///
    /// - Parameter bytesMax: A longer body is left out, and fetched.
    func wire(at sequence: UInt64, bytesMax: Int = .max) -> WireChange {
        var change = WireChange()
        change.item = name.rawValue
        change.sequence = sequence
        change.deleted = body == nil
        if let body, body.count <= bytesMax { change.body = Data(body) }
        return change
    }
}

/// A batch of changes while it is decided: the container as it will be, over the container as it is. Nothing is written
/// before everything is decided.
final class Batch {
    /// A name of a folder, as the container compares it.
    struct Place: Hashable {
        var folder: ItemID
        var nameKey: [UInt8]
    }

    let container: Container
    let rule: NameRule
    private let writer: Writer

    /// Who changes the container, and when.
    struct Writer {
        var app: AppID
        var device: DeviceID
        var now: Timestamp
        /// Whether the head that the device has shown is of the present history.
        var knowsHistory: Bool

        /// Nanoseconds since 1970.
        var nanoseconds: Int64 {
            Int64(clamping: now.milliseconds.multipliedReportingOverflow(by: 1_000_000).partialValue)
        }
    }

    /// Items that were looked at, as they will be; nil: there is none.
    private var items: [ItemID: WireDocumentItem?] = [:]
    /// Items that change, in the order of their first change.
    private(set) var changed: [ItemID] = []
    /// Items that are already as was asked.
    private var mentioned: [ItemID] = []
    private var places: [Place: ItemID?] = [:]
    private var counts: [ItemID: Int] = [:]
    /// Which items a folder has besides (true) or no more (false).
    private var children: [ItemID: [ItemID: Bool]] = [:]
    private(set) var versions: [(item: ItemID, content: WireDocumentContent)] = []
    /// Items whose versions go, with their folders' items.
    private(set) var removed: [ItemID] = []
    private var created = 0
    private var looks = 0
    private var seen: (sequence: UInt64, changes: [ItemID])?
    /// Items that come into the trash (true), or leave it.
    private(set) var trashed: [ItemID: Bool] = [:]

    init(_ container: Container, _ rule: NameRule, by writer: Writer) {
        self.container = container
        self.rule = rule
        self.writer = writer
    }

    // MARK: What is there

    /// Nobody makes the others wait by what has to be looked up for one batch.
    private func look() throws {
        looks += 1
        guard looks <= DocumentLimits.looksMax else {
            throw CloudError(
                .limitExceeded, "The batch concerns too many folders and names at once. Divide it.",
                details: ["maximum": "\(DocumentLimits.looksMax)"])
        }
    }

    func find(_ id: ItemID) throws -> WireDocumentItem? {
        if let known = items[id] { return known }
        try look()
        let item = try container.item(id)
        items.updateValue(item, forKey: id)
        return item
    }

    private func item(_ id: ItemID) throws -> WireDocumentItem {
        guard let item = try find(id) else { throw Self.unknown(id) }
        return item
    }

    /// The item does not change, and the device gets it all the same.
    private func mention(_ id: ItemID) {
        if !changed.contains(id), !mentioned.contains(id) { mentioned.append(id) }
    }

    private func set(_ item: WireDocumentItem?, _ id: ItemID) {
        items.updateValue(item, forKey: id)
        if !changed.contains(id) { changed.append(id) }
    }

    private func item(at place: Place) throws -> ItemID? {
        try look()
        if let known = places[place] { return known }
        return try container.rows.item(in: place.folder, called: place.nameKey)
    }

    private func count(of folder: ItemID) throws -> Int {
        try counts[folder] ?? container.rows.count(of: folder)
    }

    /// Checks that something may be put into the folder: it is there, not in the trash, and not too deep.
    ///
    /// - Parameter moved: What is put there; it is not to lie within itself.
    private func checkFolder(_ folder: ItemID, moved: ItemID? = nil) throws {
        var next = folder
        var depth = 1
        while !next.isBuiltIn {
            if next == moved {
                throw CloudError(
                    .constraintViolation, "A folder cannot be moved into itself.", details: Self.details(next))
            }
            guard let above = try find(next), above.kind == .folder, !above.hasTrash else { throw Self.unknown(folder) }
            guard let parent = ItemID(bytes: above.parent), depth < DocumentLimits.depthMax else {
                throw CloudError(
                    .limitExceeded, "The folder lies too deep. Put the item further up.",
                    details: Self.details(folder).merging(["depth_max": "\(DocumentLimits.depthMax)"]) { $1 })
            }
            next = parent
            depth += 1
        }
    }

    /// Whether the item lies in the folder, however deep. An item of which something above is gone lies nowhere.
    func lies(_ id: ItemID, in folder: ItemID) throws -> Bool {
        var next = id
        // One that lies too deep was moved there with what is above it.
        for _ in 0..<(4 * DocumentLimits.depthMax) {
            try look()
            if next == folder { return true }
            guard !next.isBuiltIn, let parent = try find(next).flatMap({ ItemID(bytes: $0.parent) }) else {
                return false
            }
            next = parent
        }
        return true
    }

    // MARK: Places

    /// Takes a name of a folder.
    ///
    /// - Returns: The name that the item has now.
    private func take(_ name: [UInt8], in folder: ItemID, for id: ItemID, _ clash: WireNameClash) throws -> [UInt8] {
        try NameRule.check(name)
        guard try count(of: folder) < DocumentLimits.folderCountMax else {
            throw CloudError(
                .limitExceeded, "The folder is full. Put the item into another one.",
                details: Self.details(folder).merging(["maximum": "\(DocumentLimits.folderCountMax)"]) { $1 })
        }
        var taken = name
        var number = 2
        while true {
            let place = Place(folder: folder, nameKey: try container.key(of: taken, by: rule))
            let other = try item(at: place)
            if other == nil || other == id, !(try isDocuments(place)) {
                places.updateValue(id, forKey: place)
                counts[folder] = try count(of: folder) + 1
                return taken
            }
            guard clash == .rename, number <= Self.numberMax else {
                throw CloudError(
                    .alreadyExists, "The folder has an item of that name. Choose another name.",
                    details: other.map { Self.details($0) } ?? [:])
            }
            taken = NameRule.numbered(name, number)
            number += 1
        }
    }

    /// Names that are tried before an item is refused.
    private static let numberMax = 1000

    private func isDocuments(_ place: Place) throws -> Bool {
        try place.folder == .top && place.nameKey == container.key(of: [UInt8]("Documents".utf8), by: rule)
    }

    private func leave(_ item: WireDocumentItem) throws {
        guard let folder = ItemID(bytes: item.parent) else { return }
        let nameKey = try container.key(of: [UInt8](item.name), by: rule)
        places.updateValue(nil, forKey: Place(folder: folder, nameKey: nameKey))
        counts[folder] = max(0, try count(of: folder) - 1)
    }

    // MARK: Changes

    func apply(_ change: WireDocumentChange) throws {
        guard let id = ItemID(bytes: change.item), !id.isBuiltIn else {
            throw CloudError(
                .invalidArguments,
                "An item is named by 16 bytes, which are not those of a folder that every container has.",
                details: ["argument": "item"])
        }
        switch change.kind {
        case .create(let create): try self.create(id, create)
        case .replace(let replace): try self.replace(id, replace)
        case .place(let place): try self.place(id, place)
        case .attributes(let attributes): try setAttributes(id, attributes)
        case .trash(let trash): try self.trash(id, trash)
        case .restore(let restore): try self.restore(id, restore)
        case .remove: try remove(id)
        case .resolve(let resolve): try self.resolve(id, resolve)
        case nil:
            throw CloudError(
                .incompatibleVersion, "The change is of a kind that this version does not know. Upgrade the older side."
            )
        }
    }

    private func create(_ id: ItemID, _ request: WireCreateItem) throws {
        try ContentRule.checkVersion([UInt8](request.placeVersion), "place_version")
        if let known = try find(id) {
            // Its own commit, repeated: what has become of the item since is nobody's loss.
            if known.placeVersion == request.placeVersion { return }
            if request.hasContent, try isKnown(request.content.version, of: id) { return }
            throw CloudError(
                .alreadyExists, "There is an item of this id. Choose another id.", details: Self.details(id))
        }
        guard try !removed.contains(id) && !container.wasUsed(id) && !container.rows.isRemoved(id) else {
            throw CloudError(
                .unknownItem, "The item was removed for good. Make another under a new id.", details: Self.details(id))
        }
        guard try container.head().liveCount + created < DocumentLimits.itemCountMax else {
            throw CloudError(
                .limitExceeded, "The container has too many items.",
                details: ["maximum": "\(DocumentLimits.itemCountMax)"])
        }
        guard let folder = ItemID(bytes: request.parent) else { throw Self.noFolder }
        var item = WireDocumentItem()
        switch request.kind {
        case .file, .link:
            guard request.hasContent else {
                throw CloudError(.invalidArguments, "A file has a content.", details: ["argument": "content"])
            }
            try ContentRule.check(request.content, of: request.kind)
        case .folder:
            guard !request.hasContent else {
                throw CloudError(.invalidArguments, "A folder has no content.", details: ["argument": "content"])
            }
        case .unspecified, .UNRECOGNIZED:
            throw CloudError(
                .incompatibleVersion, "The item is of a kind that this version does not know. Upgrade the older side.")
        }
        try AttributeRule.check(request.attributes)
        try checkFolder(folder)
        item.kind = request.kind
        item.parent = request.parent
        item.placeVersion = request.placeVersion
        item.name = Data(try take([UInt8](request.name), in: folder, for: id, request.clash))
        if request.hasContent { item.content = commit(request.content, of: id) }
        if request.hasAttributes { item.attributes = request.attributes.canonical }
        children[folder, default: [:]][id] = true
        created += 1
        set(item, id)
    }

    /// Notes a new version, with who made it.
    private func commit(_ content: WireDocumentContent, of id: ItemID) -> WireDocumentContent {
        var content = ContentRule.canonical(content)
        content.deviceID = writer.device.rawValue
        content.appID = writer.app.rawValue
        content.committed = writer.nanoseconds
        versions.append((id, content))
        return content
    }

    private func isKnown(_ version: Data, of id: ItemID) throws -> Bool {
        try versions.contains { $0.item == id && $0.content.version == version }
            || container.rows.hasVersion([UInt8](version), of: id)
    }

    private func replace(_ id: ItemID, _ request: WireReplaceContent) throws {
        var item = try self.item(id)
        guard item.hasContent else {
            throw CloudError(.invalidArguments, "A folder has no content.", details: Self.details(id))
        }
        try ContentRule.check(request.content, of: item.kind)
        if try isKnown(request.content.version, of: id) { return }
        if request.content.base == item.content.version {
            item.content = commit(request.content, of: id)
        } else if ([item.content] + item.conflicts).contains(where: { $0.hasBytes(of: request.content) }) {
            // Nobody loses anything; the device learns which version has its bytes.
            return mention(id)
        } else if let index = item.conflicts.firstIndex(where: { $0.version == request.content.base }) {
            // Whoever has lost goes on with what they have.
            item.conflicts[index] = commit(request.content, of: id)
        } else {
            guard !request.failOnConflict else { throw Self.changedMeanwhile(id) }
            guard item.conflicts.count < DocumentLimits.conflictsMax else {
                throw CloudError(
                    .limitExceeded, "The item has too many conflicts. Resolve some of them.",
                    details: Self.details(id).merging(["maximum": "\(DocumentLimits.conflictsMax)"]) { $1 })
            }
            item.conflicts.append(commit(request.content, of: id))
        }
        set(item, id)
    }

    private func place(_ id: ItemID, _ request: WirePlaceItem) throws {
        var item = try self.item(id)
        try ContentRule.checkVersion([UInt8](request.placeVersion), "place_version")
        if item.placeVersion == request.placeVersion { return }
        guard !item.hasTrash else {
            throw CloudError(
                .constraintViolation, "The item lies in the trash. Restore it first.", details: Self.details(id))
        }
        guard request.base.isEmpty || request.base == item.placeVersion else { throw Self.changedMeanwhile(id) }
        guard let folder = ItemID(bytes: request.parent) else { throw Self.noFolder }
        try checkFolder(folder, moved: item.kind == .folder ? id : nil)
        try leave(item)
        let name = try take([UInt8](request.name), in: folder, for: id, request.clash)
        if let old = ItemID(bytes: item.parent), old != folder {
            children[old, default: [:]][id] = false
            children[folder, default: [:]][id] = true
        }
        item.parent = request.parent
        item.name = Data(name)
        item.placeVersion = request.placeVersion
        set(item, id)
    }

    private func setAttributes(_ id: ItemID, _ request: WireSetAttributes) throws {
        var item = try self.item(id)
        item.attributes.merge(request)
        try AttributeRule.check(item.attributes)
        set(item, id)
    }

    private func trash(_ id: ItemID, _ request: WireTrashItem) throws {
        var item = try self.item(id)
        try ContentRule.checkVersion([UInt8](request.batch), "batch")
        if item.hasTrash { return }
        guard request.base.isEmpty || request.base == item.content.version else { throw Self.changedMeanwhile(id) }
        if item.kind == .folder, request.seenSequence > 0 {
            guard writer.knowsHistory else {
                throw CloudError(
                    .constraintViolation,
                    "What this device has seen is of another history of the container. Read on, and delete it then.",
                    details: Self.details(id))
            }
            try checkUnchanged(id, since: request.seenSequence)
        }
        try leave(item)
        item.trash.batch = request.batch
        item.trash.deviceID = writer.device.rawValue
        item.trash.trashed = writer.nanoseconds
        trashed[id] = true
        set(item, id)
    }

    /// Changes that are looked at before a folder's deletion is refused: the device has seen too little of it.
    private static let unseenMax = 1000

    /// What somebody has put into a folder is not deleted by somebody who has not seen it.
    private func checkUnchanged(_ folder: ItemID, since sequence: UInt64) throws {
        let unseen = try changes(since: sequence)
        guard unseen.count <= Self.unseenMax else {
            throw CloudError(
                .constraintViolation,
                "Too much has changed since this device looked. Read on, and delete it then.",
                details: Self.details(folder))
        }
        let within = try unseen.filter { try $0 != folder && lies($0, in: folder) }
        guard within.isEmpty else {
            throw CloudError(
                .constraintViolation,
                "Something in the folder has changed since this device looked. Look again, and delete it then.",
                details: Self.details(folder).merging(
                    ["changed": within.prefix(10).map(\.description).joined(separator: " ")]) { $1 })
        }
    }

    /// Items that live and have changed since, read once for the batch.
    private func changes(since sequence: UInt64) throws -> [ItemID] {
        if let seen, seen.sequence == sequence { return seen.changes }
        var changes: [ItemID] = []
        var count = 0
        try container.transaction.rows(container.scope, after: sequence, nil) { row in
            count += 1
            if !row.deleted, let id = ItemID(row.name) { changes.append(id) }
            return count <= Self.unseenMax
        }
        looks += count
        try look()
        // Nothing is known of those that were not read.
        if count > Self.unseenMax { changes = Array(repeating: .top, count: Self.unseenMax + 1) }
        seen = (sequence, changes)
        return changes
    }

    private func restore(_ id: ItemID, _ request: WireRestoreItem) throws {
        var item = try self.item(id)
        guard item.hasTrash else { return }
        guard let old = ItemID(bytes: item.parent) else { throw Self.noFolder }
        var folder = old
        // Where it was is gone, or lies in the trash itself: then where the person finds it.
        do { try checkFolder(folder) } catch let error as CloudError where error.code == .unknownItem {
            folder = .documents
        }
        item.name = Data(try take([UInt8](item.name), in: folder, for: id, request.clash))
        if folder != old {
            children[old, default: [:]][id] = false
            children[folder, default: [:]][id] = true
            item.parent = Data(folder.bytes)
        }
        item.clearTrash()
        trashed[id] = false
        set(item, id)
    }

    private func remove(_ id: ItemID) throws {
        guard let item = try find(id) else {
            guard try container.wasUsed(id) else { throw Self.unknown(id) }
            return
        }
        guard item.hasTrash else {
            throw CloudError(
                .constraintViolation, "Only what lies in the trash can be removed for good. Delete it first.",
                details: Self.details(id))
        }
        if let folder = ItemID(bytes: item.parent) { children[folder, default: [:]][id] = false }
        removed.append(id)
        trashed[id] = false
        set(nil, id)
    }

    private func resolve(_ id: ItemID, _ request: WireResolveConflicts) throws {
        var item = try self.item(id)
        let before = item.conflicts.count
        item.conflicts.removeAll { request.versions.contains($0.version) }
        if item.conflicts.count < before { set(item, id) }
    }

    // MARK: Writing

    /// Writes the rows beside the items.
    func writeRows() throws {
        let rows = container.rows
        for (place, item) in places { try rows.set(item, in: place.folder, called: place.nameKey) }
        for (folder, count) in counts { try rows.setCount(count, of: folder) }
        for (folder, items) in children {
            for (item, isThere) in items {
                if isThere { try rows.addChild(item, of: folder) } else { try rows.removeChild(item, of: folder) }
            }
        }
        for (id, isThere) in trashed { try rows.setTrashed(id, at: isThere ? writer.now : nil) }
        for id in removed { try rows.addRemoval(of: id) }
        for (id, content) in versions { try write(content, of: id) }
    }

    private func write(_ content: WireDocumentContent, of id: ItemID) throws {
        let version = [UInt8](content.version)
        let number = (try container.rows.versions(of: id, limit: 1).first?.number ?? 0) + 1
        let sealed = try container.seal(content.serializedBytes(), as: .version(id, version))
        try container.rows.add(ContainerRows.Version(id: version, number: number, sealed: sealed), of: id)
    }

    /// Versions that are no more kept: beyond ``DocumentLimits/versionsMax`` the oldest that nothing points to. After
    /// the rows were written.
    func takeOldVersions() throws -> [WireDocumentContent] {
        var old: [WireDocumentContent] = []
        for id in Set(versions.map(\.item)) {
            guard let item = items[id] ?? nil else { continue }
            let extra = try container.rows.versionCount(of: id) - DocumentLimits.versionsMax
            guard extra > 0 else { continue }
            let pointedAt = Set(([item.content] + item.conflicts).map { [UInt8]($0.version) })
            let oldest = try container.rows.oldestVersions(of: id, limit: pointedAt.count + extra)
                .filter { !pointedAt.contains($0.id) }
            for version in oldest.prefix(extra) {
                try container.rows.removeVersion(version.id, of: id)
                if let content = try container.open(version, of: id) { old.append(content) }
            }
        }
        return old
    }

    /// The changed items as they are stored and as devices get them. Each is encoded once: maps have no order.
    func encoded() throws -> [ChangedItem] {
        try changed.map { id in
            ChangedItem(name: id.name, body: try (items[id] ?? nil)?.serializedBytes())
        }
    }

    /// Those that have not changed and are told all the same.
    func encodedMentions() throws -> [ChangedItem] {
        try mentioned.filter { !changed.contains($0) }.map { id in
            ChangedItem(name: id.name, body: try (items[id] ?? nil)?.serializedBytes())
        }
    }

    // MARK: Errors

    private static let noFolder = CloudError(
        .invalidArguments, "A folder is named by 16 bytes.", details: ["argument": "parent"])

    private static func details(_ id: ItemID) -> [String: String] { ["item": id.description] }

    private static func unknown(_ id: ItemID) -> CloudError {
        CloudError(.unknownItem, "The container has no such item, or it lies in the trash.", details: details(id))
    }

    private static func changedMeanwhile(_ id: ItemID) -> CloudError {
        CloudError(
            .constraintViolation, "The item has changed since this device looked. Look again, and change it then.",
            details: details(id))
    }
}
