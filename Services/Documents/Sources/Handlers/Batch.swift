internal import Foundation
internal import NephosBulk
internal import NephosCore
internal import NephosPredicates
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// A batch of changes while it is decided: the container as it will be, over the container as it is. Nothing is written
/// before everything is decided.
final class Batch {
    /// A name of a folder, as the container compares it.
    struct Place: Hashable {
        var folder: DocumentID
        var nameKey: [UInt8]
    }

    let container: Container
    let rule: DocumentNameRule
    let containerClass: ContainerClass
    let writer: Writer

    /// Who changes the container, and when.
    struct Writer {
        var app: AppID
        var device: DeviceID
        var now: Timestamp
        /// Former versions go by this one.
        var purgeTimeOfWallStamps: Timestamp
        /// What is done now is kept from then on.
        var retentionStart: Timestamp
        /// The batch.
        var operation: OperationID
    }

    /// A version's name is one among an item's alone: devices choose it.
    struct ItemVersion: Hashable {
        var item: DocumentID
        var version: [UInt8]
    }

    /// Items that were looked at, as they will be; nil: there is none.
    private var items: [DocumentID: WireDocumentItem?] = [:]
    /// What those that were there counted besides their contents.
    private(set) var sizes: [DocumentID: UInt64] = [:]
    /// Where those lay that were there.
    private var formerPlaces: [DocumentID: FolderDigests.Place] = [:]
    /// The same from now on, of those of which that has changed; nil: they are removed.
    var counted: [DocumentID: CountedItem?] = [:]
    /// Items that change, in the order of their first change.
    private(set) var changed: [DocumentID] = []
    /// Items that are already as was asked.
    private var mentioned: [DocumentID] = []
    var places: [Place: DocumentID?] = [:]
    var counts: [DocumentID: Int] = [:]
    /// As in ``ContainerRows/height(of:)``, and which of them are others now.
    private var heights: [DocumentID: Int] = [:]
    private var raised: Set<DocumentID> = []
    /// Which items a folder has besides (true) or no more (false).
    var children: [DocumentID: [DocumentID: Bool]] = [:]
    var versions: [(item: DocumentID, content: WireDocumentContent)] = []
    /// Further contents that come, and those whose place is taken by them or by nothing.
    var renditions: [(item: DocumentID, content: WireDocumentContent)] = []
    var formerRenditions: [(item: DocumentID, content: WireDocumentContent)] = []
    /// Of items that get another version: when the one before was committed.
    private var formerCommits: [DocumentID: Int64] = [:]
    /// Items whose versions go, with their folders' items.
    var removed: [DocumentID] = []
    var created = 0
    var looks = 0
    var seen: (sequence: UInt64, changes: [DocumentID])?
    /// Versions that are removed, of each item.
    var retired: [DocumentID: Set<[UInt8]>] = [:]
    var retiredCount = 0
    /// Versions that were named to be removed.
    var namedCount = 0
    /// Versions that take the place of one with the same bytes: what their rows count; those; and for whom that counts.
    var heirs: [ItemVersion: UInt64] = [:]
    var inherited: Set<ItemVersion> = []
    var handedOn = CountChanges()
    /// Items of which a content is said to be on its way, or not any more.
    var announced: Set<DocumentID> = []
    /// Items that come into the trash, or leave it (nil).
    var trashed: [DocumentID: WireTrashNote?] = [:]
    /// Items that became one with others of their names: the surviving one of each.
    var merged: [Data: Data] = [:]
    /// The change that is carried out brings back what the service has lost.
    var isOffered = false
    /// Items that were in quarantine: what is kept beside them is there still.
    var returning: Set<DocumentID> = []

    init(_ container: Container, _ rules: Container.Rules, by writer: Writer) {
        self.container = container
        rule = rules.names
        containerClass = rules.containerClass
        self.writer = writer
    }

    // MARK: What is there

