import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// What was refused, until somebody has dismissed it.
extension DocumentTransaction {
    struct Refusal {
        /// See ``Undecided/number``.
        var number: Int64
        var item: ItemName
        var path: String
        /// Of the content that is still here.
        var version: DocumentID?
        var at: Timestamp
        var error: CloudError
        /// Nil: it was more than this one change.
        var change: WireDocumentChange?
        /// Which content it brought, and its root; empty: none.
        var brought: Data { change?.content?.version ?? Data() }
        /// The version that this was made from; empty: none.
        var base: Data { change?.content?.base ?? Data() }
        var root: Data { change?.content?.root ?? Data() }
        /// It was part of a change under conditions that did not hold: without those it must not be sent.
        var isConditional: Bool { error.details["condition"] != nil || error.details["conditions"] != nil }
        var makesFolder: Bool { change?.createsFolder ?? false }

        /// Folders first, and each content after the one that it was made from: uploads run side by side, so the later one
        /// may have been rejected first.
        static func inOrder(_ rejected: [Refusal]) -> [Refusal] {
            let byVersion = Dictionary(rejected.map { ($0.brought, $0) }) { first, _ in first }
            var seen: Set<Int64> = []
            var ordered = rejected.filter(\.makesFolder)
            for refusal in rejected where !refusal.makesFolder {
                var chain: [Refusal] = []
                var next: Refusal? = refusal
                while let one = next, seen.insert(one.number).inserted {
                    chain.append(one)
                    next = one.change?.content.flatMap { $0.base.isEmpty ? nil : byVersion[$0.base] }
                }
                ordered += chain.reversed()
            }
            return ordered
        }

        /// Whether it was to make the item.
        var makes: Bool { if case .create? = change?.kind { true } else { false } }

        init(_ change: Undecided) throws {
            number = change.number
            item = change.name
            path = change.path ?? "?"
            version = change.isOnlyHere ? change.content.flatMap { DocumentID(bytes: $0) } : nil
            at = change.found
            error = change.error
            self.change = try change.mine.map { try WireDocumentChange(serializedBytes: $0) }
        }
    }

    /// Notes that a change of the item was refused.
    ///
    /// - Parameters:
    ///   - change: Nil: it is more than one.
    ///   - isHere: Whether the content that it brings is here, in the home.
    /// - Returns: Its number.
    @discardableResult
    func recordRefusal(
        of item: ItemName, at path: String, bringing change: WireDocumentChange? = nil, isHere: Bool = false,
        _ error: CloudError, now: Timestamp
    ) throws -> Int64 {
        let content = change?.content
        let number = try rows.undecided.add(
            Undecided(
                kind: .rejected, name: item, found: now, error: error, mine: change?.serializedData(), path: path,
                content: content?.version, root: content.flatMap { $0.root.isEmpty ? nil : $0.root },
                isOnlyHere: isHere))
        try touch(item)
        return number
    }

    /// Takes a rejected change out of the list, to be sent again.
    ///
    /// - Returns: Nil: it cannot be sent again. The change or its content is not on this device, it had conditions, or
    ///   another process has sent or dismissed it.
    func takeRefused(_ refusal: Refusal) throws -> (change: WireDocumentChange, content: StagedContent?)? {
        guard let change = refusal.change, !refusal.isConditional else { return nil }
        var staged: StagedContent?
        if let content = change.content, !content.isInline {
            guard let version = refusal.version, try holdsContent(content.version) else { return nil }
            let chunks = try chunks(of: version)
            staged = StagedContent(
                version: version, length: content.length, chunks: chunks, modified: content.modified)
            staged?.nodes = chunks.isEmpty ? [] : try CutChunk.nodes(of: chunks)
        }
        return try removeRefusal(refusal) ? (change, staged) : nil
    }

    /// Rejections of this content, as an item's own.
    func refusals(bringing version: Data) throws -> [Refusal] {
        try rows.undecided.all(withContent: version).map(Refusal.init).filter { $0.change?.renditionName == nil }
    }

