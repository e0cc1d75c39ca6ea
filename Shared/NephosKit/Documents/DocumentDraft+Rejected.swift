import Foundation
import NephosCore
import NephosWire

/// Rejected changes that are sent again.
extension DocumentDraft {
    /// Adds rejected changes again, the oldest first. A content is made from the one that this device wrote before it, so
    /// that several of one file become its versions. A file that exists by now gets the content of a rejected creation as a
    /// conflict.
    ///
    /// - Returns: Those that were added. Others cannot be sent again, and stay listed.
    mutating func retry(_ rejected: [DocumentTransaction.Refusal]) throws -> [DocumentTransaction.Refusal] {
        var retried: [DocumentTransaction.Refusal] = []
        var newest: [DocumentID: Data] = [:]
        var created: [String: (item: DocumentID, kind: WireItemKind)] = [:]
        // A folder is made before the items in it.
        for refusal in rejected.filter(\.makesFolder) + rejected.filter({ !$0.makesFolder }) {
            guard let (rejected, staged) = try documents.takeRefused(refusal) else { continue }
            var change = rejected
            retried.append(refusal)
            defer { add(change, bringing: staged) }
            guard change.renditionName == nil, var content = change.content, var item = DocumentID(bytes: change.item)
            else { continue }
            if case .create(var create)? = change.kind {
                if let earlier = created[refusal.path], earlier.kind == create.kind { item = earlier.item }
                if try newest[item] != nil || documents.document(item) != nil {
                    change = WireDocumentChange(item, .replace(WireReplaceContent()))
                } else {
                    // The server takes a second creation with the same place for a repeat of the first.
                    create.placeVersion = makeID().wire
                    change.kind = .create(create)
                    created[refusal.path] = (item, create.kind)
                }
            }
            if case .replace(var replace)? = change.kind {
                if let version = newest[item] { content.base = version }
                replace.content = content
                change.kind = .replace(replace)
            }
            newest[item] = content.version
        }
        return retried
    }
}

extension DocumentTransaction.Refusal {
    fileprivate var makesFolder: Bool { change?.createsFolder ?? false }
}
