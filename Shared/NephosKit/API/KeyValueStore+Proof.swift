public import NephosCore
public import NephosWire

/// A value that lost a conflict or was overwritten.
public struct KeyHistoryEntry: Sendable, Hashable {
    /// The key and value; the value is nil if the key was deleted, and if it is damaged.
    public var item: KeyValueItem
    /// The server cannot read its value any more.
    public var damaged = false
    /// The device that replaced it had not seen it.
    public var lostConflict: Bool
    /// When the replacement was written.
    public var winnerTimestamp: HybridTimestamp
    /// Which device wrote it.
    public var winnerDevice: DeviceID
    /// By the server's clock.
    public var recorded: Timestamp
}

/// The result of a comparison with the server.
public struct Verification: Sendable {
    /// A key or item that differs between the two sides.
    public struct Difference: Sendable, Hashable {
        /// How the two sides differ.
        public enum Kind: String, Sendable {
            /// The server has it, this device does not.
            case missingHere
            /// This device has it, the server does not.
            case missingOnServer
            /// Both have it, with other values or of other writes.
            case differs
        }

        /// The key.
        public var key: ItemName
        /// How the two sides differ.
        public var kind: Kind
        /// The path of a container's item, as this device has it from the server; nil: the item is missing here, or has
        /// no path.
        public var path: String?
        /// The path on the server; nil: the item is missing there, or its folder is missing here.
        public var serverPath: String?
    }

    /// The server's head that was compared with.
    public var token: ChangeToken
    /// The digest of this device's copy of the server's content, without pending changes.
    public var localDigest: SetDigest
    /// The digest of the server's content.
    public var serverDigest: SetDigest
    /// The keys that differ, in order; of very many the first ``differencesMax``.
    public var differences: [Difference]
    /// More keys differ than are listed.
    public var hasMore = false
    /// Writes that the server does not have yet.
    public var pending: Int
    /// Chunks of a container's or record database's contents that the server can no longer read. This does not make
    /// items differ.
    public var damagedChunkCount = 0
    /// The server has said that it finds none of its contents: only its operator can bring them back.
    public var isContentMissing = false

    /// Differences that are listed at most.
    public static let differencesMax = 1000

    /// Equal digests mean equal content.
    public var agrees: Bool { localDigest == serverDigest && differences.isEmpty }
}

extension KeyValueStore {
    /// Values that lost a conflict or were overwritten, newest first.
    ///
    /// - Parameters:
    ///   - key: The key, and every key that Swift's strings treat as equal to it. Nil: all keys.
    ///   - limit: However many; they are fetched in pages.
    ///   - timeout: How long one page may take; nil: as long as any call of this session.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.networkUnavailable` and the like (try again), or the service's own.
    public func history(
        forKey key: String? = nil, limit: Int = 100, timeout: Duration? = nil
    ) async throws(CloudError) -> [KeyHistoryEntry] {
        let app = app
        return try await session.engine.perform { engine, completion in
            engine.keyValue(app).history(of: key, limit: limit, timeout: timeout, completion)
        }
    }

    /// Compares this device's copy with the server's, down to the keys that differ.
    ///
    /// The copy is brought up to date first. Changes nothing.
    ///
    /// - Parameter timeout: How long to wait for the server at most, each time that it is asked.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.deadlineExceeded`, `.networkUnavailable` (try again when the server
    ///   can be reached), or the service's own.
    public func verify(timeout: Duration = .seconds(30)) async throws(CloudError) -> Verification {
        try await scope.verify(timeout: timeout)
    }
}
