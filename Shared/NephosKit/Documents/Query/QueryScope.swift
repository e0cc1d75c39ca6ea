internal import Foundation
public import NephosCore

/// Where a query looks. Places are paths: what is moved there is found from then on.
public struct DocumentQueryScope: Hashable, Sendable {
    /// Everything.
    public static let container = DocumentQueryScope(prefix: Data())
    /// What the person sees.
    public static let documents = DocumentQueryScope(prefix: DocumentLocation.documents.bytes)
    /// What is private to the app: everything beside `Documents`.
    public static let data = DocumentQueryScope(prefix: Data(), leavesOutDocuments: true)

    /// What lies in a folder, however deep; nothing as long as there is none.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a name that no folder can have.
    public static func folder(_ path: String) throws(CloudError) -> DocumentQueryScope {
        DocumentQueryScope(prefix: try DocumentPath(path).names.reduce(into: Data()) { $0 += Data("/".utf8) + $1 })
    }

    /// The path of the folder.
    private let prefix: Data
    private let leavesOutDocuments: Bool

    private init(prefix: Data, leavesOutDocuments: Bool = false) {
        self.prefix = prefix
        self.leavesOutDocuments = leavesOutDocuments
    }

    /// From where the walk begins.
    var roots: [(id: DocumentID, location: DocumentLocation)] {
        let both = [(DocumentID.top, DocumentLocation.top), (DocumentID.documents, DocumentLocation.documents)]
        return both.filter { leads(to: $0.1) }
    }

    /// Whether what lies right in this folder may be meant, or lead to what is.
    func leads(to folder: DocumentLocation) -> Bool { holds(in: folder) || isOnTheWay(folder) }

    /// Whether what lies right in this folder is meant.
    func holds(in folder: DocumentLocation) -> Bool {
        guard Self.isPath(folder.bytes, in: prefix) else { return false }
        return !leavesOutDocuments || !Self.isPath(folder.bytes, in: DocumentLocation.documents.bytes)
    }

    /// Whether the query looks in a folder further down.
    func isOnTheWay(_ folder: DocumentLocation) -> Bool {
        folder.bytes != prefix && Self.isPath(prefix, in: folder.bytes)
    }

    /// What the next folder on the way is called.
    func nextName(after folder: DocumentLocation) -> Data? {
        guard isOnTheWay(folder) else { return nil }
        return prefix.dropFirst(folder.bytes.count + 1).split(separator: UInt8(ascii: "/")).first.map { Data($0) }
    }

    private static func isPath(_ path: Data, in folder: Data) -> Bool {
        path.starts(with: folder) && (path.count == folder.count || path[path.startIndex + folder.count] == 0x2f)
    }
}
