internal import Core
internal import ServiceKit
internal import Storage

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

    func key(_ name: ItemName) throws -> StoredKey? { try transaction.item(scope, name).map { StoredKey($0) } }

    /// Opens what is sealed, also off the loop.
    func opener() throws -> StoreOpener {
        StoreOpener(scope: scope, key: try keys.existingKey(of: scope.owner, in: transaction))
    }

    /// Seals bytes. Makes the account's key if need be: a write.
    func seal(_ bytes: [UInt8], as place: StoreOpener.Place) throws -> Sealed {
        try keys.key(of: scope.owner, in: transaction).seal(bytes, boundTo: place.context(in: scope))
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
    func digestKey(_ head: ScopeHead) throws -> [UInt8]? {
        guard !head.metadata.isEmpty else { return nil }
        return try digestKeys.key(of: scope, sealed: head.metadata) {
            try open(Sealed(bytes: head.metadata), as: .digestKey)
        }
    }

    /// Gives the store a digest key: a write.
    func makeDigestKey() throws -> [UInt8] {
        let key = DigestKeys.random()
        try transaction.setMetadata(scope, try seal(key, as: .digestKey).bytes)
        return key
    }
}

/// What is stored under a key cannot be read any more. Whoever has it still may write it again.
struct DamagedValue: Error {}

/// Damaged values that were reported already.
struct NotedDamage {
    /// More are not reported.
    static let countMax = 1000
    private struct Place: Hashable {
        var scope: ScopeName
        var key: [UInt8]
        var stamp: MergeRule.Stamp
    }
    private var places: Set<Place> = []

    /// - Returns: Whether it is new.
    mutating func insert(_ stored: StoredKey, of scope: ScopeName) -> Bool {
        guard places.count < Self.countMax else { return false }
        return places.insert(Place(scope: scope, key: Array(stored.key.utf8), stamp: stored.stamp)).inserted
    }

    mutating func drop(partition: Int) { places = places.filter { $0.scope.partition != partition } }
}

/// Opened digest keys, by their sealed form: a digest key whose making was
/// rolled back is never found again.
final class DigestKeys {
    private struct Place: Hashable {
        var scope: ScopeName
        var sealed: [UInt8]
    }

    /// Emptied when full: opening one again costs a microsecond.
    private static let countMax = 10_000
    private var opened: [Place: [UInt8]] = [:]
    /// Asked for last, and most likely next: comparing costs less than hashing.
    private var latest: (place: Place, key: [UInt8])?

    func key(of scope: ScopeName, sealed: [UInt8], open: () throws -> [UInt8]) rethrows -> [UInt8] {
        if let latest, latest.place.sealed == sealed, latest.place.scope == scope { return latest.key }
        let place = Place(scope: scope, sealed: sealed)
        if let key = opened[place] {
            latest = (place, key)
            return key
        }
        let key = try open()
        if opened.count >= Self.countMax { opened.removeAll() }
        opened[place] = key
        latest = (place, key)
        return key
    }

    func drop(partition: Int) {
        opened = opened.filter { $0.key.scope.partition != partition }
        if latest?.place.scope.partition == partition { latest = nil }
    }

    /// 32 random bytes.
    static func random() -> [UInt8] {
        var generator = SystemRandomNumberGenerator()
        return (0..<4).flatMap { _ in withUnsafeBytes(of: generator.next() as UInt64) { [UInt8]($0) } }
    }
}
