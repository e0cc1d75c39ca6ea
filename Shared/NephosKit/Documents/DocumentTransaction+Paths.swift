import Foundation
import GRDB
import NephosCore
import NephosWire

/// Paths and what they lead to.
extension DocumentTransaction {
    /// What a path leads to.
    enum Place {
        /// The top, or `Documents`.
        case fixed(DocumentID)
        case item(HeldDocument)

        var id: DocumentID {
            switch self {
            case .fixed(let id): id
            case .item(let item): item.id
            }
        }

        var isFolder: Bool {
            switch self {
            case .fixed: true
            case .item(let item): item.isFolder
            }
        }
    }

    /// - Returns: Nil: nothing is there.
    func place(_ path: DocumentPath) throws -> Place? {
        var place = Place.fixed(.top)
        for (index, name) in path.names.enumerated() {
            guard place.isFolder else { return nil }
            if index == 0, try key(of: name) == key(of: DocumentPath.documents) {
                place = .fixed(.documents)
                continue
            }
            guard let child = try child(of: place.id, named: name) else { return nil }
            place = .item(child)
        }
        return place
    }

    /// Of a path that leads nowhere.
    func noItem(at path: DocumentPath) throws -> CloudError {
        let isInPackage = try path.names.indices.dropFirst().contains { count in
            guard case .item(let item)? = try place(DocumentPath(names: Array(path.names[..<count]))) else {
                return false
            }
            return item.wire.kind == .package
        }
        return isInPackage
            ? CloudError(
                .invalidArguments,
                "A package is one item: what is in it is not changed, copied or looked after by itself. Get the package, "
                    + "change it, and put it again.", details: ["path": path.text])
            : CloudError(.unknownItem, "There is no such item.", details: ["path": path.text])
    }

    /// Where the item is, and whether a folder that it is in lies in the trash.
    ///
    /// - Returns: Nil: no way leads from the top to it.
    func path(of item: HeldDocument) throws -> (path: DocumentPath, isInTrash: Bool)? {
        var names = [item.wire.name]
        var isInTrash = item.isTrashed
        var parent = item.parent
        // One more, for `Documents` itself. Folders that lie in each other lead nowhere.
        for _ in 0...DocumentLimits.depthMax {
            guard let folder = parent else { return nil }
            if folder == .top { return (DocumentPath(names: names.reversed()), isInTrash) }
            if folder == .documents {
                names.append(DocumentPath.documents)
                parent = .top
                continue
            }
            guard let held = try document(folder), held.isFolder else { return nil }
            names.append(held.wire.name)
            isInTrash = isInTrash || held.isTrashed
            parent = held.parent
        }
        return nil
    }

    /// Where a folder is; nil: no way leads there, or it lies in the trash.
    func path(ofFolder id: DocumentID) throws -> DocumentPath? {
        guard !id.isFixed else { return DocumentPath(names: id == .top ? [] : [DocumentPath.documents]) }
        guard let place = try document(id).flatMap({ try path(of: $0) }), !place.isInTrash else { return nil }
        return place.path
    }

    /// The same of many, which lie in few folders.
    ///
    /// - Parameter known: Those that were found, as they are in this transaction.
    func path(ofFolder id: DocumentID, _ known: inout [DocumentID: DocumentPath]) throws -> DocumentPath? {
        var chain: [(id: DocumentID, name: Data)] = []
        var next = id
        var found = known[next]
        while found == nil {
            guard !next.isFixed, chain.count <= DocumentLimits.depthMax else {
                found = try path(ofFolder: next)
                break
            }
            guard let held = try document(next), held.isFolder, !held.isTrashed, let parent = held.parent else {
                return nil
            }
            chain.append((next, held.wire.name))
            next = parent
            found = known[next]
        }
        guard var path = found else { return nil }
        for (id, name) in chain.reversed() {
            path = path.appending(name)
            known[id] = path
        }
        return path
    }

    /// For a person to read.
    func pathText(of id: DocumentID) throws -> String? {
        if let folder = fixedEntry(id) { return folder.path }
        guard let item = try document(id) else {
            // It was removed here; that may be what is told of.
            guard let (folder, name) = try lastPlace(of: id) else { return nil }
            return try path(ofFolder: folder)?.appending(name).text ?? String(decoding: name, as: UTF8.self)
        }
        return try path(of: item)?.path.text ?? String(decoding: item.wire.name, as: UTF8.self)
    }

    /// Whether the folder is this one, or lies in it.
    func isFolder(_ folder: DocumentID, in other: DocumentID) throws -> Bool {
        var next: DocumentID? = folder
        for _ in 0...DocumentLimits.depthMax {
            guard let here = next else { return false }
            if here == other { return true }
            next = here == .documents ? .top : try document(here)?.parent
        }
        return true
    }

    /// Items in the folder of which something waits to be sent.
    func waiting(in folder: DocumentID) throws -> [HeldDocument] {
        try pending().filter { try $0.id != folder && isFolder($0.id, in: folder) }
    }

    /// How many levels of items are below it, itself not counted; at most one more than may be.
    func height(of id: DocumentID) throws -> Int {
        var height = 0
        var level = [id]
        var seen: Set<DocumentID> = [id]
        while height <= DocumentLimits.depthMax {
            level = try level.flatMap { try children(of: $0) }.map(\.id).filter { seen.insert($0).inserted }
            guard !level.isEmpty else { return height }
            height += 1
        }
        return height
    }

