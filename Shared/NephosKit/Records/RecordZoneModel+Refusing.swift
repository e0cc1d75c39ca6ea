internal import Foundation
internal import NephosCore
internal import NephosRecordRules
internal import NephosWire
internal import SwiftProtobuf

/// What the server does not take, and what was saved over it.
extension RecordZoneModel {
    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush {
        let records = records(in: rows)
        let (sent, isLast) = try records.nextPart(at: operation.position)
        if let push = try refuseLost(operation, error, in: records) { return push }
        if try storesAgain(sent, of: operation, after: error, in: records) {
            try storeAgain(operation, in: records)
            return RefusedPush(rest: next(operation))
        }
        guard error.code == .limitExceeded else {
            return RefusedPush(news: try refuseAll(of: operation, error, in: records))
        }
        if sent.count > 1, try isDivisible(operation) {
            try records.divide(records.pending(at: operation.position), into: sent.count / 2)
            return RefusedPush(rest: next(operation))
        }
        let reason = sent.count > 1 ? Self.tooMuchAtOnce(error) : error
        let news = try take(sent.map { ($0, reason, nil) }, of: operation, in: records)
        if isLast { try end(operation, in: records) }
        return RefusedPush(news: news, rest: isLast ? nil : next(operation))
    }

    /// Those of the changes whose assets are not here any more as they were saved; the others may go on without them.
    ///
    /// - Returns: Nil: that is not why, or they may not.
    private func refuseLost(
        _ operation: OutboxOperation, _ error: CloudError, in records: RecordTransaction
    ) throws -> RefusedPush? {
        guard error.details[Self.lostContent] != nil, try isDivisible(operation) else { return nil }
        let all = try records.pending(at: operation.position)
        let root = error.details[Self.lostAsset].flatMap { Data(base64Encoded: $0) }
        let lost = try all.filter { change in
            try change.newAssets.contains { asset in
                try root.map { $0 == asset.root } ?? (records.assets.copy(of: asset) == nil)
            }
        }
        guard !lost.isEmpty, lost.count < all.count else { return nil }
        return RefusedPush(
            news: try take(lost.map { ($0, error, nil) }, of: operation, in: records), rest: next(operation))
    }

    func refuseAll(
        of operation: OutboxOperation, _ error: CloudError, in records: RecordTransaction
    ) throws -> ChangeNotification? {
        let all = try records.pending(at: operation.position)
        let news = try take(all.map { ($0, error, nil) }, of: operation, in: records)
        try end(operation, in: records)
        return news
    }

