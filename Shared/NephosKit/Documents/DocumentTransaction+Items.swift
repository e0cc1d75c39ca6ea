import Foundation
import NephosCore
import NephosWire

/// Items by their paths and ids.
extension DocumentTransaction {
    /// - Throws: ``CloudError`` `.unknownItem`; `.invalidArguments` for the folders that every container has.
    func item(at path: DocumentPath) throws -> HeldDocument {
        switch try place(path) {
        case .item(let item): return item
        case .fixed:
            throw CloudError(
                .invalidArguments, "This folder is in every container, and stays as it is.",
                details: ["path": path.text])
        case nil: throw try noItem(at: path)
        }
    }

    /// The entry of an item that is there.
    func requireEntry(_ id: DocumentID) throws -> DocumentEntry {
        guard let entry = try fixedEntry(id) ?? document(id).flatMap({ try entry($0) }) else {
            throw CloudError(.internalError, "What was changed is there.", details: ["item": "\(id)"])
        }
        return entry
    }

    /// - Throws: ``CloudError`` `.unknownItem`.
    func folder(at path: DocumentPath) throws -> DocumentID {
        guard let place = try place(path) else { throw DocumentDraft.noFolder(path) }
        guard place.isFolder else {
            throw CloudError(.unknownItem, "This is no folder.", details: ["path": path.text])
        }
        return place.id
    }

    /// The entries of items; a failure: it is gone.
    func entries(
        _ items: [Result<DocumentID, CloudError>]
    ) throws -> [Result<DocumentEntry, CloudError>] {
        var folders: [DocumentID: DocumentPath] = [:]
        return try items.map { item in
            let id: DocumentID
            switch item {
            case .success(let item): id = item
            case .failure(let error): return .failure(error)
            }
            guard let held = try document(id), let parent = held.parent else {
                return Result { () throws(CloudError) in
                    guard let entry = fixedEntry(id) else {
                        throw CloudError(.unknownItem, "There is no such item.", details: ["item": "\(id)"])
                    }
                    return entry
                }
            }
            let folder = try path(ofFolder: parent, &folders)
            return .success(try entry(held, at: folder?.appending(held.wire.name)) ?? requireEntry(id))
        }
    }
}
