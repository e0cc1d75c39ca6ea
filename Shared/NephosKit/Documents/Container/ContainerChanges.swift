internal import Foundation
public import NephosCore

/// What an app is told when items of a container change from outside.
public struct ContainerChanges: Sendable, Hashable {
    /// Why.
    public var reason: ChangeReason
    /// Items that were made or changed, as they are by now; also such as lie in the trash.
    public var changed: [DocumentEntry] = []
    /// Items that are gone for good.
    public var removed: [DocumentID] = []
    /// So much that it is not listed: look at all.
    public var isAll = false
    /// Why something was refused; nil: nothing was.
    public var error: CloudError?
}

extension ContainerChanges {
    init(_ change: ChangeNotification, of handle: ContainerHandle) {
        self.init(reason: change.reason)
        error = change.error
        isAll = change.changedKeys.isEmpty
        for id in change.changedKeys.compactMap({ DocumentID($0) }) {
            let entry = try? handle.read { documents in
                try documents.document(id).flatMap { try documents.entry($0) }
            }
            if let entry { changed.append(entry) } else { removed.append(id) }
        }
    }
}
