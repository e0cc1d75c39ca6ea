internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// Opens what one store has sealed.
struct StoreOpener: Sendable {
    let scope: ScopeName
    /// Nil when nothing was ever sealed for the account, or its key was destroyed.
    let key: OwnerKey?

    /// What sealed bytes are; they open only as that.
    enum Place {
        /// Its stamp lies open beside it.
        case value(key: ItemName, MergeRule.Stamp)
        case digestKey

        /// What it is bound to. It is made for every write: so of bytes, and not of texts.
        func context(in scope: ScopeName) -> [UInt8] {
            var context: [UInt8] = []
            context.reserveCapacity(256)
            // Neither account ids nor store ids have a slash.
            context.append(contentsOf: scope.owner.rawValue.utf8)
            context.append(UInt8(ascii: "/"))
            context.append(contentsOf: scope.path.utf8)
            switch self {
            case .value(let key, let stamp):
                let device = stamp.device.rawValue.utf8
                context.append(contentsOf: "/value/".utf8)
                withUnsafeBytes(of: stamp.timestamp.rawValue.bigEndian) { context.append(contentsOf: $0) }
                // Whoever wrote it has named the device, and the key: with its length, only one reading is left.
                withUnsafeBytes(of: UInt32(clamping: device.count).bigEndian) { context.append(contentsOf: $0) }
                context.append(contentsOf: device)
                context.append(contentsOf: key.utf8)
            case .digestKey: context.append(contentsOf: "/digest".utf8)
            }
            return context
        }
    }

    func open(_ sealed: Sealed, as place: Place) throws -> [UInt8] {
        guard let key else { throw Self.keyIsGone }
        return try key.open(sealed, boundTo: place.context(in: scope))
    }

    private static let keyIsGone = CloudError(
        .internalError, "The account's key is gone, and what it sealed with it.")

    /// The value's canonical bytes; nil: the key was deleted.
    ///
    /// - Throws: ``DamagedValue``.
    func value(of stored: StoredKey) throws -> [UInt8]? {
        guard stored.isWhole else { throw DamagedValue() }
        guard let sealed = stored.sealed else { return nil }
        guard key != nil else { throw Self.keyIsGone }
        do { return try open(sealed, as: .value(key: stored.key, stored.stamp)) } catch let error as CloudError
            where error.code == .internalError
        { throw DamagedValue() }
    }

    /// The item's share in the store's digest, as its value makes it.
    ///
    /// - Throws: ``DamagedValue``.
    func digest(of stored: StoredKey, _ digestKey: [UInt8]) throws -> SetDigest {
        digest(of: stored, try value(of: stored) ?? [], digestKey)
    }

    func digest(of stored: StoredKey, _ value: [UInt8], _ digestKey: [UInt8]) -> SetDigest {
        KeyValueItem.digest(
            key: digestKey, of: stored.key, timestamp: stored.stamp.timestamp, deviceID: stored.stamp.device,
            canonicalValue: value)
    }
}