    /// Nobody makes the others wait by what has to be looked up for one batch.
    ///
    /// - Parameter count: More than one where much has to be gone through.
    func look(times count: Int = 1) throws {
        looks += count
        guard looks <= DocumentLimits.looksMax else {
            throw CloudError(
                .limitExceeded, "The batch concerns too many folders and names at once. Divide it.",
                details: ["maximum": "\(DocumentLimits.looksMax)"])
        }
    }

    func find(_ id: DocumentID) throws -> WireDocumentItem? {
        // What a device is about to make is no item.
        try stored(id).flatMap { $0.kind == .coming ? nil : $0 }
    }

    func stored(_ id: DocumentID) throws -> WireDocumentItem? {
        if let known = items[id] { return known }
        try look()
        let item = try container.item(id)
        guard container.openedBytes <= DocumentLimits.looksBytesMax else {
            throw CloudError(
                .limitExceeded, "The batch concerns items that are too large together. Divide it.",
                details: ["bytes_max": "\(DocumentLimits.looksBytesMax)"])
        }
        items.updateValue(item, forKey: id)
        if let item {
            sizes[id] = try item.countedBytes()
            formerPlaces[id] = FolderDigests.Place(item)
        }
        return item
    }

    /// Where a folder lies, and whether that is in the trash, in its own right; nil: there is no such folder.
    private func above(_ folder: DocumentID) throws -> (parent: DocumentID?, isInTrash: Bool)? {
        guard let item = try find(folder), item.kind == .folder else { return nil }
        return (DocumentID(bytes: item.parent), item.hasTrash)
    }

    /// - Returns: Nil: it lies nowhere, or there is no such item.
    private func parent(of id: DocumentID) throws -> DocumentID? {
        try find(id).flatMap { DocumentID(bytes: $0.parent) }
    }

    /// Whether nothing is to be written.
    var isEmpty: Bool { changed.isEmpty }

    func item(_ id: DocumentID) throws -> WireDocumentItem {
        if let item = try find(id) { return item }
        var error = Self.unknown(id)
        // It may be there again.
        if try container.transaction.isQuarantined(id.name, of: container.scope) {
            error.details["reason"] = "quarantined"
        }
        throw error
    }

    /// The item does not change, and the device gets it all the same.
    func mention(_ id: DocumentID) {
        if !changed.contains(id), !mentioned.contains(id) { mentioned.append(id) }
    }

    func set(_ item: WireDocumentItem?, _ id: DocumentID) {
        items.updateValue(item, forKey: id)
        if !changed.contains(id) { changed.append(id) }
    }

    func item(at place: Place) throws -> DocumentID? {
        try look()
        if let known = places[place] {
            // As much work as a row, which is charged where it is read.
            container.transaction.charge(rows: 1)
            return known
        }
        return try container.rows.item(in: place.folder, called: place.nameKey)
    }

    func count(of folder: DocumentID) throws -> Int {
        try counts[folder] ?? container.rows.count(of: folder)
    }

    /// Checks that something may be put into the folder: it is there, not too deep, and not in the trash unless what is
    /// put there is offered again.
    ///
    /// - Parameter moved: A folder that is put there, with all that is in it; it is not to lie within itself.
    func checkFolder(_ folder: DocumentID, moved: DocumentID? = nil) throws {
        let height = try moved.map { try self.height(of: $0) + 1 } ?? 0
        var next = folder
        var depth = 1
        while !next.isFixed {
            if next == moved {
                throw CloudError(
                    .constraintViolation, "A folder cannot be moved into itself.", details: Self.details(next))
            }
            guard let above = try above(next) else { throw Self.unknown(folder) }
            guard !above.isInTrash || isOffered else { throw Self.unknown(folder, inTrash: next) }
            guard let parent = above.parent, depth < DocumentLimits.depthMax else {
                throw Self.tooDeep(folder)
            }
            next = parent
            depth += 1
        }
        if depth + height > DocumentLimits.depthMax {
            guard let moved, let measured = try measuredHeight(of: moved),
                depth + measured + 1 <= DocumentLimits.depthMax
            else { throw Self.tooDeep(folder) }
            heights[moved] = measured
            raised.insert(moved)
        }
        guard next != .documents || containerClass.hasDocuments else {
            throw CloudError(
                .constraintViolation, "A container of this class has nothing in Documents. Put it beside.",
                details: Self.details(folder).merging(["class": containerClass.name]) { $1 })
        }
    }

