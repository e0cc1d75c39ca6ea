public import NephosCore
public import NephosWire

/// A value that lost a conflict or was overwritten.
public struct KeyHistoryEntry: Sendable, Hashable {
    /// Its value is nil where the key was deleted, and where it is damaged.
    public var item: KeyValueItem
    /// The server cannot read its value any more.
    public var damaged = false
    /// The device that wrote what is there instead had not seen it.
    public var lostConflict: Bool
    /// When what is there instead was written.
    public var winnerTimestamp: HybridTimestamp
    /// Which device wrote it.
    public var winnerDevice: DeviceID
    /// By the server's clock.
    public var recorded: Timestamp
}

/// What a comparison with the server found.
public struct Verification: Sendable {
    /// A key that is not the same on both sides.
    public struct Difference: Sendable, Hashable {
        /// What is the matter with it.
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
        /// What is the matter with it.
        public var kind: Kind
        /// Of a container's item: where it is, as the server told it; nil: it is not here, or it lies nowhere.
        public var path: String?
        /// The same on the server; nil: it is not there, or its folder is not here.
        public var serverPath: String?
    }

    /// The server's head that was compared with.
    public var token: ChangeToken
    /// Of what this device has from the server, without what waits to be sent.
    public var localDigest: SetDigest
    /// Of what the server has.
    public var serverDigest: SetDigest
    /// The keys that differ, in order; of very many the first ``differencesMax``.
    public var differences: [Difference]
    /// More keys differ than are listed.
    public var hasMore = false
    /// Writes that the server does not have yet.
    public var pending: Int
    /// Chunks of contents that the server cannot read any more: of a container or a records database. Its items are the same
    /// on both sides all the same.
    public var damagedChunkCount = 0
    /// The server has said that it finds none of its contents: only its operator can bring them back.
    public var isContentMissing = false

    /// Differences that are listed at most.
    public static let differencesMax = 1000

    /// Equal digests mean equal content.
    public var agrees: Bool { localDigest == serverDigest && differences.isEmpty }
}

extension KeyValueStore {
    /// What lost a conflict or was overwritten, newest first.
    ///
    /// - Parameters:
    ///   - key: Nil: of all keys. Of names that Swift's strings take for equal to it all are meant.
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
