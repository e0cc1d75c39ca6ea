internal import Foundation
internal import NephosBulk
internal import NephosBus
internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

extension RecordsService {
    /// Saves and deletes records. What fails of one zone leaves the others alone.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`, `.invalidArguments`, `.limitExceeded`: nothing was done of any zone.
    func modifyRecords(
        _ request: WireModifyRecords, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireModifyRecordsReply {
        let caller = try context.requireCaller()
        let (database, access) = try openDatabase(request.container, request.database, caller, transaction)
        try check(request, transaction)
        let deleter = access.isRestricted ? Deletions.Deleter(zone: database.scope, account: caller.account) : nil
        let deletes = request.zones.contains {
            $0.changes.contains { if case .delete = $0.kind { true } else { false } }
        }
        if deletes, let deleter, let now = runtime?.loop.monotonicNow,
            let refusal = deletions.refusal(of: deleter, at: now)
        {
            throw refusal
        }
        for zone in request.zones {
            guard
                case .lost(_, isNews: true) = try transaction.judge(
                    ChangeToken(zone.head), in: database.scope.partition)
            else { continue }
            throw CloudError.oldCopy
        }
        var stamp = WireRecordStamp(caller, at: context.now.nanoseconds)
        // Which devices people have is for nobody to read.
        if request.database != .private { stamp.deviceID = "" }
        // All is decided and paid for before anything is written: whatever is thrown leaves nothing behind.
        let room = RequestRoom()
        let contents = BroughtContents(service: self, upload: request.transferID, caller: caller)
        let plans = try request.zones.map {
            try plan($0, of: request, stamp, at: context.now, room, contents, caller, transaction)
        }
        let growth = try plans.reduce(Int64(0)) { try $0 + $1.growth() }
        guard !transaction.isShortOfRoom || growth <= 0 else { throw CloudError.diskFull }
        try transfers.adding(
            UInt64(max(0, growth)), by: caller.account, to: database.scope.owner, in: database.scope.partition,
            at: context.now, transaction
        ) { try count(growth, in: database.scope, transaction) }
        var reply = WireModifyRecordsReply()
        var bytesLeft = RecordLimits.replyBytesMax
        for (zone, plan) in zip(request.zones, plans) {
            reply.zones.append(try carryOut(plan, zone, context, caller, &bytesLeft))
        }
        try contents.finish(transaction)
        let deleted = plans.reduce(0) { $0 + $1.deletionCount }
        if deleted > 0, let deleter {
            transaction.afterCommit { [unowned self] in
                if let now = runtime?.loop.monotonicNow { deletions.note(deleted, of: deleter, at: now) }
            }
        }
        return reply
    }

    private func check(_ request: WireModifyRecords, _ transaction: any HandlerTransaction) throws {
        let count = request.zones.reduce(0) { $0 + $1.changes.count }
        guard (1...RecordLimits.itemsMax).contains(count) else {
            throw CloudError(
                .limitExceeded, "A request has 1 to \(RecordLimits.itemsMax) changes. Divide it.",
                details: ["maximum": "\(RecordLimits.itemsMax)"])
        }
        guard request.zones.reduce(0, { $0 + $1.conditions.count }) <= RecordLimits.conditionsMax else {
            throw CloudError(
                .limitExceeded, "A request has too many conditions. Divide it.",
                details: ["maximum": "\(RecordLimits.conditionsMax)"])
        }
        guard Set(request.zones.map { ItemName($0.zoneID) }).count == request.zones.count else {
            throw CloudError(.invalidArguments, "A zone is there twice. Name it once.", details: ["argument": "zones"])
        }
        for zone in request.zones {
            guard !zone.changes.isEmpty else {
                throw CloudError(
                    .invalidArguments, "A zone has no changes. Leave it out.", details: ["argument": "zones"])
            }
            guard Set(zone.changes.map { ItemName($0.record) }).count == zone.changes.count else {
                throw CloudError(
                    .invalidArguments, "A record is there twice. Change it once.", details: ["argument": "changes"])
            }
            guard zone.clientToken.count <= RecordLimits.clientTokenBytesMax else {
                throw CloudError(
                    .limitExceeded, "What a device leaves with a zone is too long.",
                    details: ["bytes_max": "\(RecordLimits.clientTokenBytesMax)"])
            }
        }
    }

    /// What becomes of a zone.
    private enum ZonePlan {
        case refused(CloudError)
        /// The changes with these places fail; if it changes as a whole, the others are not made either.
        case decided(ZoneBatch, failures: [Int: CloudError], isWritten: Bool)

        /// Records that it deletes.
        var deletionCount: Int {
            if case .decided(let batch, _, true) = self { batch.endings.count } else { 0 }
        }

        /// By how many bytes it will count more.
        func growth() throws -> Int64 {
            guard case .decided(let batch, _, true) = self else { return 0 }
            return try batch.growth()
        }
    }

    /// How often a zone that does not change as a whole is decided anew without what has failed: where one change fails
    /// for another that does, each time one more may. Of many changes less often, since all are looked at each time.
    private static func roundsMax(of changes: Int) -> Int { max(4, 4096 / max(1, changes)) }

    private func plan(
        _ request: WireZoneChanges, of whole: WireModifyRecords, _ stamp: WireRecordStamp, at now: Timestamp,
        _ room: RequestRoom, _ contents: BroughtContents, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> ZonePlan {
        let batch: ZoneBatch
        do {
            let (zone, access) = try openZone(
                request.zoneID, of: whole.container, whole.database, caller, transaction)
            batch = try ZoneBatch(zone, access, stamp: stamp, at: now, room: room, contents)
        } catch let error as CloudError { return .refused(error) }
        var failures: [Int: CloudError] = [:]
        for (index, change) in request.changes.enumerated() {
            do { try ChangeRule.check(change) } catch { failures[index] = error }
        }
        let isSettled = try decide(request, batch, &failures)
        // What is already as was asked was done before: it is a repeat, and its conditions have had their time.
        if let unmet = try batch.unmet(request.conditions, request.changes), !isSettled || !batch.isEmpty {
            return .refused(unmet)
        }
        if isSettled, try batch.isTooMany() {
            return .refused(
                CloudError(
                    .limitExceeded, "The zone has too many records. Delete some, or use another zone.",
                    details: ["maximum": "\(RecordLimits.recordCountMax)"]))
        }
        if isSettled {
            try batch.decideIndexes()
            room.take(batch)
        } else {
            for index in request.changes.indices where failures[index] == nil { failures[index] = Self.otherFailed }
        }
        return .decided(batch, failures: failures, isWritten: isSettled)
    }

    /// - Returns: Whether the batch can be written, without the changes that have failed.
    private func decide(
        _ request: WireZoneChanges, _ batch: ZoneBatch, _ failures: inout [Int: CloudError]
    ) throws -> Bool {
        for _ in 0..<Self.roundsMax(of: request.changes.count) {
            let more = try batch.decide(request.changes, leavingOut: Set(failures.keys))
            failures.merge(more) { $1 }
            guard failures.isEmpty || request.notAtomic else { return false }
            if more.isEmpty { return true }
        }
        return false
    }

    private static let otherFailed = CloudError(
        .batchRequestFailed, "Another change of the zone failed, and the zone changes as a whole.")

    /// Names of cascaded records that a reply has.
    private static let cascadedToldMax = 1000

    private func carryOut(
        _ plan: ZonePlan, _ request: WireZoneChanges, _ context: RequestContext, _ caller: Caller,
        _ bytesLeft: inout Int
    ) throws -> WireZoneOutcome {
        var outcome = WireZoneOutcome()
        guard case .decided(let batch, let failures, let isWritten) = plan else {
            if case .refused(let error) = plan { outcome.failure = WireFailure(error) }
            return outcome
        }
        let head = try batch.zone.head()
        outcome.token = WireChangeToken(head.token)
        outcome.previousSequence = head.token.sequence
        outcome.records = try request.changes.enumerated().map { index, change in
            try self.outcome(of: change, failures[index], batch, &bytesLeft)
        }
        guard isWritten else { return outcome }
        if !batch.isEmpty {
            let written = try batch.write(keepingFrom: runtime?.retentionStart ?? context.now)
            try keepTombstones(of: batch)
            try count(-written.freed, in: batch.zone.scope, batch.zone.transaction)
            // Of a public database readers are told what has changed, and nobody's device.
            let isPublic = batch.zone.scope.owner.isApp
            batch.zone.transaction.publish(
                OutgoingEvent(
                    name, written.told, by: written.change, device: isPublic ? nil : caller.device,
                    isPublic ? nil : context.id))
            outcome.token = WireChangeToken(written.change.token)
            outcome.previousSequence = written.change.previousSequence
        }
        // It says that all of them are made. What failed may be sent once more, and has it again then.
        if !request.clientToken.isEmpty, failures.isEmpty {
            try batch.zone.rows.setClientToken([UInt8](request.clientToken), of: caller.device, at: context.now)
        }
        outcome.cascaded = try batch.cascaded.map(\.name).filter { try batch.isVisible($0) }
            .prefix(Self.cascadedToldMax).map(\.rawValue)
        return outcome
    }

    /// Deletions that a database keeps in all of its zones together, about. Of a zone at least some.
    private static let tombstonesOfDatabaseMax = 65_536
    private static let tombstonesMin = 64

    /// What is kept of deletions counts on no plan, and a database may have a thousand zones: with more than sixteen, each
    /// keeps fewer. A public one has one zone, and those who delete there are held off.
    private func keepTombstones(of batch: ZoneBatch) throws {
        guard batch.hasDeletions, !batch.zone.scope.owner.isApp else { return }
        let zones = try scope(batch.zone.database, batch.zone.transaction).head().liveCount + 1
        try batch.zone.transaction.keepTombstones(
            of: batch.zone.scope, atMost: max(Self.tombstonesMin, Self.tombstonesOfDatabaseMax / zones))
    }

    private func outcome(
        of change: WireRecordChange, _ failure: CloudError?, _ batch: ZoneBatch, _ bytesLeft: inout Int
    ) throws -> WireRecordOutcome {
        var outcome = WireRecordOutcome()
        let name = ItemName(change.record)
        var record: WireRecord?
        if let failure {
            outcome.failure = WireFailure(failure)
            if failure.code == .serverRecordChanged, try batch.isVisible(name) { record = try batch.before(name) }
        } else if case .save(let save) = change.kind {
            record = try batch.result(name)
            // The device knows what it has saved over what it knew.
            if record?.version == save.version, try batch.before(name)?.version ?? Data() == save.base {
                record?.fields = []
            }
        } else {
            record = batch.ending(name)
        }
        guard let record else { return outcome }
        let bytes = try record.serializedData().count
        outcome.notInFeed = outcome.failure.code == 0 && !batch.isInFeed(record)
        if bytes <= bytesLeft {
            outcome.record = record
            bytesLeft -= bytes
        } else {
            outcome.omitted = true
        }
        return outcome
    }
}