    private static func tooDeep(_ folder: DocumentID) -> CloudError {
        CloudError(
            .limitExceeded, "Folders would lie too deep within each other. Put the item further up.",
            details: details(folder).merging(["depth_max": "\(DocumentLimits.depthMax)"]) { $1 })
    }

    private func height(of folder: DocumentID) throws -> Int {
        if let known = heights[folder] { return known }
        try look()
        let height = try container.rows.height(of: folder)
        heights[folder] = height
        return height
    }

    /// Folders and items that are looked at for how deep a folder really is.
    private static let measuredMax = 1000

    /// How many folders lie within each other in this one. What is noted only rises: it may have been deep once.
    ///
    /// - Returns: Nil: there are too many to tell.
    private func measuredHeight(of folder: DocumentID) throws -> Int? {
        var (height, measured) = (0, 0)
        var level = [folder]
        while true {
            var below: [DocumentID] = []
            for folder in level {
                var inFolder = Set(try container.rows.children(of: folder, limit: Self.measuredMax))
                measured += inFolder.count + 1
                // A page that is full may not be all.
                guard measured <= Self.measuredMax else { return nil }
                looks += inFolder.count
                try look()
                for (id, isThere) in children[folder] ?? [:] {
                    if isThere { inFolder.insert(id) } else { inFolder.remove(id) }
                }
                for id in inFolder {
                    let made = items[id].map { $0?.kind == .folder }
                    if try made ?? (container.rows.tree(of: id) != nil) { below.append(id) }
                }
            }
            guard !below.isEmpty else { return height }
            (height, level) = (height + 1, below)
            guard height <= DocumentLimits.depthMax else { return nil }
        }
    }

    /// Notes that a folder lies in another from now on.
    func raise(_ folder: DocumentID, above child: DocumentID) throws {
        var (next, least) = (folder, try height(of: child) + 1)
        while !next.isFixed, try height(of: next) < least {
            heights[next] = least
            raised.insert(next)
            guard let parent = try parent(of: next) else { return }
            (next, least) = (parent, least + 1)
        }
    }

    /// Checks that the item lies neither in the trash nor in something that does.
    func checkLives(_ id: DocumentID, _ item: WireDocumentItem) throws {
        guard !item.hasTrash else { throw Self.unknown(id, inTrash: id) }
        var next = DocumentID(bytes: item.parent)
        // One that lies too deep was moved there with what is above it.
        for _ in 0..<(4 * DocumentLimits.depthMax) {
            guard let folder = next, !folder.isFixed else { return }
            guard let above = try above(folder) else { throw Self.unknown(id) }
            guard !above.isInTrash else { throw Self.unknown(id, inTrash: folder) }
            next = above.parent
        }
    }

    /// Whether the item lies in the folder, however deep. An item of which something above is gone lies nowhere.
    ///
    /// - Parameter known: Of what was passed on the way, the same.
    func lies(_ id: DocumentID, in folder: DocumentID, _ known: inout [DocumentID: Bool]) throws -> Bool {
        var passed: [DocumentID] = []
        var next = id
        var lies = true
        // One that lies too deep was moved there with what is above it.
        for _ in 0..<(4 * DocumentLimits.depthMax) {
            if next == folder || folder == .top && next == .documents { break }
            if let isKnown = known[next] {
                lies = isKnown
                break
            }
            try look()
            guard !next.isFixed, let parent = try parent(of: next) else {
                lies = false
                break
            }
            passed.append(next)
            next = parent
        }
        for id in passed { known[id] = lies }
        return lies
    }

    // MARK: Places

