internal import Foundation
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What others have changed in a folder since a device has seen it.
extension Batch {
    /// How a folder stands beside what a device has seen of it.
    enum FolderStanding {
        /// Nobody else has changed anything in it.
        case unchanged
        /// Others have changed these.
        case changed([DocumentID])
        /// More has changed in the container than is looked at.
        case tooMuch
        /// What the device has seen is of another history.
        case otherHistory
    }

    /// Changes that are looked at before a folder's deletion is refused: the device has seen too little of it.
    private static let unseenMax = 1000
    private static let readMax = unseenMax + DocumentLimits.seenMax

    /// What somebody has put into a folder is not deleted by somebody who has not seen it.
    func checkUnchanged(_ folder: DocumentID, since request: WireTrashItem) throws {
        guard request.changed.count <= DocumentLimits.seenMax else {
            throw CloudError(
                .limitExceeded, "Too much of the folder is said to be changed. Leave it out, or delete it later.",
                details: Self.details(folder).merging(["maximum": "\(DocumentLimits.seenMax)"]) { $1 })
        }
        let own = Dictionary(request.changed.map { ($0.item, Set($0.versions)) }) { $1 }
        let standing = try standing(of: folder, since: ChangeToken(request.seen), saidSeen: own.count) {
            try isSeen($0, own)
        }
        switch standing {
        case .unchanged: break
        case .otherHistory:
            throw CloudError(
                .constraintViolation,
                "What this device has seen is of another history of the container. Read on, and delete it then.",
                details: Self.details(folder))
        case .tooMuch:
            throw CloudError(
                .constraintViolation,
                "Too much has changed since this device looked. Read on, and delete it then.",
                details: Self.details(folder))
        case .changed(let items):
            throw CloudError(
                .constraintViolation,
                "Something in the folder has changed since this device looked. Look again, and delete it then.",
                details: Self.details(folder).merging(Self.changed(items)) { $1 })
        }
    }

    /// Up to ten of them.
    static func changed(_ items: [DocumentID]) -> [String: String] {
        ["changed": items.prefix(10).map(\.description).joined(separator: " ")]
    }

    /// - Parameters:
    ///   - saidSeen: Of how many items the device says that it has changed them itself.
    ///   - isSeen: Whether it has seen all of this one.
    /// - Throws: ``CloudError/oldCopy``: the token proves that the database is an old copy.
    func standing(
        of folder: DocumentID, since seen: ChangeToken, saidSeen: Int, isSeen: (DocumentID) throws -> Bool
    ) throws -> FolderStanding {
        guard try knows(seen) else { return .otherHistory }
        let unseen = try changes(since: seen.sequence)
        guard unseen.count <= Self.unseenMax + saidSeen else { return .tooMuch }
        var known: [DocumentID: Bool] = [:]
        let within = try unseen.filter { try $0 != folder && lies($0, in: folder, &known) && !isSeen($0) }
        return within.isEmpty ? .unchanged : .changed(within)
    }

    /// Whether a token that the device was shown is of the present history.
    private func knows(_ seen: ChangeToken) throws -> Bool {
        let head = try container.transaction.position(ofPartition: container.scope.partition)
        guard seen.sequence <= head.sequence else { return false }
        return switch try container.transaction.judge(seen, in: container.scope.partition) {
        case .past: true
        case .unknown: try seen.epoch == container.head().token.epoch
        case .lost(_, isNews: true): throw CloudError.oldCopy
        case .lost: false
        }
    }

    /// Whether the device itself has changed the item, and has seen all of its contents.
    private func isSeen(_ id: DocumentID, _ own: [Data: Set<Data>]) throws -> Bool {
        guard let versions = own[Data(id.bytes)], let item = try find(id) else { return false }
        return ([item.content] + item.conflicts).allSatisfy { $0.version.isEmpty || versions.contains($0.version) }
    }

    /// Items that live and have changed since, read once for the batch.
    private func changes(since sequence: UInt64) throws -> [DocumentID] {
        if let seen, seen.sequence == sequence { return seen.changes }
        var changes: [DocumentID] = []
        var count = 0
        try container.transaction.rows(container.scope, after: sequence, nil) { row in
            count += 1
            if !row.deleted, let id = DocumentID(row.name) { changes.append(id) }
            return count <= Self.readMax
        }
        looks += count
        try look()
        // Nothing is known of those that were not read.
        if count > Self.readMax { changes = Array(repeating: .top, count: Self.readMax + 1) }
        seen = (sequence, changes)
        return changes
    }
}
