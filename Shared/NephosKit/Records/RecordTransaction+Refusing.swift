import Foundation
import GRDB
import NephosCore
import NephosRecordRules
import NephosWire
import SwiftProtobuf

/// What the server did not take: kept until a person, or the app, has decided.
extension RecordTransaction {
    // MARK: Conflicts

    /// Notes that a save or deletion met another. What was saved over one that is noted already, or refused, is one with
    /// it: both go back to its ancestor. Whatever else was saved of the record is a conflict by itself.
    ///
    /// - Parameters:
    ///   - client: What was to be; nil: deleted.
    ///   - base: The change tag that it was made from.
    ///   - server: What there is; nil: it was deleted.
    func noteConflict(
        of name: String, ancestor: WireRecord?, server: WireRecord?, client: WireRecord?, madeFrom base: Data,
        _ error: CloudError, now: Timestamp
    ) throws {
        let former = try conflicts(of: name).first { $0.client?.changeTag == base }
        let noted = try refusals(of: name)
        let refused = noted.first { $0.isBase(base) }
        // What was saved over it may have been refused before it.
        let later = noted.first { $0.isMade(from: client) && $0.body != nil }
        let client = later?.body ?? client
        // What was deleted was there once, whatever became of it since.
        let first =
            try former.map { try $0.ancestor?.base?.serializedData() as Data? }
            ?? refused.flatMap { $0.error.code == .unknownItem ? nil : try $0.ancestor?.serializedData() as Data? }
            ?? ancestor?.serializedData() as Data?
        if let former { _ = try removeConflict(former) }
        for one in [refused, later] { if let one { try remove(one, of: name) } }
        try rows.undecided.add(
            Undecided(
                kind: .conflict, name: ItemName(name), found: now, error: error, mine: client?.serializedData(),
                ancestor: first, theirs: server?.serializedData(), isOnlyHere: true))
        for record in [ancestor, server, client] { try need(record?.assets ?? [], of: name) }
    }

    func conflictCount() throws -> Int { try rows.undecided.count(.conflict) }

    /// In the order of the records' names, the oldest first.
    func conflicts(of name: String? = nil) throws -> [RecordConflict] {
        try undecided(.conflict, of: name).map { change in
            let id = RecordID(change.name.rawValue, zone: zone)
            func record(_ body: Data?) throws -> Record? { try wire(body).map { Record(id, $0) } }
            return RecordConflict(
                id: id, ancestor: try record(change.ancestor), server: try record(change.theirs),
                client: try record(change.mine), found: change.found, error: change.error, number: change.number)
        }
    }

    private func undecided(_ kind: Undecided.Kind, of name: String?) throws -> [Undecided] {
        if let name { return try rows.undecided.all(kind, of: ItemName(name)) }
        return try rows.undecided.all(kind).sorted { ($0.name, $0.number) < ($1.name, $1.number) }
    }

    private func wire(_ body: Data?) throws -> WireRecord? { try body.map { try WireRecord(serializedBytes: $0) } }

    /// - Returns: False: it is not there any more.
    func removeConflict(_ conflict: RecordConflict) throws -> Bool {
        try remove(conflict.number, of: conflict.id.name)
    }

    private func remove(_ number: Int64, of name: String) throws -> Bool {
        guard try rows.undecided.remove(number) else { return false }
        try settleNeeds(of: name)
        return true
    }

    // MARK: Refusals

    /// Keeps what was refused: nobody else has it. What was saved over something that is refused already is one with it, for
    /// the reason that the first was refused for, in whichever order the two were. Whatever else was saved of the record is
    /// listed by itself.
    ///
    /// - Parameters:
    ///   - client: What was to be; nil: deleted.
    ///   - ancestor: What it was made from; nil: it would be a new record.
    ///   - base: The change tag that it was made from; empty: none.
    func noteRefusal(
        of name: String, client: WireRecord?, ancestor: WireRecord?, madeFrom base: Data = Data(), _ error: CloudError,
        now: Timestamp
    ) throws {
        let noted = try refusals(of: name)
        let (former, later) = (noted.first { $0.isBase(base) }, noted.first { $0.isMade(from: client) })
        for one in noted where one.number == former?.number || one.number == later?.number || one.isSame(as: client) {
            try remove(one, of: name)
        }
        let body = if let later { later.body } else { client }
        // Of a first one that was to be a new record there is none.
        let origin = former.map(\.ancestor) ?? ancestor
        // What was to be made, and deleted then, is not there.
        if let later, later.body == nil, origin == nil { return }
        try rows.undecided.add(
            Undecided(
                kind: .rejected, name: ItemName(name), found: now, error: former?.error ?? error,
                mine: body?.serializedData(), ancestor: origin?.serializedData(), isOnlyHere: body != nil))
        try need(body?.assets ?? [], of: name)
    }

