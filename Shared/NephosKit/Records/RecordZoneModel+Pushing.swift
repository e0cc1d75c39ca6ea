internal import Foundation
internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosRecordRules
internal import NephosWire
internal import SwiftProtobuf

extension RecordZoneModel {
    /// In their order: a parent is saved before its child, and a save before the one that was made from it.
    func alone(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> Set<Int64> {
        Set(operations.map(\.position))
    }

    /// Nothing overtakes what waits for a person.
    func ready(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> [OutboxOperation] {
        let blocked = try rows.firstBlocked()?.position ?? .max
        return operations.filter { $0.position < blocked }
    }

    func pack(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> any SwiftProtobuf.Message {
        var zone = try WireZoneChanges(serializedBytes: operation.payload)
        zone.zoneID = String(rows.scope.path.dropFirst(container.count + 1))
        zone.changes = try records(in: rows).pending(at: operation.position).map(\.change)
        if operation.head.sequence > 0 { zone.head = WireChangeToken(operation.head) }
        var request = WireModifyRecords()
        request.container = container
        request.zones = [zone]
        return request
    }

    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName] {
        try records(in: rows).pending(at: operation.position).prefix(Self.listedMax).map { ItemName($0.change.record) }
    }

    private static let listedMax = 5

    // MARK: Answers

    func receipt(_ reply: Frame, of operation: OutboxOperation, in rows: ScopeTransaction) throws -> PushReceipt? {
        let records = records(in: rows)
        let pending = try records.pending(at: operation.position)
        guard let reply = try? reply.decode(WireModifyRecordsReply.self), reply.zones.count == 1,
            let outcome = reply.zones.first, outcome.hasFailure || outcome.records.count == pending.count
        else { return nil }
        let state = try rows.state()
        if outcome.hasFailure {
            let error = CloudError(outcome.failure)
            // What only lasts a while is asked again.
            guard error.code.retry == .never else { return nil }
            return PushReceipt(token: state.head, previousSequence: state.head.sequence) { _, _ in
                try self.take(pending.map { ($0, error, nil) }, of: operation, in: records)
            }
        }
        let token = outcome.hasToken ? ChangeToken(outcome.token) : state.head
        let isWritten = token.sequence > outcome.previousSequence
        let results = try zip(pending, outcome.records).map { try result(of: $0, $1, token, isWritten, in: records) }
        // What is not known from the reply has to be fetched first: a conflict shows what the copy shows.
        let isWhole = results.allSatisfy { $0.isKnown }
        let others = isWritten ? outcome.previousSequence : token.sequence
        let hasOthers = results.contains { $0.failure != nil }
        let cascaded = outcome.cascaded.map { ItemName($0) }
        return PushReceipt(
            token: token, previousSequence: outcome.previousSequence,
            winner: isWhole ? hasOthers ? others : 0 : token.sequence
        ) { isCurrent, state in
            if isCurrent, isWritten {
                let gone = cascaded.map { RecordItems.Item(name: $0, sequence: token.sequence) }
                for item in results.compactMap(\.item) + gone where token.sequence > state.head.sequence {
                    let mine = try records.items.item(item.name)
                    guard mine.map({ $0.sequence <= item.sequence }) ?? true else { continue }
                    try records.items.put(item, replacing: mine, &state)
                }
            }
            let news = try self.take(
                results.map { ($0.pending, $0.failure, $0.server) }, of: operation, in: records)
            if !isCurrent { try self.offerAgain(results, in: records) }
            return news
        }
    }

    /// What became of one change.
    private struct Result {
        var pending: RecordTransaction.Pending
        var failure: CloudError?
        /// With a conflict: what the server has.
        var server: WireRecord?
        /// As the server has it by this change; nil: it was not changed by it, or that is not known.
        var item: RecordItems.Item?
        /// Whether all of that is in the reply.
        var isKnown = true
    }

    private func result(
        of pending: RecordTransaction.Pending, _ outcome: WireRecordOutcome, _ token: ChangeToken, _ isWritten: Bool,
        in records: RecordTransaction
    ) throws -> Result {
        var result = Result(pending: pending)
        let name = ItemName(pending.change.record)
        if outcome.hasFailure {
            result.failure = CloudError(outcome.failure)
            result.server = outcome.hasRecord ? outcome.record : try records.items.item(name)?.record
            // Deleted there.
            if result.failure?.code == .unknownItem { result.server = nil }
            return result
        }
        let mine = try records.items.item(name)
        // A later reading has brought it.
        if let mine, mine.sequence >= token.sequence { return result }
        guard case .save(let save)? = pending.change.kind else {
            if isWritten, mine != nil { result.item = RecordItems.Item(name: name, sequence: token.sequence) }
            return result
        }
        guard outcome.hasRecord, outcome.record.version == save.version, isWritten else {
            // Something of the same content was there already, or it was left out.
            let isHere = mine?.record?.version == (outcome.hasRecord ? outcome.record.version : save.version)
            result.isKnown = isHere
            return result
        }
        var record = outcome.record
        if record.fields.isEmpty {
            // Its fields are those that were sent, over the record that they were sent for.
            let base = mine?.record
            guard (base?.version ?? Data()) == save.base else {
                result.isKnown = false
                return result
            }
            record.fields = RecordTransaction.Pending.made(save, from: base).fields
        }
        result.item = RecordItems.Item(
            name: name, sequence: token.sequence, body: try record.serializedData(), type: record.type)
        return result
    }

    /// Takes the operation's changes out. What failed is kept where a person finds it.
    private func take(
        _ results: [(pending: RecordTransaction.Pending, failure: CloudError?, server: WireRecord?)],
        of operation: OutboxOperation, in records: RecordTransaction
    ) throws -> ChangeNotification? {
        // Before they go: what comes after them was made from them.
        let clients = try results.map { pending, failure, _ in
            try failure.map { _ in try records.client(of: pending) }
        }
        try records.removePending(at: operation.position)
        var refused: (names: [ItemName], error: CloudError?) = ([], nil)
        for ((pending, failure, server), client) in zip(results, clients) {
            guard let failure, let client else { continue }
            let name = pending.change.record
            refused.names.append(ItemName(name))
            // The one that the others failed for says more.
            if refused.error == nil || refused.error?.code == .batchRequestFailed { refused.error = failure }
            if failure.isConflict(of: pending.change) {
                if client.hasSameContent(as: server) { continue }
                try records.noteConflict(
                    of: name, ancestor: pending.ancestor, server: server, client: client,
                    madeFrom: pending.change.base, failure, now: engine.now)
            } else {
                try records.noteRefusal(
                    of: name, client: client, madeFrom: pending.ancestor, failure, now: engine.now)
            }
        }
        guard !refused.names.isEmpty else { return nil }
        return ChangeNotification(reason: .quotaViolationChange, changedKeys: refused.names, error: refused.error)
    }

    /// What the server had taken in an epoch that is over, and the one that was brought back may lack.
    private func offerAgain(_ results: [Result], in records: RecordTransaction) throws {
        for result in results where result.failure == nil {
            guard case .save(let save)? = result.pending.change.kind,
                let content = result.pending.result(over: result.pending.ancestor)
            else { continue }
            let name = result.pending.change.record
            let theirs = try records.items.item(ItemName(name))?.record
            try offer(content, of: name, over: theirs, isLater: (theirs?.version ?? Data()) == save.base, in: records)
        }
    }

    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush {
        let records = records(in: rows)
        let pending = try records.pending(at: operation.position)
        return RefusedPush(news: try take(pending.map { ($0, error, nil) }, of: operation, in: records))
    }

    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite] {
        try records(in: rows).refusals().map { refusal in
            RefusedWrite(key: ItemName(refusal.id.name), at: refusal.refused, error: refusal.error)
        }
    }

    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName] {
        let records = records(in: rows)
        let dismissed = try records.refusals().map { ItemName($0.id.name) }.filter { names?.contains($0) ?? true }
        for name in dismissed { try records.dismissRefusal(of: name.rawValue) }
        return dismissed
    }
}

extension CloudError {
    /// Whether it says that somebody else was quicker.
    fileprivate func isConflict(of change: WireRecordChange) -> Bool {
        if code == .serverRecordChanged { return true }
        // It was deleted.
        guard case .save(let save)? = change.kind else { return false }
        return code == .unknownItem && !save.base.isEmpty
    }
}

extension WireRecordChange {
    /// The change tag that it was made from; empty: none.
    fileprivate var base: Data {
        switch kind {
        case .save(let save): save.base
        case .delete(let deletion): deletion.base
        case nil: Data()
        }
    }
}

extension WireRecord? {
    fileprivate func hasSameContent(as other: WireRecord?) -> Bool {
        switch (self, other) {
        case (nil, nil): true
        case (let left?, let right?): left.type == right.type && SaveRule.hasSameContent(left, right)
        default: false
        }
    }
}

extension RecordTransaction {
    /// What the app had saved when it saved this.
    func client(of change: Pending) throws -> WireRecord? {
        try change.result(over: change.ancestor ?? items.item(ItemName(change.change.record))?.record)
    }
}