    /// Takes a name of a folder.
    ///
    /// - Returns: The name that the item has now.
    func take(_ name: [UInt8], in folder: DocumentID, for id: DocumentID, _ clash: WireNameClash) throws -> [UInt8] {
        try DocumentNameRule.check(name)
        guard try count(of: folder) < DocumentLimits.folderCountMax else {
            throw CloudError(
                .limitExceeded, "The folder is full. Put the item into another one.",
                details: Self.details(folder).merging(["maximum": "\(DocumentLimits.folderCountMax)"]) { $1 })
        }
        var (taken, base, number) = (name, name, 2)
        while true {
            let place = Place(folder: folder, nameKey: try container.key(of: taken, by: rule))
            let other = try item(at: place)
            if other == nil || other == id, !(try isDocuments(place)) {
                places.updateValue(id, forKey: place)
                counts[folder] = try count(of: folder) + 1
                return taken
            }
            guard clash == .rename || clash == .merge, number <= Self.numberMax else {
                throw CloudError(
                    .alreadyExists, "The folder has an item of that name. Choose another name.",
                    details: other.map { Self.details($0) } ?? [:])
            }
            if taken == name, let (plain, last) = try numbered(name, in: folder) { (base, number) = (plain, last + 1) }
            taken = DocumentNameRule.numbered(base, number)
            number += 1
        }
    }

    /// What the name was before it got its number: numbers do not pile up.
    ///
    /// - Returns: Nil: the number is the name's own, since nothing has the name without it.
    private func numbered(_ name: [UInt8], in folder: DocumentID) throws -> (name: [UInt8], number: Int)? {
        guard let plain = DocumentNameRule.unnumbered(name),
            try item(at: Place(folder: folder, nameKey: container.key(of: plain.name, by: rule))) != nil
        else { return nil }
        return plain
    }

    /// Names that are tried before an item is refused.
    private static let numberMax = 1000

    private func isDocuments(_ place: Place) throws -> Bool {
        try place.folder == .top && place.nameKey == container.key(of: [UInt8]("Documents".utf8), by: rule)
    }

    func leave(_ item: WireDocumentItem) throws {
        guard let folder = DocumentID(bytes: item.parent) else { return }
        let nameKey = try container.key(of: [UInt8](item.name), by: rule)
        places.updateValue(nil, forKey: Place(folder: folder, nameKey: nameKey))
        counts[folder] = max(0, try count(of: folder) - 1)
    }

    // MARK: Writing

    /// Writes the rows beside the items.
    func writeRows() throws {
        let rows = container.rows
        for (place, item) in places { try rows.set(item, in: place.folder, called: place.nameKey) }
        for (folder, count) in counts { try rows.setCount(count, of: folder) }
        for folder in raised { try rows.setHeight(heights[folder] ?? 0, of: folder) }
        for (folder, items) in children {
            for (item, isThere) in items {
                if isThere { try rows.addChild(item, of: folder) } else { try rows.removeChild(item, of: folder) }
            }
        }
        let retention = container.trashRetention(containerClass)
        for (id, note) in trashed {
            try rows.setTrashed(id, note, until: keptSince(note?.trashed ?? 0).advanced(by: retention))
        }
        for id in announced {
            try rows.setAnnounced(
                id, until: (items[id] ?? nil).flatMap { AnnouncementRule.firstEnd(of: $0.announcements) })
        }
        for id in removed { try rows.addRemoval(of: id) }
        try EndedRows.add(removed, to: container.scope, in: container.transaction)
        for (id, content) in versions { try write(content, of: id) }
        for (id, content) in formerRenditions { try rows.removeRendition([UInt8](content.version), of: id) }
        for (id, content) in renditions {
            let version = [UInt8](content.version)
            let sealed = try container.seal(content.serializedBytes(), as: .rendition(id, version))
            try rows.addRendition(version, sealed: sealed, of: id)
        }
        for (id, counted) in counted { try rows.set(counted, for: id) }
    }

    private func write(_ content: WireDocumentContent, of id: DocumentID) throws {
        let version = [UInt8](content.version)
        let latest = try container.rows.latestVersion(of: id)
        if let latest, formerCommits[id] == nil { formerCommits[id] = latest.committed }
        let sealed = try container.seal(content.serializedBytes(), as: .version(id, version))
        var number = (latest?.number ?? 0) + 1
        if let latest, content.committed < latest.committed, content.committed < writer.now.nanoseconds {
            // It was lost, and comes behind what it was before.
            number = try container.rows.lastNumber(of: id, until: content.committed) ?? 0
        }
        try container.rows.add(
            ContainerRows.Version(
                id: version, number: number, counted: counted(content.version, of: id),
                maker: CountChanges.Maker(app: AppID(content.appID), device: DeviceID(content.deviceID)),
                sealed: sealed),
            committed: Int64(clamping: keptSince(content.committed).nanoseconds), of: id)
    }

