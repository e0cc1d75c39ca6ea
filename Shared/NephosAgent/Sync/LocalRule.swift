internal import Foundation
internal import NephosCore
internal import NephosFiles

/// Whether an item that was synced is still where its row has it.
enum Standing: CaseIterable, Sendable {
    /// The same file or folder is there.
    case same
    /// Another one has the name.
    case replaced
    /// Nothing has the name, as a folder that could be looked into says.
    case absent
    /// The folder cannot be looked into.
    case unknown

    /// - Parameter folder: Opens the folder that the item's row names; nil: the folder has no place.
    init(of item: SyncedItem, in folder: () throws -> HeldFolder?) throws(CloudError) {
        do {
            guard let facts = try folder()?.facts(item.name) else {
                self = .unknown
                return
            }
            // A name that leads to something of another kind keeps no item.
            self = item.kind != facts.kind ? .absent : item.stamp.isFile(facts) ? .same : .replaced
        } catch let failure as FileFailure {
            // A folder on the way that is gone has taken the item with it, or elsewhere.
            self = failure.isAbsence || failure.number == ENOTDIR ? .absent : .unknown
        } catch { throw CloudError(wrapping: error) }
    }
}

/// The meaning of a name that was found on disk.
enum LocalDecision: Hashable, Sendable {
    case unchanged
    /// A new file, folder or link.
    case make
    /// The item of this name has another content.
    case change(SyncedItem)
    /// Another folder has the name of this one: the item stays, and its contents are compared.
    case adopt(SyncedItem)
    /// The item was moved here from its former place.
    case move(SyncedItem, isChanged: Bool)
    /// Nothing can be concluded now.
    case wait

    /// The item of the name has gone from there, since another has its place.
    var displaces: Bool {
        switch self {
        case .make, .move: true
        default: false
        }
    }
}

/// The rule by which local changes are found.
///
/// For files the name decides: an editor saves a file as a new one and renames it over the old, and the item with its
/// versions stays with the name. For folders the inode decides, since programs do not replace folders to save them.
enum LocalRule {
    /// - Parameters:
    ///   - found: The file, folder or link with the name.
    ///   - item: The item that had the name when it was last synced.
    ///   - isElsewhere: Whether the item's own folder has another name of the same parent now.
    ///   - known: The item with the inode of what was found; nil: none has it, or `item` has it.
    ///   - standing: Whether `known` is still at its own place.
    static func decide(
        _ found: FileFacts, _ item: SyncedItem?, isElsewhere: Bool, known: SyncedItem?, standing: Standing
    ) -> LocalDecision {
        let known = known.flatMap { isTrusted($0, found) ? $0 : nil }
        if let item, item.kind == found.kind {
            if found.kind == .folder { return decideFolder(found, item, isElsewhere, known, standing) }
            return item.stamp == FileStamp(found) && !item.isRacy ? .unchanged : .change(item)
        }
        guard let known else { return .make }
        switch standing {
        case .absent: return .move(known, isChanged: isChanged(known, found))
        case .replaced: return found.kind == .folder ? .move(known, isChanged: false) : .make
        // A further name of one file is a file of its own.
        case .same: return .make
        case .unknown: return .wait
        }
    }

    private static func decideFolder(
        _ found: FileFacts, _ item: SyncedItem, _ isElsewhere: Bool, _ known: SyncedItem?, _ standing: Standing
    ) -> LocalDecision {
        if item.stamp.isFile(found) { return .unchanged }
        if let known {
            switch standing {
            case .absent, .replaced: return .move(known, isChanged: false)
            case .unknown: return .wait
            case .same: break
            }
        }
        return isElsewhere ? .make : .adopt(item)
    }

    private static func isChanged(_ item: SyncedItem, _ found: FileFacts) -> Bool {
        found.kind != .folder && (item.isToBeSent || !item.stamp.hasContent(of: found))
    }

    /// An inode names one file only together with its birth. A file system without births gives the number of a
    /// removed file to the next one, so there the content must be unchanged too.
    private static func isTrusted(_ known: SyncedItem, _ found: FileFacts) -> Bool {
        known.kind == found.kind
            && (found.born != 0 || found.kind != .folder && known.stamp.hasContent(of: found))
    }
}
