import NephosCore
import NephosWire

/// What was overwritten or lost a conflict is the server's to keep.
extension KeyValueModel {
    /// - Parameter text: Nil: of all keys. Of names that Swift's strings take for equal to it all are meant.
    func history(
        of text: String?, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[KeyHistoryEntry], CloudError>) -> Void
    ) {
        do throws(CloudError) {
            guard let store = engine.session.flatMap({ $0.signedIn ? $0.scope(of: app)?.store : nil }) else {
                throw CloudError(.notSignedIn, "This home has no account signed in. Sign in.")
            }
            var request = WireListKeyHistory()
            request.storeID = store.rawValue
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
        of name: String?, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void
    ) {
        history(of: name, limit: limit, timeout: timeout) { [weak self] result in
            guard let self else { return }
            completion(result.map { $0.map(self.conflict) })
        }
    }

    private func conflict(_ entry: KeyHistoryEntry) -> ScopeConflict {
        let (item, key) = (entry.item, entry.item.key)
        let recovery = item.value == nil ? command(deleting: key) : command(setting: key)
        return ScopeConflict(
            name: key, outcome: entry.lostConflict ? .lost : .overwritten, written: item.timestamp.time,
            device: item.deviceID, winner: entry.winnerDevice, won: entry.winnerTimestamp.time, content: item.value,
            isDamaged: entry.damaged, recovery: entry.damaged ? nil : recovery)
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
