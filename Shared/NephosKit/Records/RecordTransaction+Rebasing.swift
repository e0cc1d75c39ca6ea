import Foundation
import GRDB
import NephosCore
import NephosRecordRules
import NephosWire
import SwiftProtobuf

/// What was saved over something that the server does not take.
extension RecordTransaction {
    /// What was saved over a save, or deletes it, and cannot have arrived anywhere yet; nil: nothing does.
    func successor(of former: Pending) throws -> (pending: Pending, operation: OutboxOperation)? {
        guard let save = former.save,
            // Something else of the record may wait before it.
            let next = try pending(of: former.change.record).first(where: { $0.change.isMade(over: save) }),
            let operation = try rows.operation(at: next.position), operation.state == .unsent, operation.attempts == 0
        else { return nil }
        return (next, operation)
    }

    /// What was saved over a save that is refused takes that in: it is made from what the refused one was made from. What
    /// deletes it deletes that.
    ///
    /// - Returns: False: nothing was, or it cannot: the refused one is kept by itself.
    func rebase(over refused: Pending) throws -> Bool {
        // What a restore has lost is offered as it was, or not at all.
        guard let former = refused.save, former.seal == 0, let next = try successor(of: refused)?.pending else {
            return false
        }
        guard let save = next.save else { return try rebase(next, over: refused, former) }
        return try rebase(next, save, over: refused, former)
    }

    /// A change that is made over a save that was refused before, as one with it: the server has only heard of what that was
    /// made from.
    ///
    /// - Returns: It, and the number of the refused one; nil: none was.
    /// - Throws: ``CloudError`` `.limitExceeded` when together they are more than a record has room for.
    func takingInRefused(_ change: Pending) throws -> (whole: Pending, refused: Int64?) {
        guard let refused = try refusals(of: change.change.record).first(where: { $0.isBase(change.change.base) }),
            let former = refused.save
        else { return (change, nil) }
        var change = change
        switch change.change.kind {
        case .save(var save):
            if !save.replace { save.take(in: former) }
            save.base = former.base
            change.change.save = save
            try ChangeRule.check(change.change)
        case .delete:
            // Of one that was to be new the server has none: without a base whatever has the name by now would be deleted.
            guard !former.base.isEmpty else { return (change, refused.number) }
            change.change.delete.base = former.base
        case nil: break
        }
        change.ancestor = refused.ancestor
        return (change, refused.number)
    }

    private func rebase(_ next: Pending, over refused: Pending, _ former: WireSaveRecord) throws -> Bool {
        // The refused one may have been made over others that are refused, of which the server has none either.
        let all = try refusals(of: next.change.record)
        // Of what is refused by itself only what it was made over is noted.
        let noted = all.first { $0.isBase(former.version) } ?? all.first { $0.isBase(former.base) }
        let (base, ancestor) =
            noted.map { ($0.ancestor?.version ?? Data(), $0.ancestor) } ?? (former.base, refused.ancestor)
        guard base.isEmpty else {
            var next = next
            next.change.delete.base = base
            next.ancestor = ancestor
            try put(next)
            return true
        }
        // By force it is saved over whatever there is, which this device may not know.
        guard former.policy == .ifServerRecordUnchanged else { return false }
        // It was never there. Without a base whatever has the name by now would be deleted.
        try remove(next)
        guard try pending(at: next.position).isEmpty else { return true }
        try removePending(at: next.position)
        try rows.removeOperation(at: next.position)
        return true
    }

    private func rebase(
        _ next: Pending, _ save: WireSaveRecord, over refused: Pending, _ former: WireSaveRecord
    ) throws -> Bool {
        var (next, save) = (next, save)
        guard save.policy == former.policy, save.type == former.type else { return false }
        if !save.replace {
            save.take(in: former)
            save.replace = former.replace
        }
        save.base = former.base
        let whole = next
        next.change.save = save
        next.ancestor = refused.ancestor
        // Together it may be more than a record has room for.
        guard (try? ChangeRule.check(next.change)) != nil else { return false }
        try put(next)
        try settleNeeds(of: next.change.record)
        if !next.newAssets.isSubset(of: whole.newAssets) { try awaitAssets(at: next.position) }
        return true
    }
}

extension WireRecordChange {
    /// Whether it was saved over this save, or deletes it.
    fileprivate func isMade(over save: WireSaveRecord) -> Bool {
        switch kind {
        case .save(let later): later.base == save.version && later.seal == 0
        case .delete(let deletion): !deletion.base.isEmpty && deletion.base == save.version
        case nil: false
        }
    }
}

extension WireSaveRecord {
    /// Makes one save of this and of that over which it was made.
    mutating func take(in former: WireSaveRecord) {
        let named = Set(fields.map(\.name))
        fields = former.fields.filter { !named.contains($0.name) } + fields
        if !hasParent, former.hasParent { parent = former.parent }
    }
}
