internal import Foundation
internal import NephosBulk
internal import NephosCore
internal import NephosPredicates
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension DocumentsService {
    /// Changes a container: all of the batch or nothing.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`, `.permissionFailure` (another app alone changes the container), `.invalidArguments`, `.limitExceeded`, `.alreadyExists` (a name or
    ///   an id is taken), `.unknownItem`, `.constraintViolation` (something has changed since the device looked),
    ///   `.quotaExceeded`. Nothing was changed then, and the details name the item.
    func applyChanges(
        _ request: WireApplyChanges, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireApplyChangesReply {
        let caller = try context.requireCaller()
        let container = try openContainer(request.container, caller, transaction)
        try container.requireChanged(by: caller.app)
        let source = try sourceContainer(request.sourceContainer, of: container, caller, transaction)
        if case .lost(_, isNews: true) = try transaction.judge(
            ChangeToken(request.head), in: container.scope.partition)
        {
            throw CloudError.oldCopy
        }
        try check(request, transaction)
        let batch = Batch(
            container, try container.rules(),
            by: Batch.Writer(
                app: caller.app, device: caller.device, now: context.now,
                purgeTimeOfWallStamps: runtime?.purgeTimeOfWallStamps ?? context.now,
                retentionStart: runtime?.retentionStart ?? context.now, operation: context.id))
        let isRepeat = try decide(request, batch)
        let uses = try contentUses(container, caller)
        try uses.take(
            batch.usedByVersions() + batch.renditions.map { UsedContent($0.content) },
            // Of a repeat they were taken then, and what they list may be gone since.
            nodes: isRepeat ? [] : request.nodes.map { [UInt8]($0) },
            from: Self.upload(request.transferID), besides: source, counting: batch.recount())
        return try write(batch, uses, caller, context)
    }

    /// What a change costs besides the rows that are read and written for it.
    private static let rowsOfChange = 2

    /// Less than replies are kept.
    private static let repeatsKnown: Duration = .seconds(20 * 3600)

    /// What the changes make of the container; nothing is written yet.
    ///
    /// - Returns: Whether they were carried out before: nothing changes.
    private func decide(_ request: WireApplyChanges, _ batch: Batch) throws -> Bool {
        // Of a younger one the reply is there still; of one whose device's clock is ahead none was kept.
        let age = batch.writer.now.since(batch.writer.operation.time)
        if age > Self.repeatsKnown || age < .zero, try batch.isRepeat(request.changes) {
            try batch.mention(request.changes)
            try batch.noteMerged(request.changes)
            return true
        }
        let unmet = try batch.unmet(request.conditions)
        for (index, change) in request.changes.enumerated() {
            // Also of an item that was read for an earlier one.
            batch.container.transaction.charge(rows: Self.rowsOfChange)
            do { try batch.apply(change) } catch let error as CloudError { throw unmet ?? error.of(change: index) }
        }
        // What is already as was asked was done before: it is a repeat, and its conditions have had their time.
        if let unmet, !batch.isEmpty { throw unmet }
        return false
    }

    /// What can be refused by its shape is, before anything is read.
    private func check(_ request: WireApplyChanges, _ transaction: any HandlerTransaction) throws {
        guard request.changes.count <= DocumentLimits.changesMax, !request.changes.isEmpty || !request.nodes.isEmpty
        else {
            throw CloudError(
                .limitExceeded, "A batch has 1 to \(DocumentLimits.changesMax) changes. Divide it.",
                details: ["maximum": "\(DocumentLimits.changesMax)"])
        }
        guard request.conditions.count <= DocumentLimits.conditionsMax else {
            throw CloudError(
                .limitExceeded, "A batch has too many conditions. Divide it.",
                details: ["maximum": "\(DocumentLimits.conditionsMax)"])
        }
        guard request.nodes.reduce(0, { $0 + $1.count }) <= DocumentLimits.nodesBytesMax else {
            throw CloudError(
                .limitExceeded, "The manifest nodes of a batch are too large. Send some of them before.",
                details: ["bytes_max": "\(DocumentLimits.nodesBytesMax)"])
        }
        // While the disk is full only what makes room is taken.
        guard !transaction.isShortOfRoom || request.makesRoom else { throw CloudError.diskFull }
    }

    private func write(
        _ batch: Batch, _ uses: ContentUses, _ caller: Caller, _ context: RequestContext
    ) throws -> WireApplyChangesReply {
        let container = batch.container
        var reply = WireApplyChangesReply()
        reply.merged = batch.wireMerged
        guard !batch.isEmpty else {
            let head = try container.head()
            reply.token = WireChangeToken(head.token)
            reply.previousSequence = head.token.sequence
            reply.items = Self.wire(try batch.encodedMentions(), at: 0)
            return reply
        }
        let digestKey = try container.madeSetting().digestKey
        try batch.writeRows()
        if let newest = batch.containerClass.itemsMax, batch.created > 0, try container.rows.endItems(beyond: newest) {
            container.transaction.afterCommit { [weak self] in self?.endings.beginSoon() }
        }
        let old =
            try batch.takeRetired() + batch.takeOldVersions() + batch.formerRenditions.map { UsedContent($0.content) }
        try uses.giveBack(old)
        if !old.isEmpty { container.transaction.afterCommit { [transfers] in transfers.removeSoon() } }
        let items = try batch.encoded()
        let change = try container.put(items, digestKey: digestKey) { batch.places(of: $0) }
        container.transaction.publish(
            OutgoingEvent(
                name, items, by: change, device: caller.device, context.id))
        if !batch.removed.isEmpty { container.transaction.afterCommit { [weak self] in self?.removals.beginSoon() } }
        reply.token = WireChangeToken(change.token)
        reply.previousSequence = change.previousSequence
        reply.items = Self.wire(items + (try batch.encodedMentions()), at: change.token.sequence)
        return reply
    }

    /// No more than a device takes in one frame: what does not fit is read.
    private static func wire(_ items: [ChangedItem], at sequence: UInt64) -> [WireChange] {
        let isLarge = items.reduce(0) { $0 + ($1.body?.count ?? 0) } > DocumentLimits.replyBytesMax
        return items.map { $0.wire(at: sequence, bytesMax: isLarge ? 0 : .max) }
    }
}

extension CloudError {
    /// Says which change of a batch it is about: the others may be sent again without it.
    fileprivate func of(change index: Int) -> CloudError {
        var error = self
        error.details["change"] = "\(index)"
        return error
    }
}
