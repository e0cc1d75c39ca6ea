internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// One store within a group's transaction: its keys with their values opened.
///
/// An object, because everything that handles a request holds it.
final class KeyStore {
    let scope: ScopeName
    let partition: Int
    let transaction: any HandlerTransaction
    let keys: OwnerKeys
    let digestKeys: DigestKeys

    init(scope: ScopeName, transaction: any HandlerTransaction, keys: OwnerKeys, digestKeys: DigestKeys) {
        self.scope = scope
        partition = scope.partition
        self.transaction = transaction
        self.keys = keys
        self.digestKeys = digestKeys
    }

    func head() throws -> ScopeHead { try transaction.head(scope) }

    /// Nil: there is no such key, or its row does not open. Such a row is moved to the quarantine.
    func key(_ name: ItemName) throws -> StoredKey? {
        guard let item = try transaction.item(scope, name) else { return nil }
        let stored = StoredKey(item)
        guard !stored.isWhole else { return stored }
        try transaction.quarantine(item, of: scope)
        return nil
    }

    /// Its value does not open.
    func quarantine(_ name: ItemName) throws {
        if let item = try transaction.item(scope, name) { try transaction.quarantine(item, of: scope) }
    }

    /// Opens what is sealed, also off the loop.
    ///
    /// - Throws: ``DamagedStore``.
    func opener() throws -> StoreOpener {
        switch try keys.standing(of: scope.owner, in: transaction) {
        case .none: return StoreOpener(scope: scope, key: nil)
        case .whole(let key): return StoreOpener(scope: scope, key: key)
        case .damaged: throw DamagedStore(scope: scope)
        }
    }

    /// Seals bytes. Makes the account's key if need be: a write.
    ///
    /// - Throws: ``DamagedStore``.
    func seal(_ bytes: [UInt8], as place: StoreOpener.Place) throws -> Sealed {
        let key = try opener().key ?? keys.key(of: scope.owner, in: transaction)
        return try key.seal(bytes, boundTo: place.context(in: scope))
    }

    /// Opens sealed bytes.
    func open(_ sealed: Sealed, as place: StoreOpener.Place) throws -> [UInt8] { try opener().open(sealed, as: place) }

    /// The value's canonical bytes; nil: the key was deleted.
    ///
    /// - Throws: ``DamagedValue``.
    func value(of stored: StoredKey) throws -> [UInt8]? {
        stored.sealed == nil ? nil : try opener().value(of: stored)
    }

    /// The store's digest key, or nil when nothing was ever written to it.
    ///
    /// - Throws: ``DamagedStore``.
    func digestKey(_ head: ScopeHead) throws -> [UInt8]? {
        guard !head.metadata.isEmpty else { return nil }
        return try digestKeys.key(of: scope, sealed: head.metadata) {
            do { return try open(Sealed(bytes: head.metadata), as: .digestKey) } catch let error as CloudError
                where error.code == .internalError
            { throw DamagedStore(scope: scope) }
        }
    }

    /// Gives the store a digest key, in place of the one that it had: a write.
    func makeDigestKey() throws -> [UInt8] {
        let key = DigestKeys.random()
        try transaction.setMetadata(scope, try seal(key, as: .digestKey).bytes)
        return key
    }
}

/// A key that the store's content is sealed or told with does not open: the account's, or the store's digest key. See
/// ``KeyValueService/mending(_:_:)``.
struct DamagedStore: Error {
    var scope: ScopeName
}

/// The value of a key does not open.
struct DamagedValue: Error {}
