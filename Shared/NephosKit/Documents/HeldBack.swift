import Foundation
import NephosCore
import NephosWire
import SwiftProtobuf

/// What a request that waits is about.
struct RequestFootprint {
    /// Items that it changes.
    private(set) var items: Set<DocumentID> = []
    /// Folders that something is put into.
    private(set) var targets: Set<DocumentID> = []
    /// Folders in which, however deep, something lies that it is about: with one of them it would be deleted, and come
    /// back with its content.
    private(set) var above: Set<DocumentID> = []
    /// Items that go, with all that lies in them.
    private(set) var deleted: Set<DocumentID> = []
    /// Folders that it takes to be as they were, with all that lies in them.
    private(set) var watched: Set<DocumentID> = []
    /// Of contents.
    private(set) var roots: Set<Data> = []
    /// Of the items, those that it makes, and those that it does something with which means another thing before a content
    /// of theirs than after it.
    private(set) var made: Set<DocumentID> = []
    private(set) var bound: Set<DocumentID> = []
    /// The service does it also while its disk is full.
    let makesRoom: Bool

    init(_ request: WireApplyChanges, _ documents: DocumentTransaction) throws {
        makesRoom = request.makesRoom
        for change in request.changes where !change.announces {
            guard let item = DocumentID(bytes: change.item) else { continue }
            items.insert(item)
            if case .create? = change.kind { made.insert(item) }
            if change.followsContent { bound.insert(item) }
            if let root = change.content?.root, !root.isEmpty { roots.insert(root) }
            let target = change.target.flatMap { DocumentID(bytes: $0) }
            if let target { targets.insert(target) }
            switch change.kind {
            case .trash, .remove: deleted.insert(item)
            default: break
            }
            try addAbove(target ?? documents.document(item)?.parent, documents)
        }
        // What waits of those is vouched for: it is there before.
        for condition in request.conditions {
            guard let item = DocumentID(bytes: condition.item) else { continue }
            items.insert(item)
            if case .unchangedSince? = condition.kind { watched.insert(item) }
        }
    }

    private mutating func addAbove(_ folder: DocumentID?, _ documents: DocumentTransaction) throws {
        var next = folder
        for _ in 0...DocumentLimits.depthMax {
            guard let folder = next, above.insert(folder).inserted else { return }
            next = folder == .documents ? .top : try documents.document(folder)?.parent
        }
    }
}

/// The footprints of what waits, which is looked at with each request that is sent: none is made twice.
struct RequestFootprints {
    private static let countMax = 1024
    private var known: [Int64: (edits: Int64, created: Timestamp, footprint: RequestFootprint)] = [:]

    /// As it was when the request was looked at first: what it concerns may have been deleted here since.
    ///
    /// - Parameter operation: With or without its content, which is read where it is not known.
    mutating func footprint(
        of operation: OutboxOperation, _ documents: DocumentTransaction
    ) throws -> RequestFootprint {
        if let known = known[operation.position], known.edits == operation.edits, known.created == operation.created {
            return known.footprint
        }
        let payload = try documents.rows.payload(at: operation.position)
        // A question is about nothing that waits.
        let request = try DocumentQuestion(payload) == nil ? payload : Data()
        let footprint = try RequestFootprint(WireApplyChanges(serializedBytes: request), documents)
        if known.count >= Self.countMax { known = [:] }
        known[operation.position] = (operation.edits, operation.created, footprint)
        return footprint
    }
}

/// What the requests that wait for contents are about, which later ones must not overtake.
///
/// Most often nothing waits behind them; so they are put together when the first does.
struct HeldBack {
    private var added: [(footprint: RequestFootprint, isForContent: Bool)] = []
    private var items: Set<DocumentID> = []
    private var targets: Set<DocumentID> = []
    private var above: Set<DocumentID> = []
    private var watched: Set<DocumentID> = []
    /// Of contents that the server has once it has those requests, and which others may rest on.
    private var roots: Set<Data> = []

    mutating func concerns(_ footprint: RequestFootprint) -> Bool {
        for (footprint, isForContent) in added { join(footprint, isForContent: isForContent) }
        added = []
        return !items.isDisjoint(with: footprint.items) || !targets.isDisjoint(with: footprint.items)
            || !items.isDisjoint(with: footprint.targets) || !above.isDisjoint(with: footprint.deleted)
            || !watched.isDisjoint(with: footprint.above) || !roots.isDisjoint(with: footprint.roots)
    }

    /// - Parameter isForContent: It only brings contents; else it may also free a name for another to take.
    mutating func add(_ footprint: RequestFootprint, isForContent: Bool) { added.append((footprint, isForContent)) }

    private mutating func join(_ footprint: RequestFootprint, isForContent: Bool) {
        items.formUnion(footprint.items)
        targets.formUnion(footprint.targets)
        above.formUnion(footprint.above)
        watched.formUnion(footprint.watched)
        roots.formUnion(footprint.roots)
        if !isForContent { items.formUnion(footprint.targets) }
    }
}

/// What the requests that a pause keeps here are about. What does not rest on their contents goes on past them, also
/// moves of the same items.
struct HeldByPause {
    private var positions: Set<Int64> = []
    private var made: Set<DocumentID> = []
    private var bound: Set<DocumentID> = []
    private var above: Set<DocumentID> = []
    private var roots: Set<Data> = []

    mutating func add(_ footprint: RequestFootprint, at position: Int64) {
        positions.insert(position)
        made.formUnion(footprint.made)
        bound.formUnion(footprint.bound)
        above.formUnion(footprint.above)
        roots.formUnion(footprint.roots)
    }

    var isEmpty: Bool { positions.isEmpty }

    func contains(_ position: Int64) -> Bool { positions.contains(position) }

    func concerns(_ footprint: RequestFootprint) -> Bool {
        !made.isDisjoint(with: footprint.items) || !bound.isDisjoint(with: footprint.bound)
            || !above.isDisjoint(with: footprint.deleted) || !roots.isDisjoint(with: footprint.roots)
    }
}
