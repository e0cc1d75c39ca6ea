internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

// One key seals all values of a store. If it does not open, the store gets another, and devices bring back their values.
extension KeyValueService {
    /// Runs what needs a store's keys. In place of one that does not open another is made, in a group of its own.
    ///
    /// - Throws: ``CloudError`` `.serviceBusy` when one did not open, and what the body throws.
    func mending<Value>(_ transaction: any HandlerTransaction, _ body: () throws -> Value) throws -> Value {
        do { return try body() } catch let damaged as DamagedStore {
            // Every row of the store is written once more.
            guard !transaction.isShortOfRoom else { throw CloudError.diskFull }
            renewKeys(of: damaged.scope)
            throw CloudError(
                .serviceBusy, "A key of the store does not open, and another is made. Come back in a moment.",
                retryAfter: .milliseconds(100))
        }
    }

    private func renewKeys(of scope: ScopeName) {
        guard let runtime, let keys else { return }
        var (isSetAside, isRenewed) = (false, false)
        runtime.submit { [digestKeys] transaction in
            isSetAside = try keys.setAside(scope.owner, in: transaction)
            // Values that the former key has sealed do not open any more, also those that were opened before.
            if isSetAside { digestKeys.drop(partition: scope.partition) }
            let store = KeyStore(scope: scope, transaction: transaction, keys: keys, digestKeys: digestKeys)
            isRenewed = try store.renewDigestKey()
            if isRenewed { try runtime.askToCompare(scope, in: transaction) }
        } then: { [weak self] failure in
            guard let self else { return }
            if let failure {
                return runtime.report(
                    "A store's key does not open, and no other could be made",
                    details: place(scope, ["code": "\(failure.code)"]))
            }
            if isSetAside {
                runtime.count("account_keys.damaged", by: 1)
                runtime.report(
                    "An account's key does not open and is set aside. It gets another one; what it has sealed goes to the "
                        + "quarantine",
                    details: ["account": scope.owner.rawValue])
            }
            if isRenewed {
                runtime.count("digest_keys.damaged", by: 1)
                runtime.report("A store's digest key did not open. It has another one", details: place(scope))
            }
        }
    }

    private func place(_ scope: ScopeName, _ details: [String: String] = [:]) -> [String: String] {
        details.merging(["account": scope.owner.rawValue, "store": scope.path.rawValue]) { $1 }
    }
}

extension KeyStore {
    /// Gives the store another digest key, if it had one that does not open, and its items their digests by it. They do not
    /// move in the feed; those that do not open go to the quarantine.
    ///
    /// - Returns: False: the key opens.
    func renewDigestKey() throws -> Bool {
        do {
            _ = try digestKey(head())
            return false
        } catch is DamagedStore {}
        let digestKey = try makeDigestKey()
        let opener = try opener()
        var shares: [ItemName: SetDigest] = [:]
        var unreadable: [FeedItem] = []
        try transaction.items(scope, after: 0) { item in
            guard !item.deleted else { return true }
            do { shares[item.name] = try opener.digest(of: StoredKey(item), digestKey) } catch is DamagedValue {
                unreadable.append(item)
            }
            return true
        }
        for item in unreadable { try transaction.quarantine(item, of: scope) }
        try transaction.setShares(shares, of: scope)
        try transaction.correctHead(scope)
        return true
    }
}