    func hasRefusals() throws -> Bool { try !rows.undecided.isEmpty(.rejected) }

    func refusals() throws -> [Refusal] { try rows.undecided.all(.rejected).map(Refusal.init) }

    /// Those that may be settled by what was changed: they are of the item, or it has what they brought.
    func refusals(concernedBy changed: SettlingItems) throws -> [Refusal] {
        guard let names = changed.names else { return try refusals() }
        var found: [Int64: Undecided] = [:]
        func note(_ changes: [Undecided]) { for change in changes { found[change.number] = change } }
        for name in names {
            note(try rows.undecided.all(of: name))
            guard let item = try synced(name)?.item, item.hasContent else { continue }
            for content in [item.content] + item.conflicts where !content.version.isEmpty {
                note(try rows.undecided.all(withContent: content.version))
            }
            if !item.content.root.isEmpty { note(try rows.undecided.all(withRoot: item.content.root)) }
        }
        return try found.values.sorted { $0.number < $1.number }.map(Refusal.init)
    }

    /// Those that brought this content, or are of this path.
    func refusals(of version: Data, at path: String?) throws -> [Refusal] {
        let brought = try rows.undecided.all(withContent: version)
        let there = try path.map { try rows.undecided.all(at: $0) } ?? []
        return try (brought + there.filter { $0.content != version }).map(Refusal.init)
    }

    /// Whether a change of the item was refused, and nobody has dismissed that.
    func isRefused(_ id: DocumentID) throws -> Bool { try !rows.undecided.all(of: id.name).isEmpty }

    /// Takes a rejected content of an item out, since a newer one takes its place, with those that it was made from.
    ///
    /// - Returns: Versions whose bytes were kept for these.
    func dropRejected(_ version: DocumentID, of id: DocumentID) throws -> [DocumentID] {
        let all = try rejectedContents(of: id)
        guard let last = all.first(where: { $0.brought == version.wire }) else { return [] }
        var dropped: [DocumentID] = []
        var chain: Set = [last.brought]
        for one in all.reversed() {
            // When the earlier of two contents was rejected first, the later one has its base.
            guard chain.contains(one.brought) || one.number < last.number && chain.contains(one.base) else { continue }
            chain.insert(one.base)
            guard try removeRefusal(one) else { continue }
            if let version = one.version { dropped.append(version) }
        }
        return dropped
    }

    /// The version that a rejected content was made from, before any that was rejected; nil: the item was new.
    func base(ofRejected refusal: Refusal, of id: DocumentID) throws -> DocumentID? {
        var base = refusal.base
        for earlier in try rejectedContents(of: id).reversed() where earlier.brought == base { base = earlier.base }
        return DocumentID(bytes: base)
    }

    /// The rejected creation and contents of an item in the order in which each was made from the one before. Those under
    /// conditions are the app's own business.
    private func rejectedContents(of id: DocumentID) throws -> [Refusal] {
        let refusals = try rows.undecided.all(.rejected, of: id.name).map(Refusal.init)
        return Refusal.inOrder(
            refusals.filter { $0.change?.content != nil && $0.change?.renditionName == nil && !$0.isConditional })
    }

    /// Rejected deletions and moves: no content is lost with them.
    func rejectedPlaces(of id: DocumentID) throws -> [Refusal] {
        try rows.undecided.all(.rejected, of: id.name).map(Refusal.init)
            .filter { $0.change.map { $0.trashes || $0.places } ?? false }
    }

    /// Takes a refusal out, and its bytes with it unless they wait to be sent by something else.
    ///
    /// - Returns: False: it is not there any more.
    @discardableResult
    func removeRefusal(_ refusal: Refusal) throws -> Bool {
        guard try rows.undecided.remove(refusal.number) else { return false }
        try touch(refusal.item)
        guard let version = refusal.version else { return true }
        try cached(
            "DELETE FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3 AND position = ?4"
        ).execute(arguments: arguments(version.wire, -refusal.number))
        return true
    }
}
