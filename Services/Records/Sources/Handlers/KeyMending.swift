internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// The digest key of a database or a zone does not open any more.
struct DamagedKey: Error {
    var scope: ScopeName
}

// One key makes the digests of all of a zone: without it nobody could read or change anything of the zone any more.
extension RecordsService {
    /// What one step looks at: items, and bytes of them.
    private static let mendedItemsMax = 200
    private static let mendedBytesMax = 512 << 10

    /// Runs what needs a scope's digest key. One that is damaged is made anew, and the digests after it, in steps.
    ///
    /// - Throws: ``CloudError`` `.serviceBusy` when it was damaged, and what the body throws.
    func mending<Value>(_ transaction: any HandlerTransaction, _ body: () throws -> Value) throws -> Value {
        do { return try body() } catch let damaged as DamagedKey {
            // Every item of the scope is written once more.
            guard !transaction.isShortOfRoom else { throw CloudError.diskFull }
            renewKey(of: damaged.scope)
            throw CloudError(
                .serviceBusy, "A key of the zone is damaged, and is made anew. Come back in a moment.",
                retryAfter: .milliseconds(100))
        }
    }

    private func renewKey(of name: ScopeName) {
        guard let runtime else { return }
        var isRenewed = false
        runtime.submit { [weak self] transaction in
            isRenewed = false
            guard let self else { return }
            let scope = try scope(name, transaction)
            // Somebody else has met it too.
            guard try scope.hasDamagedKey() else { return }
            try scope.renewDigestKey()
            try MendingRows.add(name, in: transaction)
            isRenewed = true
        } then: { [weak self] failure in
            guard let self, failure != nil || isRenewed else { return }
            let details = ["account": name.owner.rawValue, "zone": name.path.rawValue]
            guard failure == nil else {
                return runtime.report("A zone's damaged digest key could not be made anew", details: details)
            }
            runtime.count("digest_keys.damaged", by: 1)
            runtime.report(
                "A zone's digest key did not open. It has another one, and its digests are made anew", details: details)
            mendings.beginSoon()
        }
    }

    /// Items move to the head, so that every device reads them: with them it gets the key, and compares. Until the last one
    /// did, the digests differ.
    ///
    /// - Returns: Whether there may be more.
    func mendSome(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        guard let (name, after) = try MendingRows.first(passingOver: turn.failed, in: transaction) else { return false }
        turn.scope = name
        let scope = try scope(name, transaction)
        guard try scope.isAlive() else {
            try MendingRows.remove(name, in: transaction)
            return true
        }
        guard let key = try scope.digestKey() else { return false }
        let opener = try scope.opener()
        let isZone = name.path.rawValue.contains("/")
        var (items, told): ([FeedItem], [ChangedItem]) = ([], [])
        var (last, rows, bytes, isDone) = (after, 0, 0, true)
        try transaction.rows(name, afterName: after) { row in
            guard rows < Self.mendedItemsMax, bytes < Self.mendedBytesMax else {
                isDone = false
                return false
            }
            rows += 1
            bytes += row.bodyBytes
            last = row.name
            guard !row.deleted else { return true }
            var item = try row.item
            // What is not in the feed has no share in the digest.
            guard item.showing == .item else { return true }
            let sealed =
                isZone ? StoredRecord.parts(of: item.body)?.sealed : StoredZone.parts(of: item.body)?.sealed
            // One that does not open keeps its digest: nobody who has it agrees until it is whole again.
            guard let body = sealed.flatMap({ try? opener.open($0, as: .item(item.name)) }) else { return true }
            item.digest = SetDigest(ofItem: item.name, body: body, key: key)
            items.append(item)
            told.append(ChangedItem(name: item.name, body: body))
            return true
        }
        if isDone {
            try MendingRows.remove(name, in: transaction)
        } else {
            try MendingRows.set(last, name, in: transaction)
        }
        if !items.isEmpty {
            var change = try putAnew(items, in: name, transaction)
            if isDone { change.digest = try transaction.correctHead(name) }
            transaction.publish(OutgoingEvent(self.name, told, by: change, device: nil, nil))
        } else if isDone {
            _ = try transaction.correctHead(name)
        }
        return true
    }
}
