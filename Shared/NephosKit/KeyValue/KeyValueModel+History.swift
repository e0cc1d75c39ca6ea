import NephosCore
import NephosWire

/// What was overwritten or lost a conflict is the server's to keep.
extension KeyValueModel {
    /// - Parameters:
    ///   - text: Nil: of all keys. Of names that Swift's strings take for equal to it all are meant.
    ///   - conflictsOnly: Without what a device replaced that had seen it.
    func history(
        of text: String?, conflictsOnly: Bool = false, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[KeyHistoryEntry], CloudError>) -> Void
    ) {
        do throws(CloudError) {
            var request = WireListKeyHistory()
            request.storeID = try signedInStore().rawValue
            request.conflictsOnly = conflictsOnly
            let names = try text.map { text throws(CloudError) in try engine.local.spellings(of: text, app: app) }
            let keys = names?.map(\.rawValue) ?? [""]
            history(request, of: keys[...], [], limit: limit, timeout: timeout) { result in
                completion(
                    result.map { entries in
                        keys.count < 2
                            ? entries : Array(entries.sorted { $0.recorded > $1.recorded }.prefix(limit))
                    })
            }
        } catch { completion(.failure(error)) }
    }

    /// - Parameters:
    ///   - keys: What is left; the first is asked about, and an empty one stands for all keys.
    ///   - found: Of the keys before.
    ///   - page: What has come of the first.
    private func history(
        _ request: WireListKeyHistory, of keys: ArraySlice<String>, _ found: [KeyHistoryEntry],
        page: [KeyHistoryEntry] = [], limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[KeyHistoryEntry], CloudError>) -> Void
    ) {
        guard let key = keys.first else { return completion(.success(found)) }
        var request = request
        request.key = key
        request.limit = UInt32(clamping: limit - page.count)
        request.skip = UInt32(clamping: page.count)
        let asked = request
        engine.call(
            .keyValue, asked, as: WireListKeyHistoryReply.self, app: app, timeout: timeout, endsWhenRefused: true
        ) {
            [weak self] result, _ in
            guard let self else { return }
            do throws(CloudError) {
                let reply = try result.get()
                var page = page
                for entry in reply.entries { page.append(try KeyHistoryEntry(entry)) }
                let isOver = !reply.more || reply.entries.isEmpty || page.count >= limit
                history(
                    asked, of: isOver ? keys.dropFirst() : keys, isOver ? found + page : found,
                    page: isOver ? [] : page, limit: limit, timeout: timeout, completion)
            } catch { completion(.failure(error)) }
        }
    }

    func conflicts(
        of name: String?, withHistory: Bool, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void
    ) {
        history(of: name, conflictsOnly: !withHistory, limit: limit, timeout: timeout) { [weak self] result in
            guard let self else { return }
            completion(Result { () throws(CloudError) in try self.conflicts(result.get()) })
        }
    }

    /// Has the server list these conflicts no more.
    ///
    /// - Parameters:
    ///   - text: Nil: of all keys. Of names that Swift's strings take for equal to it all are meant.
    ///   - time: Those that were recorded later stay.
    func resolveConflicts(
        of text: String?, recordedUntil time: Timestamp, timeout: Duration?,
        _ completion: @escaping (Result<Int, CloudError>) -> Void
    ) {
        do throws(CloudError) {
            var request = WireResolveKeyConflicts()
            request.storeID = try signedInStore().rawValue
            request.keys =
                try text.map { text throws(CloudError) in
                    try engine.local.spellings(of: text, app: app).map(\.rawValue)
                } ?? []
            request.recordedUntil = time.milliseconds
            resolve(request, 0, timeout: timeout, completion)
        } catch { completion(.failure(error)) }
    }

    private func resolve(
        _ request: WireResolveKeyConflicts, _ count: Int, timeout: Duration?,
        _ completion: @escaping (Result<Int, CloudError>) -> Void
    ) {
        engine.call(
            .keyValue, request, as: WireResolveKeyConflictsReply.self, app: app, timeout: timeout,
            endsWhenRefused: true
        ) { [weak self] result, _ in
            guard let self else { return }
            switch result {
            case .success(let reply):
                let count = count + Int(reply.count)
                guard reply.more, reply.count > 0 else { return completion(.success(count)) }
                resolve(request, count, timeout: timeout, completion)
            case .failure(let error): completion(.failure(error))
            }
        }
    }

    private func signedInStore() throws(CloudError) -> StoreID {
        guard let store = engine.session.flatMap({ $0.signedIn ? $0.scope(of: app)?.store : nil }) else {
            throw CloudError(.notSignedIn, "This home has no account signed in. Sign in.")
        }
        return store
    }

    private func conflicts(_ entries: [KeyHistoryEntry]) throws(CloudError) -> [ScopeConflict] {
        let current = try engine.local.read { database in
            let store = try engine.local.store(of: app, database)
            return try Set(entries.map(\.item.key)).compactMap { try store.item($0) }
        }
        // What took a value's place is what the key has now, or was itself overwritten later.
        let known = current + entries.filter { !$0.damaged }.map(\.item)
        let winners = Dictionary(known.map { (Write(of: $0), $0.value) }) { first, _ in first }
        return entries.map { entry in
            var conflict = conflict(entry)
            let winner = Write(key: entry.item.key, timestamp: entry.winnerTimestamp, device: entry.winnerDevice)
            if let value = winners[winner] { conflict.replacement = value.map { .content($0) } ?? .deletion }
            return conflict
        }
    }

    /// Which write of a key it was.
    private struct Write: Hashable {
        var key: ItemName
        var timestamp: HybridTimestamp
        var device: DeviceID

        init(key: ItemName, timestamp: HybridTimestamp, device: DeviceID) {
            self.key = key
            self.timestamp = timestamp
            self.device = device
        }

        init(of item: KeyValueItem) {
            self.init(key: item.key, timestamp: item.timestamp, device: item.deviceID)
        }
    }

    private func conflict(_ entry: KeyHistoryEntry) -> ScopeConflict {
        let (item, key) = (entry.item, entry.item.key)
        let former = "\(item.timestamp.rawValue)"
        var recovery = item.value.map { command(setting: key, to: $0, former: former) } ?? command(deleting: key)
        // Who brings it back has decided.
        if entry.lostConflict { recovery += " && " + command(resolving: key, recordedUntil: entry.recorded) }
        var conflict = ScopeConflict(
            name: key, outcome: entry.lostConflict ? .lost : .overwritten, written: item.timestamp.time,
            device: item.deviceID, winner: entry.winnerDevice, won: entry.winnerTimestamp.time, content: item.value,
            isDamaged: entry.damaged, recovery: entry.damaged ? nil : recovery)
        if entry.lostConflict { conflict.dismissal = command(resolving: key, recordedUntil: entry.recorded) }
        return conflict
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