    /// Takes versions that are no more kept (``VersionRule``) of items that got another one: once an hour, and where there
    /// are more than ``ContainerClass/versionsMax``. After the rows were written.
    func takeOldVersions() throws -> [UsedContent] {
        var old: [UsedContent] = []
        for id in Set(versions.map(\.item)).sorted() {
            guard let item = items[id] ?? nil else { continue }
            let isDue = formerCommits[id].map { VersionRule.isDue(since: $0, at: writer.now.nanoseconds) } ?? false
            guard try isDue || container.rows.versionCount(of: id) > containerClass.versionsMax else { continue }
            let contents = [item.content] + item.conflicts
            // Where no former version is kept, what the current one was made from is none either.
            let keepsFormer = containerClass.versionsMax > 1
            let superfluous = VersionRule.superfluous(
                try container.versionTimes(of: id),
                needed: Set(contents.flatMap { [[UInt8]($0.version)] + (keepsFormer ? [[UInt8]($0.base)] : []) }),
                at: writer.purgeTimeOfWallStamps.nanoseconds, countMax: containerClass.versionsMax,
                ageMax: container.versionRetention(containerClass))
            for version in superfluous { old += try takeVersion(version, of: id) }
        }
        return old
    }

    /// - Returns: What it used; nothing where it is not there, and of one that is damaged what its row counts.
    func takeVersion(_ version: [UInt8], of id: DocumentID) throws -> [UsedContent] {
        guard let row = try container.rows.version(version, of: id) else { return [] }
        let content = try container.open(row, of: id)
        try container.rows.removeVersion(version, of: id)
        let isInherited = inherited.contains(ItemVersion(item: id, version: version))
        guard let content else { return isInherited ? [] : [UsedContent(rowOf: row)] }
        let used = UsedContent(content, rowBytes: isInherited ? 0 : row.counted)
        // What was handed on is not given back.
        return isInherited && used.isInline ? [] : [used]
    }

    /// The changed items as they are stored and as devices get them. Each is encoded once: maps have no order.
    func encoded() throws -> [ChangedItem] {
        try changed.map { id in
            ChangedItem(name: id.name, body: try (items[id] ?? nil)?.serializedBytes())
        }
    }

    /// Where a changed item lay, and where it lies now.
    func places(of id: DocumentID) -> (former: FolderDigests.Place?, now: FolderDigests.Place?) {
        (formerPlaces[id], (items[id] ?? nil).map { FolderDigests.Place($0) })
    }

    /// Those that have not changed and are told all the same.
    func encodedMentions() throws -> [ChangedItem] {
        try mentioned.filter { !changed.contains($0) && items[$0] != nil }.map { id in
            ChangedItem(name: id.name, body: try (items[id] ?? nil)?.serializedBytes())
        }
    }

    // MARK: Errors

    static let noFolder = CloudError(
        .invalidArguments, "A folder is named by 16 bytes.", details: ["argument": "parent"])

    static func details(_ id: DocumentID) -> [String: String] { ["item": id.description] }

    /// - Parameter folder: What lies in the trash, itself or with what is in it; nil: it was removed, or never was.
    static func unknown(_ id: DocumentID, inTrash folder: DocumentID? = nil) -> CloudError {
        CloudError(
            .unknownItem, "The container has no such item, or it lies in the trash.",
            details: details(id).merging(folder.map { ["in_trash": $0.description] } ?? [:]) { $1 })
    }

    static func changedMeanwhile(_ id: DocumentID) -> CloudError {
        CloudError(
            .constraintViolation, "The item has changed since this device looked. Look again, and change it then.",
            details: details(id))
    }
}
