public import Core
public import Wire

/// A value that lost a conflict or was overwritten.
public struct KeyHistoryEntry: Sendable, Hashable {
    /// Its value is nil where the key was deleted, and where it is damaged.
    public var item: KeyValueItem
    /// The server cannot read its value any more.
    public var damaged = false
    /// It never became current: a newer write was there already.
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
            /// The server has it, and cannot read its value any more. It heals
            /// when a device that has it synchronises.
            case damagedOnServer
        }

        /// The key.
        public var key: ItemName
        /// What is the matter with it.
        public var kind: Kind
    }

    /// The server's head that was compared with.
    public var token: ChangeToken
    /// Of what this device has from the server, without what waits to be sent.
    public var localDigest: SetDigest
    /// Of what the server has.
    public var serverDigest: SetDigest
    /// The keys that differ, in order.
    public var differences: [Difference]
    /// Writes that the server does not have yet.
    public var pending: Int

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
        guard let key else { return try await history(ofName: "", limit: limit, timeout: timeout) }
        let names = try session.local.spellings(of: key, app: app)
        var entries: [KeyHistoryEntry] = []
        for name in names { entries += try await history(ofName: name.rawValue, limit: limit, timeout: timeout) }
        guard names.count > 1 else { return entries }
        return Array(entries.sorted { $0.recorded > $1.recorded }.prefix(limit))
    }

    /// - Parameter name: Empty: of all keys.
    private func history(
        ofName name: String, limit: Int, timeout: Duration?
    ) async throws(CloudError) -> [KeyHistoryEntry] {
        var request = WireListKeyHistory()
        request.storeID = try serverStore().store.rawValue
        request.key = name
        var entries: [KeyHistoryEntry] = []
        while entries.count < limit {
            request.limit = UInt32(clamping: limit - entries.count)
            request.skip = UInt32(clamping: entries.count)
            let reply = try await session.call(
                .keyValue, request, as: WireListKeyHistoryReply.self, app: app, timeout: timeout)
            for entry in reply.entries { entries.append(try KeyHistoryEntry(entry)) }
            if !reply.more || reply.entries.isEmpty { break }
        }
        return entries
    }

    /// Compares this device's copy with the server's, down to the keys that differ.
    ///
    /// The copy is brought up to date first. Changes nothing.
    ///
    /// - Parameter timeout: How long to wait for the server at most, each time that it is asked.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.deadlineExceeded`, `.networkUnavailable` (try again when the server
    ///   can be reached), or the service's own.
    public func verify(timeout: Duration = .seconds(30)) async throws(CloudError) -> Verification {
        try await waitUntilCurrent(timeout: timeout, isImpatient: true)
        let scope = try serverStore()
        var request = WireListKeyDigests()
        request.storeID = scope.store.rawValue
        // The store may move between the two readings: compare again at the same head.
        var attempt = 0
        while true {
            attempt += 1
            let reply = try await session.call(
                .keyValue, request, as: WireListKeyDigestsReply.self, app: app, timeout: timeout)
            let (state, items, pending) = try session.local.read { database in
                let store = StoreTransaction(database, scope)
                return (try store.state(), try store.items(), try store.rows.operationCount())
            }
            let token = ChangeToken(reply.token)
            if token != state.head, attempt < 5 {
                try await waitUntilCurrent(timeout: timeout, isImpatient: true)
                continue
            }
            return Verification(
                token: token, localDigest: state.digest, serverDigest: SetDigest(bytes: reply.digest) ?? .empty,
                differences: Self.differences(items, state.digestKey, reply.entries), pending: pending)
        }
    }

    private static func differences(
        _ items: [KeyValueItem], _ digestKey: [UInt8], _ entries: [WireListKeyDigestsReply.Entry]
    ) -> [Verification.Difference] {
        let theirs = Dictionary(entries.map { (ItemName($0.key), [UInt8]($0.digest)) }) { $1 }
        let damaged = Set(entries.filter(\.damaged).map { ItemName($0.key) })
        var mine: [ItemName: [UInt8]] = [:]
        for item in items where item.value != nil { mine[item.key] = item.digest(key: digestKey).bytes }
        return Set(mine.keys).union(theirs.keys).sorted().compactMap { key in
            if damaged.contains(key) { return .init(key: key, kind: .damagedOnServer) }
            return switch (mine[key], theirs[key]) {
            case (nil, _): .init(key: key, kind: .missingHere)
            case (_, nil): .init(key: key, kind: .missingOnServer)
            case (let here, let there): here == there ? nil : .init(key: key, kind: .differs)
            }
        }
    }

    /// The store as the server names it.
    private func serverStore() throws(CloudError) -> StoreScope {
        guard let scope = try session.account?.scope(of: app) else {
            throw CloudError(.notSignedIn, "This home has no account signed in. Sign in.")
        }
        return scope
    }
}

extension KeyHistoryEntry {
    fileprivate init(_ entry: WireKeyHistoryEntry) throws(CloudError) {
        self.init(
            item: try KeyValueItem(entry.item), damaged: entry.damaged, lostConflict: entry.lostConflict,
            winnerTimestamp: HybridTimestamp(rawValue: entry.winnerTimestamp),
            winnerDevice: DeviceID(entry.winnerDeviceID), recorded: Timestamp(milliseconds: entry.recordedAt))
    }
}
