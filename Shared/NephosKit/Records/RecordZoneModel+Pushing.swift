internal import Foundation
internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosRecordRules
internal import NephosWire
internal import SwiftProtobuf

extension RecordZoneModel {
    /// Operations keep their order: a parent is saved before its child, and a save before a later save of its record.
    func arrange(_ operations: inout [OutboxOperation], isFull: Bool, in rows: ScopeTransaction) throws {
        let makingRoom = try isFull ? makingRoom(among: operations, in: rows) : []
        for index in operations.indices {
            operations[index].goesAlone = true
            operations[index].makesRoom = makingRoom.contains(operations[index].position)
        }
    }

    func continueTransfers(hasUploads: Bool) { if hasUploads { uploads.beginSoon() } }

    /// No operation is sent while the home has no room for its conflict or rejection, nor before its assets are stored.
    func preparations(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> [Int64: Preparation] {
        guard !operations.isEmpty else { return [:] }
        guard let lack = try lackOfRoom(in: rows) else { return try waitingForAssets(among: operations, in: rows) }
        return Dictionary(operations.map { ($0.position, lack) }) { $1 }
    }

    /// What there is as much of as is kept; nil: of nothing.
    private func lackOfRoom(in rows: ScopeTransaction) throws -> Preparation? {
        let records = records(in: rows)
        if try records.rows.undecided.isFull(.conflict) { return .conflicts }
        return try records.rows.undecided.isFull(.rejected) ? .refusals : nil
    }

    func hasten() { uploads.hasten() }

    func ended() { uploads.end() }

    func pack(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> any SwiftProtobuf.Message {
        var zone = try WireZoneChanges(serializedBytes: operation.payload)
        let records = records(in: rows)
        let (sent, isLast) = try records.nextPart(at: operation.position)
        // It says that all of them are made.
        if !isLast { zone.clientToken = Data() }
        zone.zoneID =
            place.isPublic ? RecordLimits.defaultZone : String(rows.scope.path.dropFirst(container.count + 1))
        zone.changes = sent.map(\.change)
        if operation.head.sequence > 0 { zone.head = WireChangeToken(operation.head) }
        var request = WireModifyRecords()
        request.transferID = try records.upload(at: operation.position)?.transfer ?? Data()
        request.container = container
        request.database = place.isPublic ? .public : .private
        request.zones = [zone]
        return request
    }

    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName] {
        try records(in: rows).pending(at: operation.position).prefix(Self.listedMax).map { ItemName($0.change.record) }
    }

    private static let listedMax = 5

    // MARK: Answers

    /// Names of records that went with others which a reply has: there may be more.
    private static let cascadedToldMax = 1000

    func receipt(_ reply: Frame, of operation: OutboxOperation, in rows: ScopeTransaction) throws -> PushReceipt? {
        let records = records(in: rows)
        let (pending, isLast) = try records.nextPart(at: operation.position)
        guard let reply = try? reply.decode(WireModifyRecordsReply.self), reply.zones.count == 1,
            let outcome = reply.zones.first, outcome.hasFailure || outcome.records.count == pending.count
        else { return nil }
        let state = try rows.state()
        if outcome.hasFailure {
            let error = CloudError(outcome.failure)
            // What only lasts a while is asked again.
            guard error.code.retry == .never else { return nil }
            let waiting = try waitsForZone(error, operation, in: rows)
            let storesAgain = try waiting == nil && storesAgain(pending, of: operation, after: error, in: records)
            let rest = storesAgain ? next(operation) : waiting
            return PushReceipt(token: state.head, previousSequence: state.head.sequence, rest: rest) { _, _ in
                if storesAgain { try self.storeAgain(operation, in: records) }
                if rest != nil { return nil }
                return try self.refuseAll(of: operation, error, in: records)
            }
        }
        // Where there is no copy there is nothing to bring up to date.
        let hasCopy = place.hasCopy
        let token = hasCopy && outcome.hasToken ? ChangeToken(outcome.token) : state.head
        let isWritten = hasCopy && token.sequence > outcome.previousSequence
        let results = try zip(pending, outcome.records).map { try result(of: $0, $1, token, isWritten, in: records) }
        // What is not known from the reply has to be fetched first: a conflict shows what the copy shows.
        let isWhole = results.allSatisfy { $0.isKnown } && outcome.cascaded.count < Self.cascadedToldMax
        let others = isWritten ? outcome.previousSequence : token.sequence
        let hasOthers = results.contains { $0.failure != nil }
        let cascaded = outcome.cascaded.map { ItemName($0) }
        // It met a server that had lost what it was made from, and by now has it again, as far as this device goes.
        let isOutdated = operation.head.epoch != 0 && operation.head.epoch < token.epoch
        let isPremature = isOutdated && results.contains { $0.isConflict }
        let lacking = try isPremature ? nil : lackingAssets(results, of: operation, in: records)
        let (done, again) = try isPremature ? ([], results) : lacking ?? divided(results, of: operation)
        let rest = isLast && again.isEmpty ? nil : next(operation)
        return PushReceipt(
            token: token, previousSequence: hasCopy ? outcome.previousSequence : state.head.sequence,
            winner: !hasCopy ? 0 : isWhole ? hasOthers ? others : 0 : token.sequence, rest: rest
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
                done.map { ($0.pending, $0.failure, $0.server) }, of: operation, in: records)
            if lacking != nil {
                try self.storeAgain(operation, in: records)
            } else if !again.isEmpty, !isPremature {
                try records.divide(again.map(\.pending), into: pending.count / 2)
            }
            if rest == nil { try self.end(operation, in: records) }
            try self.trimAssets(in: records.rows)
            if !isCurrent, hasCopy { try self.offerAgain(done, in: records) }
            return news
        }
    }

