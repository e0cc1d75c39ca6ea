internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

// What seals a store is one key for all of it: without it nobody could read or write anything of the store any more.
extension KeyValueService {
    /// Runs what needs a store's keys. One that is damaged is made anew, in a group of its own.
    ///
    /// - Throws: ``CloudError`` `.serviceBusy` when one was damaged, and what the body throws.
    func mending<Value>(_ transaction: any HandlerTransaction, _ body: () throws -> Value) throws -> Value {
        do { return try body() } catch let damaged as DamagedStore {
            // Every item of the store is written once more.
            guard !transaction.isShortOfRoom else { throw CloudError.diskFull }
            mend(damaged.scope)
            throw CloudError(
                .serviceBusy, "A key of the store is damaged, and is made anew. Come back in a moment.",
                retryAfter: .milliseconds(100))
        }
    }

    private func mend(_ scope: ScopeName) {
        guard let runtime, let keys else { return }
        var isSetAside = false
        var renewed: RenewedDigests?
        runtime.submit { [digestKeys] transaction in
            isSetAside = try keys.setAside(scope.owner, in: transaction)
            // What it has sealed does not open any more, though it was opened before.
            if isSetAside { digestKeys.drop(partition: scope.partition) }
            let store = KeyStore(scope: scope, transaction: transaction, keys: keys, digestKeys: digestKeys)
            renewed = try store.renewDigests()
        } then: { [weak self] failure in
            guard let self else { return }
            if let failure {
                return runtime.report(
                    "A store's damaged key could not be made anew",
                    details: place(scope, ["code": "\(failure.code)"]))
            }
            if isSetAside { noteAccountKey(of: scope.owner) }
            if let renewed { note(renewed, of: scope) }
        }
    }

    private func noteAccountKey(of owner: Owner) {
        runtime?.count("account_keys.damaged", by: 1)
        runtime?.report(
            "An account's key is damaged and set aside. It gets another one; what the damaged one has sealed heals when "
                + "a device that has it synchronises",
            details: ["account": owner.rawValue])
    }

    private func note(_ renewed: RenewedDigests, of scope: ScopeName) {
        runtime?.count("digest_keys.damaged", by: 1)
        runtime?.count("keys.damaged", by: renewed.damaged.count)
        runtime?.report(
            "A store's digest key did not open. It has another one, and its digests are made anew",
            details: place(scope, ["values_damaged": "\(renewed.damaged.count)"]))
    }

    private func place(_ scope: ScopeName, _ details: [String: String]) -> [String: String] {
        details.merging(["account": scope.owner.rawValue, "store": scope.path.rawValue]) { $1 }
    }
}

/// What has come of giving a store another digest key.
struct RenewedDigests {
    /// Items whose values do not open. Their digests stay as they were, so that nobody who has all agrees with the
    /// store's until they are whole again.
    var damaged: [StoredKey] = []
}

extension KeyStore {
    /// Gives the store another digest key, if it had one that does not open. All its items move to the head, so that
    /// every device pulls them: with them it gets the key, and compares.
    ///
    /// - Returns: Nil: there was nothing to do.
    func renewDigests() throws -> RenewedDigests? {
        do {
            _ = try digestKey(head())
            return nil
        } catch is DamagedStore {}
        let digestKey = try makeDigestKey()
        let opener = try opener()
        var renewed = RenewedDigests()
        var items: [FeedItem] = []
        var deleted: FeedItem?
        try transaction.items(scope, after: 0) { item in
            guard !item.deleted else {
                deleted = item
                return true
            }
            var item = item
            let stored = StoredKey(item)
            if let digest = try? opener.digest(of: stored, digestKey) {
                item.digest = digest
            } else {
                renewed.damaged.append(stored)
            }
            items.append(item)
            return true
        }
        // Of a head alone nobody would hear.
        if items.isEmpty, let deleted { items = [deleted] }
        // Where there was never anything, the key comes with whatever is first.
        guard !items.isEmpty else { return renewed }
        var change = try transaction.put(scope, items)
        change.digest = try transaction.correctHead(scope)
        // All devices pull them anyway.
        for key in renewed.damaged {
            try DamagedItems.note(
                key.key, of: scope, written: key.sequence, movedTo: change.token.sequence, in: transaction)
        }
        transaction.publish(OutgoingEvent(.keyValue, moved: items.map(\.name), by: change))
        return renewed
    }
}