    /// A save or deletion that was refused.
    struct Refusal {
        var number: Int64
        /// Nil: a deletion.
        var body: WireRecord?
        var ancestor: WireRecord?
        var error: CloudError

        /// It as a save over what it was made from; nil: it is a deletion.
        var save: WireSaveRecord? {
            guard let body else { return nil }
            let before = Dictionary((ancestor?.fields ?? []).map { ($0.name, $0) }) { $1 }
            let left = Set(body.fields.map(\.name))
            var save = WireSaveRecord()
            (save.version, save.base, save.type) = (body.version, ancestor?.version ?? Data(), body.type)
            save.fields = body.fields.filter { before[$0.name] != $0 }
            for name in before.keys.sorted() where !left.contains(name) {
                var gone = WireRecordField()
                gone.name = name
                save.fields.append(gone)
            }
            if body.parent != ancestor?.parent ?? "" { save.parent = body.parent }
            return save
        }

        /// Whether it is the save with this change tag, over which another was made.
        func isBase(_ version: Data) -> Bool { !version.isEmpty && body?.version == version }
        /// Whether it is this save, which was refused before, or a deletion as this is one.
        func isSame(as other: WireRecord?) -> Bool {
            guard let body, let other else { return body == nil && other == nil }
            return !other.version.isEmpty && body.version == other.version
        }

        /// Whether it was made over this save.
        func isMade(from save: WireRecord?) -> Bool {
            guard let version = save?.version, !version.isEmpty else { return false }
            return version == ancestor?.version
        }
    }

    /// In the order in which they were refused.
    func refusals(of name: String) throws -> [Refusal] {
        try undecided(.rejected, of: name).map {
            Refusal(number: $0.number, body: try wire($0.mine), ancestor: try wire($0.ancestor), error: $0.error)
        }
    }

    private func remove(_ refusal: Refusal, of name: String) throws { _ = try remove(refusal.number, of: name) }

    func refusals() throws -> [RefusedRecord] {
        try undecided(.rejected, of: nil).map { change in
            let id = RecordID(change.name.rawValue, zone: zone)
            let ancestor = try wire(change.ancestor)
            return RefusedRecord(
                id: id,
                record: try wire(change.mine).map { Record(id, $0, madeFrom: ancestor, refusedAs: change.number) },
                refused: change.found, error: change.error, number: change.number)
        }
    }

    /// Which they are and why, without what they have: that is asked for with each status.
    ///
    /// - Parameter recovery: How a person saves what was refused again; a deletion is not saved.
    func refusedWrites(recovery: String? = nil) throws -> [RefusedWrite] {
        try rows.undecided.all(.rejected, withStates: false).sorted { ($0.name, $0.number) < ($1.name, $1.number) }.map
        {
            RefusedWrite(key: $0.name, at: $0.found, error: $0.error, recovery: $0.isOnlyHere ? recovery : nil)
        }
    }

    /// - Returns: False: it is not there any more.
    func dismiss(_ refused: RefusedRecord) throws -> Bool { try remove(refused.number, of: refused.id.name) }

    /// Ends what was refused and is done again by this change: it has the same content, or is known to. What else was
    /// refused of the record stays.
    ///
    /// - Parameter isSavedAgain: Whether the one of this number is part of the change.
    func endRefusals(by change: Pending, _ isSavedAgain: (Int64) -> Bool) throws {
        let name = change.change.record
        let noted = try refusals(of: name)
        guard !noted.isEmpty else { return }
        let result = try client(of: change)
        for one in noted where isSavedAgain(one.number) || one.body.hasSameContent(as: result) {
            try remove(one, of: name)
        }
    }

    /// The same of a save by its change tag.
    func endRefusal(of name: String, as version: Data) throws {
        for one in try refusals(of: name) where one.isBase(version) { try remove(one, of: name) }
    }

    /// Ends what was refused and is so at the server by now, whoever has done it.
    ///
    /// - Parameter changed: What this device was just told of.
    func endRefusals(after changed: ToldNames) throws {
        let names = changed.hasMore ? nil : Set(changed.names)
        let refused = Set(try rows.undecided.all(.rejected, withStates: false).map(\.name))
        for name in refused.sorted() where names?.contains(name) ?? true {
            // A record that is not here may be in quarantine there: that is no deletion.
            guard let server = try items.item(name)?.record else { continue }
            for one in try refusals(of: name.rawValue) where one.body.hasSameContent(as: server) {
                try remove(one, of: name.rawValue)
            }
        }
    }

    /// Of all that was refused of the record by now.
    func dismissRefusals(of name: String) throws { for one in try refusals(of: name) { try remove(one, of: name) } }
}