    /// Everything in a folder, however deep: a folder before what is in it.
    func descendants(of folder: DocumentID, at path: DocumentPath) throws -> [(item: HeldDocument, path: DocumentPath)]
    {
        var found: [(item: HeldDocument, path: DocumentPath)] = []
        var seen: Set<DocumentID> = [folder]
        // A stack, the next on top.
        var left = try children(of: folder).reversed().map { ($0, path.appending($0.wire.name)) }
        if folder == .top {
            left.append(
                contentsOf: try children(of: .documents).reversed().map { item in
                    (item, DocumentPath(names: [DocumentPath.documents, item.wire.name]))
                })
        }
        while let (item, path) = left.popLast() {
            guard seen.insert(item.id).inserted else { continue }
            found.append((item, path))
            guard item.isFolder, path.names.count < DocumentLimits.depthMax else { continue }
            left += try children(of: item.id).reversed().map { ($0, path.appending($0.wire.name)) }
        }
        return found
    }

    // MARK: Entries

    func fixedEntry(_ id: DocumentID) -> DocumentEntry? {
        guard id.isFixed else { return nil }
        let path = DocumentPath(names: id == .top ? [] : [DocumentPath.documents])
        var wire = WireDocumentItem()
        wire.kind = .folder
        wire.parent = DocumentID.top.wire
        wire.name = path.last
        return DocumentEntry(id, wire, .folder, path: path, isInTrash: false, transfer: DocumentTransfer())
    }

    func entry(_ place: Place, at path: DocumentPath) throws -> DocumentEntry? {
        switch place {
        case .fixed(let id): fixedEntry(id)
        case .item(let item): try entry(item, at: path)
        }
    }

    /// - Parameter path: Nil: it is looked for.
    /// - Returns: Nil: of a kind that this release does not know.
    func entry(_ item: HeldDocument, at path: DocumentPath? = nil) throws -> DocumentEntry? {
        guard let kind = DocumentEntry.Kind(item.wire.kind) else { return nil }
        let found = try path.map { ($0, item.isTrashed) } ?? self.path(of: item).map { ($0.path, $0.isInTrash) }
        let lost = (DocumentPath(names: [item.wire.name]), item.isTrashed)
        let (path, isInTrash) = found ?? lost
        return DocumentEntry(
            item.id, item.wire, kind, path: path, isInTrash: isInTrash, transfer: try transfer(of: item))
    }

    /// Where the item stands between this device and the server.
    func transfer(of item: HeldDocument) throws -> DocumentTransfer {
        var transfer = try upload(of: item)
        transfer.download = try download(of: item)
        transfer.incoming = try incoming(to: item.wire)
        if let pause = try pause(of: item.id) {
            transfer.isPaused = true
            transfer.pauseProblem = pause.error?.message
            if transfer.state != .refused { transfer.state = .paused }
        }
        guard transfer.state == .current, transfer.download.status != .current else { return transfer }
        transfer.state = transfer.download.isRequested ? .downloading : .notDownloaded
        return transfer
    }

    private func upload(of item: HeldDocument) throws -> DocumentTransfer {
        let progress =
            try item.isPending && item.wire.hasContent ? progress(of: item.wire.content.version) : nil
        if item.isPending {
            guard let progress, !progress.isStored else { return DocumentTransfer(pending: .waiting, state: .waiting) }
            return DocumentTransfer(pending: .uploading, state: .uploading, percent: progress.percent)
        }
        if try isRefused(item.id) { return DocumentTransfer(state: .refused) }
        return DocumentTransfer()
    }
}

/// Where an item stands between this device and the server.
struct DocumentTransfer: Hashable {
    var pending = DocumentEntry.PendingState.none
    var state = DocumentEntry.TransferState.current
    var percent = 100
    var download = DocumentDownload()
    var isPaused = false
    var pauseProblem: String?
    var incoming: [IncomingContent] = []
}

extension DocumentEntry {
    private static let doNotBackUp = Data(DocumentAttributes.doNotBackUp.utf8)

    init(
        _ id: DocumentID, _ wire: WireDocumentItem, _ kind: Kind, path: DocumentPath, isInTrash: Bool,
        transfer: DocumentTransfer
    ) {
        self.id = id
        self.path = path.text
        name = String(decoding: wire.name, as: UTF8.self)
        nameBytes = wire.name
        parent = DocumentID(bytes: wire.parent) ?? .top
        placeVersion = DocumentID(bytes: wire.placeVersion)
        self.kind = kind
        size = kind == .folder ? 0 : wire.content.length
        created = wire.attributes.created == 0 ? nil : DocumentDate(nanoseconds: wire.attributes.created)
        modified =
            wire.hasContent
            ? DocumentDate(nanoseconds: wire.content.modified)
            : wire.attributes.modified == 0 ? nil : DocumentDate(nanoseconds: wire.attributes.modified)
        version = wire.hasContent ? DocumentID(bytes: wire.content.version) : nil
        device = wire.content.deviceID.isEmpty ? nil : DeviceID(wire.content.deviceID)
        isExecutable = wire.attributes.executable
        tags = wire.attributes.tags
        favouriteRank = wire.attributes.favouriteRank
        isExcludedFromBackup = wire.attributes.extended.contains { $0.name == Self.doNotBackUp }
        isTrashed = isInTrash
        trashBatch = wire.hasTrash ? DocumentID(bytes: wire.trash.batch) : nil
        trashed = wire.hasTrash ? Timestamp(nanoseconds: wire.trash.trashed) : nil
        conflictCount = wire.conflicts.count
        renditionNames = wire.renditions.map { String(decoding: $0.name, as: UTF8.self) }
        pending = transfer.pending
        state = transfer.state
        percent = transfer.percent
        download = transfer.download
        isPaused = transfer.isPaused
        pauseProblem = transfer.pauseProblem
        incoming = transfer.incoming
    }
}