    private static func tooMuchAtOnce(_ error: CloudError) -> CloudError {
        CloudError(
            .limitExceeded,
            "These changes are too much for one request, and were to be made all or none. Save fewer at once, or not atomically.",
            details: error.details)
    }

    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite] {
        try records(in: rows).refusedWrites(recovery: recoveryOfRefused)
    }

    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName] {
        let records = records(in: rows)
        let wanted = names.map { Set($0) }
        var told: Set<ItemName> = []
        let dismissed = try records.refusedWrites().map(\.key).filter {
            (wanted?.contains($0) ?? true) && told.insert($0).inserted
        }
        for name in dismissed { try records.dismissRefusals(of: name.rawValue) }
        return dismissed
    }

    // MARK: What becomes of each

    /// One change of an operation, and what became of it; server: with a conflict, what is there.
    typealias Answer = (pending: RecordTransaction.Pending, failure: CloudError?, server: WireRecord?)

    /// Takes these changes of the operation out. What failed is kept where a person finds it.
    func take(
        _ results: [Answer], of operation: OutboxOperation, in records: RecordTransaction
    ) throws -> ChangeNotification? {
        var refused = Refused()
        try take(
            results, of: operation, isByItself: isByItself(operation, count: results.count), in: records, &refused)
        guard !refused.names.isEmpty else { return nil }
        return ChangeNotification(reason: .quotaViolationChange, changedKeys: refused.names, error: refused.error)
    }

    private struct Refused {
        private(set) var names: [ItemName] = []
        private(set) var error: CloudError?

        mutating func add(_ name: String, _ failure: CloudError) {
            names.append(ItemName(name))
            // The one that the others failed for says more.
            if error == nil || error?.code == .batchRequestFailed { error = failure }
        }
    }

    /// The save over one that is refused would meet a record that it was not made from: it is refused with it, and so is
    /// what is to be done with it as a whole. In the order in which they were saved: each is one with what was refused
    /// before it.
    ///
    /// - Parameter isByItself: Whether a change that fails fails for itself alone.
    private func take(
        _ results: [Answer], of operation: OutboxOperation, isByItself: Bool, in records: RecordTransaction,
        _ refused: inout Refused
    ) throws {
        var waiting: [(position: Int64, former: RecordTransaction.Pending, failure: CloudError)] = []
        func note(_ former: RecordTransaction.Pending, _ failure: CloudError) throws {
            guard let (next, _) = try records.successor(of: former) else { return }
            waiting.append((next.position, former, failure))
        }
        for (former, failure) in try keep(results, isByItself: isByItself, in: records, &refused) {
            try note(former, failure)
        }
        while let first = waiting.indices.min(by: { waiting[$0].position < waiting[$1].position }) {
            let (_, former, failure) = waiting.remove(at: first)
            // Another's may have taken it in.
            guard let (next, operation) = try records.successor(of: former) else { continue }
            guard let save = next.save else {
                // What was there before is deleted all the same.
                _ = try records.rebase(over: former)
                continue
            }
            guard save.policy == .ifServerRecordUnchanged else { continue }
            let all = try isDivisible(operation) ? [next] : records.pending(at: operation.position)
            let answers = all.map { ($0, $0.place == next.place ? failure : Self.otherFailed, nil) as Answer }
            for (former, failure) in try keep(answers, isByItself: false, in: records, &refused) {
                try note(former, failure)
            }
            guard try records.pending(at: operation.position).isEmpty else { continue }
            try end(operation, in: records)
            try records.rows.removeOperation(at: operation.position)
        }
    }

    /// Takes changes out, and keeps what failed where a person finds it.
    ///
    /// - Returns: Those that are refused.
    private func keep(
        _ results: [Answer], isByItself: Bool, in records: RecordTransaction, _ refused: inout Refused
    ) throws -> [(former: RecordTransaction.Pending, failure: CloudError)] {
        // Before they go: what comes after them was made from them.
        let clients = try results.map { pending, failure, _ in
            try failure.map { _ in try records.client(of: pending) }
        }
        for result in results { try records.remove(result.pending) }
        var kept: [(former: RecordTransaction.Pending, failure: CloudError)] = []
        for ((pending, failure, server), client) in zip(results, clients) {
            guard let failure, let client else { continue }
            let (name, base) = (pending.change.record, pending.change.base)
            let isConflict = failure.isConflict(of: pending.change)
            // It is taken with what was saved over it.
            if isByItself, failure.code != .batchRequestFailed, failure.code != .unknownItem, !isConflict,
                try records.rebase(over: pending)
            {
                continue
            }
            refused.add(name, failure)
            // What was saved over one that is a conflict is one with it, whyever it is not done.
            let former = try records.conflicts(of: name).first { !base.isEmpty && $0.client?.changeTag == base }
            if isConflict || former != nil {
                let there = isConflict ? server : former?.server?.base
                if client.hasSameContent(as: there) { continue }
                try records.noteConflict(
                    of: name, ancestor: pending.ancestor, server: there, client: client, madeFrom: base,
                    isConflict ? failure : former?.error ?? failure, now: engine.now)
                continue
            }
            try records.noteRefusal(
                of: name, client: client, ancestor: pending.ancestor, madeFrom: base, failure,
                now: engine.now)
            kept.append((pending, failure))
        }
        return kept
    }

    /// Whether a change that fails fails for itself alone: then it may go with what was saved over it. What was to be done
    /// only as a whole, only where others are as they were, or with what is left for the app, is not done without that.
    private func isByItself(_ operation: OutboxOperation, count: Int) throws -> Bool {
        let request = try WireZoneChanges(serializedBytes: operation.payload)
        return (request.notAtomic || count == 1) && request.conditions.isEmpty && request.clientToken.isEmpty
    }

    private static let otherFailed = CloudError(
        .batchRequestFailed, "Another change of the zone failed, and the zone changes as a whole.")
}

extension WireRecordChange {
    /// The change tag that it was made from; empty: none.
    var base: Data {
        switch kind {
        case .save(let save): save.base
        case .delete(let deletion): deletion.base
        case nil: Data()
        }
    }
}

extension WireRecord? {
    /// Whether both would be saved alike, or are both deletions.
    func hasSameContent(as other: WireRecord?) -> Bool {
        switch (self, other) {
        case (nil, nil): true
        case (let left?, let right?): left.type == right.type && SaveRule.hasSameContent(left, right)
        default: false
        }
    }
}
