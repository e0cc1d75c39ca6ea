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

    /// Runs what needs a scope's digest key. In place of one that does not open another is made, and the digests by it, in
    /// steps.
    ///
    /// - Throws: ``CloudError`` `.serviceBusy` when it did not open, and what the body throws.
    func mending<Value>(_ transaction: any HandlerTransaction, _ body: () throws -> Value) throws -> Value {
        do { return try body() } catch let damaged as DamagedKey {
            // Every row of the scope is written once more.
            guard !transaction.isShortOfRoom else { throw CloudError.diskFull }
            renewKey(of: damaged.scope)
            throw CloudError(
                .serviceBusy, "A key of the zone does not open, and another is made. Come back in a moment.",
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
                return runtime.report("A zone's digest key does not open, and no other could be made", details: details)
            }
            runtime.count("digest_keys.damaged", by: 1)
            runtime.report(
                "A zone's digest key did not open. It has another one, and its digests are made anew", details: details)
            mendings.beginSoon()
        }
    }

    /// Gives items their digests by the key that the scope has now. They do not move in the feed; those that do not open go
    /// to the quarantine.
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
        var shares: [ItemName: SetDigest] = [:]
        var unreadable: [FeedItem] = []
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
            let item = try row.item
            // What is not in the feed has no share in the digest.
            guard item.showing == .item else { return true }
            let sealed =
                isZone ? StoredRecord.parts(of: item.body)?.sealed : StoredZone.parts(of: item.body)?.sealed
            if let body = try sealed.flatMap({ try opener.body(of: item.name, $0) }) {
                shares[item.name] = SetDigest(ofItem: item.name, body: body, key: key)
            } else {
                unreadable.append(item)
            }
            return true
        }
        for item in unreadable { try quarantine(item, of: name, in: transaction) }
        try transaction.setShares(shares, of: name)
        guard isDone else {
            try MendingRows.set(last, name, in: transaction)
            return true
        }
        try MendingRows.remove(name, in: transaction)
        try transaction.correctHead(name)
        try runtime?.askToCompare(name, in: transaction)
        return true
    }
}
