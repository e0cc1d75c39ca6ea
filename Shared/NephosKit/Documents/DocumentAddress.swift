internal import Foundation
public import NephosCore

/// What says which item is meant: a path, or the item's id, which is the only way to one whose path is no text.
public protocol DocumentAddressing: Sendable {
    /// The path or the id.
    var documentAddress: DocumentAddress { get }
}

/// A path, or an item's id.
public enum DocumentAddress: Hashable, Sendable {
    /// From the container's top where it begins with `/`, and else from `Documents`.
    case path(String)
    /// Wherever the item is; one that lies in the trash is nowhere.
    case item(DocumentID)
}

extension DocumentAddress: DocumentAddressing {
    /// Itself.
    public var documentAddress: DocumentAddress { self }
}

extension String: DocumentAddressing {
    /// The path.
    public var documentAddress: DocumentAddress { .path(self) }
}

extension DocumentID: DocumentAddressing {
    /// The item.
    public var documentAddress: DocumentAddress { .item(self) }
}

extension DocumentID {
    /// What begins an item's id on a command line, where a path may be too.
    package static let argumentPrefix = "id:"

    /// As `nephos docs` takes it for a path.
    package var argument: String { Self.argumentPrefix + description }
}

extension DocumentTransaction {
    /// - Throws: ``CloudError`` `.unknownItem` for the id of nothing that is in its place; `.invalidArguments` for a name
    ///   that no item can have.
    func path(_ address: some DocumentAddressing) throws -> DocumentPath {
        switch address.documentAddress {
        case .path(let text): return try DocumentPath(text)
        case .item(.top): return DocumentPath(names: [])
        case .item(.documents): return DocumentPath(names: [DocumentPath.documents])
        case .item(let id):
            guard let item = try document(id), let found = try path(of: item), !found.isInTrash else {
                throw CloudError(.unknownItem, "There is no such item.", details: ["item": "\(id)"])
            }
            return found.path
        }
    }
}
