internal import Foundation
public import NephosCore
internal import NephosWire

/// What was made by a copy.
public struct DocumentCopy: Hashable, Sendable {
    /// The copy.
    public var item: DocumentEntry
    /// Items that were made, what is in a folder among them.
    public var itemCount: Int
    /// In how many steps the server, and so other devices, get them: more than one if there are more than some hundreds.
    public var stepCount: Int
}

extension UbiquityContainer {
    /// Items that one copy makes, at most.
    public static let copiedItemsMax = 100_000

    /// Copies an item, a folder with all that is in it. The copies have the contents that the server has already: no
    /// bytes are sent. Older versions and conflicts are not copied.
    ///
    /// On this device all of it is there at once, or nothing. The server gets some hundreds of items as a whole; more
    /// than that in several steps, a folder before what is in it, which go on by themselves after whatever cuts them off.
    ///
    /// - Parameters:
    ///   - target: Where the copy is to be. A folder that is there takes it in, under its name.
    ///   - replaces: Whether a file that is there gets the content as a new version; else it is in the way.
    /// - Throws: ``CloudError`` `.unknownItem`; `.alreadyExists`; `.invalidArguments` when a folder would be copied into
    ///   itself, or too deep; `.limitExceeded` beyond ``copiedItemsMax`` (copy what is in the folder one by one); else
    ///   as ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func copy(
        _ source: some DocumentAddressing, to target: some DocumentAddressing, replaces: Bool = false
    ) async throws(CloudError) -> DocumentCopy {
        try change { draft in
            let (source, target) = (try draft.documents.path(source), try draft.documents.path(target))
            let id = try draft.copy(source, to: target, replaces: replaces)
            return (id: id, count: draft.changes.count, steps: try draft.requests(container: "").count)
        } reading: { documents, made in
            DocumentCopy(
                item: try documents.requireEntry(made.id), itemCount: max(1, made.count),
                stepCount: max(1, made.steps))
        }
    }
}

extension DocumentDraft {
    /// - Returns: The copy's id.
    mutating func copy(_ source: DocumentPath, to target: DocumentPath, replaces: Bool) throws -> DocumentID {
        let item = try documents.item(at: source)
        var target = target
        if try documents.place(target)?.isFolder == true { target = target.appending(item.wire.name) }
        guard let parent = target.parent else {
            throw CloudError(.invalidArguments, "An item needs a name.", details: ["path": target.text])
        }
        try target.requireSynced()
        let folder = try documents.folder(at: parent)
        if let there = try documents.place(target) {
            guard replaces, case .item(let other) = there, other.id != item.id, other.wire.kind == item.wire.kind,
                !other.isFolder
            else {
                throw CloudError(
                    .alreadyExists, "Something has this name already.", details: ["path": target.text])
            }
            replace(other, byBytesOf: item.wire.content)
            setExecutable(item.wire.attributes.executable, of: other)
            return other.id
        }
        try documents.requireRoom(for: item, in: folder, at: target)
        // Read before anything is made.
        let inside = item.isFolder ? try documents.descendants(of: item.id, at: target) : []
        guard inside.count < UbiquityContainer.copiedItemsMax else {
            throw CloudError(
                .limitExceeded, "The folder has too many items for one copy. Copy what is in it one by one.",
                details: ["maximum": "\(UbiquityContainer.copiedItemsMax)"])
        }
        let copy = try self.copy(item, content: item.wire.content, at: target, in: folder)
        var copies = [item.id: copy]
        for (item, path) in inside {
            // A folder comes before what is in it.
            guard let folder = item.parent.flatMap({ copies[$0] }) else { continue }
            copies[item.id] = try self.copy(item, content: item.wire.content, at: path, in: folder)
        }
        return copy
    }
}
