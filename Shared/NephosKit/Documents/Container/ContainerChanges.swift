internal import Foundation
public import NephosCore

/// A notification that items of a container changed from outside.
public struct ContainerChanges: Sendable, Hashable {
    /// The reason.
    public var reason: ChangeReason
    /// Items that were made or changed, in their present state; also items in the trash.
    public var changed: [DocumentEntry] = []
    /// Items that were removed permanently.
    public var removed: [DocumentID] = []
    /// Too much changed to list: read everything again.
    public var isAll = false
    /// Why a change was rejected; nil: none was.
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
