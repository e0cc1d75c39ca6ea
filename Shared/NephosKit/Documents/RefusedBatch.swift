import Foundation
import NephosCore
import NephosWire

/// What of a batch may be accepted yet, once the service has named the change that cannot be.
///
/// What brings a content finds a place, since nobody who deleted something meant what they had not seen: a folder that
/// is gone is made again, an item is taken out of the trash or made again. Any other change is left out, and the rest
/// goes on without it.
struct RefusedBatch {
    private(set) var changes: [WireDocumentChange]
    /// What a person has to hear of.
    private(set) var leftOut: [WireDocumentChange] = []
    /// An item that was made again under another id.
    private(set) var renamed: (old: DocumentID, new: DocumentID)?
    private let documents: DocumentTransaction
    private let makeID: () -> DocumentID
    /// What is to be made before the change.
    private var folders: [WireDocumentChange] = []

    init(_ changes: [WireDocumentChange], _ documents: DocumentTransaction, makeID: @escaping () -> DocumentID) {
        self.changes = changes
        self.documents = documents
        self.makeID = makeID
    }

    /// - Returns: False: all of them are refused.
    mutating func amend(after error: CloudError) throws -> Bool {
        guard let index = error.details["change"].flatMap({ Int($0) }), changes.indices.contains(index) else {
            return leaveOutContents()
        }
        let change = changes[index]
        let named = error.details["item"].flatMap { DocumentID($0) }
        guard error.code == .unknownItem, let named else {
            leaveOut(index, after: error)
            return true
        }
        if let folder = change.target, folder == named.wire {
            try redirect(from: named, before: index, error)
        } else if case .replace(let replace)? = change.kind, change.item == named.wire {
            let trashed = error.details["in_trash"].flatMap { DocumentID($0) }
            try revive(named, index, replace.content, trashed: trashed, error)
        } else {
            leaveOut(index, after: error)
        }
        return true
    }

    /// The service has named no change: what brings contents has no room, or what they rest on is not there. The rest
    /// goes on, so that folders are there for what comes later.
    private mutating func leaveOutContents() -> Bool {
        let others = changes.filter { $0.content == nil }
        guard !others.isEmpty, others.count < changes.count else { return false }
        leftOut += changes.filter { $0.content != nil }
        changes = others
        return true
    }

    /// Nothing is said of what only describes or ends something that is gone. A content may be nowhere but here.
    private mutating func leaveOut(_ index: Int, after error: CloudError) {
        let change = changes.remove(at: index)
        switch change.kind {
        case .announce: break
        case _ where change.content != nil: leftOut.append(change)
        case .remove, .resolve, .attributes, .rendition, .versions:
            // What is in quarantine is not gone.
            if error.code != .unknownItem || error.details["reason"] == "quarantined" { leftOut.append(change) }
        default: leftOut.append(change)
        }
    }

    // MARK: Folders

    /// Puts what was to go into a folder that is gone into another in its place.
    private mutating func redirect(from folder: DocumentID, before index: Int, _ error: CloudError) throws {
        guard let target = try remade(folder) else { return leaveOut(index, after: error) }
        for (index, change) in changes.enumerated() where change.target == folder.wire {
            changes[index].move(to: target, as: makeID())
        }
        makeFolders(before: index)
    }

    private mutating func makeFolders(before index: Int) {
        changes.insert(contentsOf: folders, at: index)
        folders = []
    }

    /// A folder that stands for one that is gone: of its name, where it was.
    ///
    /// - Returns: Nil: nobody knows of it; it was refused itself.
    private mutating func remade(_ folder: DocumentID) throws -> DocumentID? {
        guard let (parent, name) = try place(of: folder),
            let above = try isLive(parent) ? parent : remade(parent)
        else { return nil }
        let there = try documents.children(of: above, named: name).first {
            try $0.isFolder && $0.id != folder && documents.synced($0.id.name)?.body != nil
        }
        if let there { return there.id }
        if let made = try (folders + changes).first(where: {
            try $0.item != folder.wire && isFolder($0, named: name, in: above)
        }) {
            return DocumentID(bytes: made.item)
        }
        var create = WireCreateItem()
        create.kind = .folder
        create.parent = above.wire
        create.name = name
        create.placeVersion = makeID().wire
        create.clash = .merge
        let id = makeID()
        folders.append(WireDocumentChange(id, .create(create)))
        return id
    }

    /// Whether the change makes such a folder.
    private func isFolder(_ change: WireDocumentChange, named name: Data, in folder: DocumentID) throws -> Bool {
        guard case .create(let create)? = change.kind, create.kind == .folder, create.parent == folder.wire else {
            return false
        }
        return try documents.key(of: create.name) == documents.key(of: name)
    }

    private func place(of id: DocumentID) throws -> (folder: DocumentID, name: Data)? {
        if let held = try documents.document(id) { return held.parent.map { ($0, held.wire.name) } }
        return try documents.lastPlace(of: id)
    }

    private func isLive(_ folder: DocumentID) throws -> Bool {
        if folder.isFixed { return true }
        guard let held = try documents.document(folder), let path = try documents.path(of: held) else { return false }
        return !path.isInTrash
    }

    // MARK: Items

    /// - Parameter trashed: What lies in the trash, the item or something above it; nil: it was removed.
    private mutating func revive(
        _ id: DocumentID, _ index: Int, _ content: WireDocumentContent, trashed: DocumentID?, _ error: CloudError
    ) throws {
        guard trashed != id else {
            return changes.insert(WireDocumentChange(id, .restore(.renaming)), at: index)
        }
        // What the device does not know of yet is gone all the same.
        guard let (parent, name) = try place(of: id),
            let folder = try parent != trashed && isLive(parent) ? parent : remade(parent)
        else { return leaveOut(index, after: error) }
        if trashed != nil {
            var place = WirePlaceItem()
            place.parent = folder.wire
            place.name = name
            place.placeVersion = makeID().wire
            place.clash = .rename
            changes.insert(WireDocumentChange(id, .place(place)), at: index)
        } else {
            var create = WireCreateItem()
            create.kind = try documents.document(id)?.wire.kind ?? documents.lastKind(of: id) ?? .file
            create.parent = folder.wire
            create.name = name
            create.placeVersion = makeID().wire
            create.clash = .rename
            create.content = content
            create.content.base = Data()
            let new = makeID()
            renamed = (id, new)
            changes[index] = WireDocumentChange(new, .create(create))
            for (index, change) in changes.enumerated() where change.item == id.wire { changes[index].item = new.wire }
        }
        makeFolders(before: index)
    }
}
