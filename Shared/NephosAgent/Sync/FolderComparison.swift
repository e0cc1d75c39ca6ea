internal import Foundation
package import NephosCore
internal import NephosFiles
package import NephosKit

/// Something that a folder on disk and its container do not have in common.
package struct FolderDifference: Sendable, Hashable {
    package enum Action: String, Sendable {
        /// A new or changed file, folder or link of this device goes to the container.
        case send
        /// A content was handed over, and the server does not have it yet.
        case sending
        /// Something was moved here, and is moved on the other devices.
        case move
        /// Something is gone here, and is deleted on the other devices.
        case delete
        /// A new or changed file, folder or link of the container comes to the disk.
        case receive
        /// Something was moved on another device, and is moved here.
        case follow
        /// Something is gone from the container, and is removed here.
        case remove
        /// It stays where it is. The detail says why.
        case leave
    }

    package var action: Action
    /// From the folder on.
    package var path: String
    /// Of the content; 0: it has none, or an empty one.
    package var bytes: UInt64 = 0
    package var detail: String?
    /// A content that would be lost with this disk.
    package var isOnlyHere = false
}

/// Compares a folder on disk, the merge base and the container as they are now. Nothing is changed, and the folder's agent
/// may run meanwhile.
///
/// The rules are those of an agent's pass (``LocalRule``, ``RemotePlan``), so that what is listed is what a pass would do.
package actor FolderComparison {
    private let added: AgentFolder
    private let container: ContainerTree
    private let store: AgentStore
    private let root: HeldFolder
    private let executor = DiskExecutor(label: "nephos.agent.comparison")
    private var rule = IgnoreRule()
    /// Why the agent could not sync these paths when it last tried.
    private var reasons: [Data: String] = [:]

    private var noted: [FolderDifference] = []
    private var gone: [SyncedItem] = []
    private var moved: Set<DocumentID> = []
    private var changed: Set<DocumentID> = []
    private var newPlaces: Set<Place> = []

    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// - Throws: ``CloudError`` `.storageFailure` when the folder is missing, or is not the one that was added.
    package init(_ added: AgentFolder, _ container: ContainerTree, _ store: AgentStore) throws(CloudError) {
        (self.added, self.container, self.store) = (added, container, store)
        root = try RootFolder.look(added)
    }

    /// - Returns: The differences: those of the disk in the order of its folders, then the container's.
    /// - Throws: ``CloudError`` `.storageFailure`; `.storeOutOfStep` before the container was fetched for the first time.
    package func compare() throws(CloudError) -> [FolderDifference] {
        (noted, gone, moved, changed, newPlaces) = ([], [], [], [], [])
        for one in try store.blocked(in: added) { reasons[one.path] = one.reason }
        if let text = try? root.content(of: IgnoreRule.fileName, bytesMax: IgnoreRule.fileSizeMax) {
            rule = IgnoreRule(text)
        }
        try compareDisk(root, container.root, [])
        for row in gone where !moved.contains(row.id) { try noteGone(row) }
        try compareContainer()
        return noted
    }

    private func read<Value>(_ body: (SyncedTree) throws -> Value) throws(CloudError) -> Value {
        try store.read { try body(SyncedTree(database: $0, folder: added.id, root: container.root)) }
    }

    private func note(
        _ action: FolderDifference.Action, _ path: [FileName], _ bytes: UInt64 = 0, _ detail: String? = nil,
        isOnlyHere: Bool = false
    ) {
        noted.append(
            FolderDifference(
                action: action, path: path.map(\.text).joined(separator: "/"), bytes: bytes, detail: detail,
                isOnlyHere: isOnlyHere))
    }

    // MARK: Disk

    /// - Parameter id: The folder's item; nil: it has none.
    private func compareDisk(_ folder: HeldFolder, _ id: DocumentID?, _ path: [FileName]) throws(CloudError) {
        let names: [FileName]
        do throws(FileFailure) { names = try folder.names() } catch {
            return note(.leave, path, 0, "The folder cannot be read: \(error.reason).", isOnlyHere: true)
        }
        var found: [FileName: FileFacts] = [:]
        for name in names where name != RootFolder.ownName || !path.isEmpty {
            do throws(FileFailure) { found[name] = try folder.facts(name) } catch {
                guard !error.isAbsence else { continue }
                note(.leave, path + [name], 0, "It cannot be looked at: \(error.reason).", isOnlyHere: true)
            }
        }
        var rows: [FileName: SyncedItem] = [:]
        if let id { for row in try read({ try $0.children(of: id) }) { rows[row.name] = row } }
        let inodes = Set(found.values.map(\.inode))
        for (name, facts) in found.sorted(by: { $0.key.lexicographicallyPrecedes($1.key) }) {
            let row = rows[name]
            let known = row?.stamp.isFile(facts) == true ? nil : try read { try $0.item(identifiedBy: facts) }
            var standing = Standing.absent
            if let known { standing = try self.standing(of: known) }
            let isElsewhere = row.map { $0.stamp.inode != facts.inode && inodes.contains($0.stamp.inode) } ?? false
            let decision = LocalRule.decide(
                facts, row, isElsewhere: isElsewhere, known: known, standing: standing)
            if let row, decision.displaces, !isElsewhere { gone.append(row) }
            try compare(name, facts, row, decision, folder, id, path)
        }
        for (name, row) in rows where found[name] == nil && !names.contains(name) { gone.append(row) }
    }

    private func compare(
        _ name: FileName, _ facts: FileFacts, _ row: SyncedItem?, _ decision: LocalDecision, _ parent: HeldFolder,
        _ id: DocumentID?, _ parentPath: [FileName]
    ) throws(CloudError) {
        let path = parentPath + [name]
        func lookInside(_ item: DocumentID?) throws(CloudError) {
            guard facts.kind == .folder else { return }
            let folder: HeldFolder
            do throws(FileFailure) { folder = try parent.folder([name]) } catch {
                return note(.leave, path, 0, "The folder cannot be opened: \(error.reason).", isOnlyHere: true)
            }
            try compareDisk(folder, item, path)
        }
        let size = facts.kind == .file ? UInt64(max(0, facts.size)) : 0
        switch decision {
        case .unchanged:
            if let row { try lookInside(row.id) }
        case .adopt(let row): try lookInside(row.id)
        case .wait: note(.leave, path, size, "It is looked at again later.", isOnlyHere: facts.kind == .file)
        case .move(let row, let isChanged):
            moved.insert(row.id)
            let old = try read { try $0.path(of: row.parent) }.map { $0 + [row.name] } ?? []
            note(.move, path, 0, "from \(old.map(\.text).joined(separator: "/"))")
            if isChanged, !row.isEvicted { noteChanged(row, path, size) }
            try lookInside(row.id)
        case .change(let row):
            if row.isEvicted || parent.placeholderItem(name, facts) != nil { return }
            if let reason = reasons[Data(path.joined(separator: [UInt8(ascii: "/")]))] {
                return note(.leave, path, size, reason, isOnlyHere: true)
            }
            noteChanged(row, path, size)
        case .make:
            if try leaves(path, facts, id) { return try leaveAll(parent, name, facts, path) }
            if parent.placeholderItem(name, facts) != nil { return }
            if let reason = reasons[Data(path.joined(separator: [UInt8(ascii: "/")]))] {
                return note(.leave, path, size, reason, isOnlyHere: facts.kind != .special)
            }
            guard facts.kind != .special else {
                return note(.leave, path, 0, "FIFOs, sockets and devices are not synced.")
            }
            if let id { newPlaces.insert(Place(folder: id, name: name)) }
            note(.send, path, size, "new", isOnlyHere: facts.kind != .folder)
            try lookInside(nil)
        }
    }

    private func noteChanged(_ row: SyncedItem, _ path: [FileName], _ size: UInt64) {
        changed.insert(row.id)
        note(.send, path, size, "changed", isOnlyHere: true)
    }

    private func leaves(_ path: [FileName], _ facts: FileFacts, _ folder: DocumentID?) throws(CloudError) -> Bool {
        guard let name = path.last else { return false }
        if IgnoreRule.ignores(name) { return true }
        guard rule.ignores(path, isFolder: facts.kind == .folder) else { return false }
        // A file that another device has put there is synced all the same.
        return try folder.map { id throws(CloudError) in try container.child(of: id, named: Data(name)) == nil } ?? true
    }

    /// Lists ignored files, without what systems make for themselves.
    private func leaveAll(_ parent: HeldFolder, _ name: FileName, _ facts: FileFacts, _ path: [FileName])
        throws(CloudError)
    {
        switch facts.kind {
        case .special: return
        case .file, .link:
            guard !IgnoreRule.isJunk(name) else { return }
            note(.leave, path, facts.kind == .file ? UInt64(max(0, facts.size)) : 0, "ignored", isOnlyHere: true)
        case .folder:
            guard let folder = try? parent.folder([name]), let names = try? folder.names() else {
                return note(.leave, path, 0, "ignored, and cannot be read", isOnlyHere: true)
            }
            for inner in names.sorted(by: { $0.lexicographicallyPrecedes($1) }) {
                guard let facts = try? folder.facts(inner) else { continue }
                try leaveAll(folder, inner, facts, path + [inner])
            }
        }
    }

    private func standing(of row: SyncedItem) throws(CloudError) -> Standing {
        try Standing(of: row) {
            guard !row.isParked else { return try root.folder(RootFolder.parkingPath) }
            return try read { try $0.path(of: row.parent) }.map { try root.folder($0) }
        }
    }

    /// Something that has gone from its place, and was found at no other.
    private func noteGone(_ row: SyncedItem) throws(CloudError) {
        guard try container.item(row.id) != nil else { return }
        let path = try read { try $0.path(of: row.parent) }.map { $0 + [row.itemName] } ?? [row.itemName]
        note(.delete, path)
        guard row.kind == .folder else { return }
        for child in try read({ try $0.children(of: row.id) }) where !moved.contains(child.id) { try noteGone(child) }
    }

    // MARK: Container

    private func compareContainer() throws(CloudError) {
        let isOnDemand = try store.policy(of: added).isOnDemand
        var left: [(DocumentID, [FileName])] = [(container.root, [])]
        var seen: Set<DocumentID> = []
        while let (folder, path) = left.popLast() {
            for item in try container.children(of: folder).sorted(by: { $0.name.lexicographicallyPrecedes($1.name) }) {
                seen.insert(item.id)
                let place = path + [FileName(item.name)]
                let row = try read { try $0.item(item.id) }
                try compare(item, row, place, RemotePlan(isOnDemand: isOnDemand))
                if item.kind == .folder { left.append((item.id, place)) }
            }
        }
        for row in try read({ try $0.descendants(of: container.root) }) where !seen.contains(row.id) {
            let path = try read { try $0.path(of: row.parent) }.map { $0 + [row.itemName] } ?? [row.itemName]
            let standings = try container.standings([row.id], versions: row.version.map { [row.id: $0] } ?? [:])
            switch standings[row.id] {
            case .gone?: note(.remove, path)
            case .rejected(let reason, _)?:
                note(
                    .leave, path, UInt64(max(0, row.stamp.size)), "The server rejected it: \(reason)", isOnlyHere: true)
            case .unknown?, nil: note(.send, path, UInt64(max(0, row.stamp.size)), "again", isOnlyHere: true)
            case .here?: break
            }
        }
    }

    private func compare(
        _ item: ContainerTree.Item, _ row: SyncedItem?, _ path: [FileName], _ empty: RemotePlan
    ) throws(CloudError) {
        if item.kind != .folder, row.map({ !changed.contains($0.id) }) ?? false, try container.isUnsent(item.id) {
            note(.sending, path, item.size, nil, isOnlyHere: true)
        }
        if let row, row.isRejected {
            note(.leave, path, UInt64(max(0, row.stamp.size)), "The server rejected its content.", isOnlyHere: true)
        }
        var plan = empty
        plan.compare(item, row)
        let arrivals = plan.downloads + plan.placements.filter { _ in row == nil } + plan.links.map(\.1)
        if !arrivals.isEmpty {
            let isTaken = newPlaces.contains(item.place) && item.kind != .folder
            let isChanged = changed.contains(item.id)
            note(
                .receive, path, plan.downloads.isEmpty ? 0 : item.size,
                isTaken
                    ? "There is a new file of this name here. If they are equal, they become one; else both contents are kept."
                    : isChanged ? "It has changed here too. Both contents are kept." : row == nil ? "new" : "changed")
        } else if !plan.placements.isEmpty, !moved.contains(item.id) {
            let old = try row.flatMap { row throws(CloudError) in
                try read { try $0.path(of: row.parent) }.map { $0 + [row.itemName] }
            }
            note(.follow, path, 0, old.map { "from \($0.map(\.text).joined(separator: "/"))" })
        }
        if !plan.modes.isEmpty, !changed.contains(item.id) { note(.receive, path, 0, "executable or not") }
        if !plan.unsupported.isEmpty { note(.leave, path, 0, "The container has it. It cannot be in a folder.") }
    }
}