    /// The same under an id of its own: the one that was answered is done with.
    func next(_ operation: OutboxOperation, after pause: Duration = .zero) -> OutboxOperation {
        var operation = operation
        operation.id = engine.makeOperationID()
        operation.state = .unsent
        operation.nextAttempt = pause > .zero ? engine.now.advanced(by: pause) : Timestamp(milliseconds: 0)
        operation.error = nil
        return operation
    }

    /// The server does not have the zone, and this device has not heard that it was deleted: either it hears of that in a
    /// moment, and what waits is refused, or the server has lost the zone, and it is made again.
    private func waitsForZone(
        _ error: CloudError, _ operation: OutboxOperation, in rows: ScopeTransaction
    ) throws -> OutboxOperation? {
        guard error.code == .zoneNotFound, try isStillThis(rows), zone != RecordZone.defaultName else { return nil }
        var rest = next(operation, after: engine.pause(of: operation.retry))
        rest.error = error
        pullDatabase()
        return rest
    }

    // MARK: Parts

    /// Whether what is too much for one request may go in several.
    func isDivisible(_ operation: OutboxOperation) throws -> Bool {
        try WireZoneChanges(serializedBytes: operation.payload).notAtomic
    }

    /// Deletions with which too many records would go are tried with fewer others.
    ///
    /// - Returns: What is done with, and what is sent again.
    private func divided(
        _ results: [Result], of operation: OutboxOperation
    ) throws -> (done: [Result], again: [Result]) {
        let isTooMuch = { (result: Result) in
            result.failure?.code == .limitExceeded && result.pending.isDeletion
        }
        guard results.count > 1, results.contains(where: isTooMuch), try isDivisible(operation) else {
            return (results, [])
        }
        return (results.filter { !isTooMuch($0) }, results.filter(isTooMuch))
    }

    /// What the server lacks assets of goes again, once they are stored.
    ///
    /// - Returns: What is done with, and what is sent again; nil: it lacks none, or nothing can be done about it.
    private func lackingAssets(
        _ results: [Result], of operation: OutboxOperation, in records: RecordTransaction
    ) throws -> (done: [Result], again: [Result])? {
        let isLacking = { (result: Result) in result.failure?.code == .assetNotAvailable }
        guard let error = results.first(where: isLacking)?.failure,
            try storesAgain(results.filter(isLacking).map(\.pending), of: operation, after: error, in: records)
        else { return nil }
        return try isDivisible(operation)
            ? (results.filter { !isLacking($0) }, results.filter(isLacking)) : ([], results)
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
        /// What the server says of it, if it was made: of a save without its fields.
        var told: WireRecord?
        var isConflict: Bool { failure?.isConflict(of: pending.change) ?? false }
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
        result.told = outcome.hasRecord ? outcome.record : nil
        // Not everyone may read it: the copy does not have it.
        if outcome.notInFeed { return result }
        let mine = try records.items.item(name)
        // A later reading has brought it.
        if let mine, mine.sequence >= token.sequence { return result }
        guard case .save(let save)? = pending.change.kind else {
            if isWritten, mine != nil {
                result.item = RecordItems.Item(name: name, sequence: token.sequence)
                result.item?.tombstone = try result.told?.serializedData()
            }
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

    /// What the server had taken in an epoch that is over, and the one that was brought back may lack.
    private func offerAgain(_ results: [Result], in records: RecordTransaction) throws {
        let offers = StagedOffers(in: records.rows)
        for result in results where result.failure == nil {
            let name = result.pending.change.record
            let theirs = try records.items.item(ItemName(name))?.record
            guard case .save(let save)? = result.pending.change.kind,
                var content = result.pending.result(over: result.pending.ancestor)
            else {
                guard theirs != nil, let told = result.told else { continue }
                if let deletion = try Self.deletion(told.serializedData(), of: name, over: theirs) {
                    try offers.add(deletion)
                }
                continue
            }
            if let told = result.told, told.version == content.version {
                (content.created, content.modified, content.seal) = (told.created, told.modified, told.seal)
                if !told.fields.isEmpty { (content.fields, content.parent) = (told.fields, told.parent) }
            }
            let isLater = (theirs?.version ?? Data()) == save.base
            if let save = try offered(content, of: name, over: theirs, isLater: isLater, in: records) {
                try offers.add(save)
            }
        }
        try records.offer(offers, by: engine)
    }
}

extension CloudError {
    /// Whether it says that somebody else was quicker.
    func isConflict(of change: WireRecordChange) -> Bool {
        if code == .serverRecordChanged { return true }
        // It was deleted.
        guard case .save(let save)? = change.kind else { return false }
        return code == .unknownItem && !save.base.isEmpty
    }
}

extension RecordTransaction {
    /// What the app had saved when it saved this.
    func client(of change: Pending) throws -> WireRecord? {
        try change.result(over: change.ancestor ?? items.item(ItemName(change.change.record))?.record)
    }
}
