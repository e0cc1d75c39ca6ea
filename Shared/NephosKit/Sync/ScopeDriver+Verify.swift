import GRDB
import NephosBus
import NephosCore
import NephosWire

/// Compares the copy with the server's, down to the items that differ: by a walk, where the model can; else everything is
/// read once more, is staged until all has come, and nothing of it is kept.
extension ScopeDriver {
    /// The scope may move between the two readings: they are compared again at the same head, so often.
    private static let comparisonsMax = 5

    /// Brings the copy up to date first. Changes nothing else.
    ///
    /// - Parameters:
    ///   - timeout: How long to wait for the server at most, each time that it is asked.
    ///   - readsAll: Whether everything is read in any case: what the server cannot read any more is found so.
    func verify(
        timeout: Duration, readsAll: Bool = false, _ completion: @escaping (Result<Verification, CloudError>) -> Void
    ) {
        verify(timeout: timeout, readsAll: readsAll, attemptsLeft: Self.comparisonsMax, completion)
    }

    private func verify(
        timeout: Duration, readsAll: Bool, attemptsLeft: Int,
        _ completion: @escaping (Result<Verification, CloudError>) -> Void
    ) {
        wait(for: nil, timeout: timeout, isImpatient: true) { [weak self] result in
            guard let self else { return }
            if case .failure(let error) = result { return completion(.failure(error)) }
            guard let scope else {
                // A deleted scope has no items on either side.
                return completion(isGone ? .success(Self.nothing) : .failure(Self.left))
            }
            if !readsAll, walk(scope, timeout: timeout, attemptsLeft: attemptsLeft, completion) { return }
            let reading = ChangesReading(.scope(scope.path), of: scope.owner?.rawValue ?? "", after: .zero)
            // Beside what a pull may be staging at the same time.
            compare(reading, by: engine.makeReader(), timeout: timeout) { [weak self] result in
                guard let self else { return }
                if case .success(let found) = result, found.isElsewhere, attemptsLeft > 1 {
                    return verify(
                        timeout: timeout, readsAll: readsAll, attemptsLeft: attemptsLeft - 1, completion)
                }
                completion(result.map(\.verification))
            }
        }
    }

    /// - Returns: False: the model cannot.
    private func walk(
        _ scope: LocalScope, timeout: Duration, attemptsLeft: Int,
        _ completion: @escaping (Result<Verification, CloudError>) -> Void
    ) -> Bool {
        model.walk(scope, timeout: timeout) { [weak self] result in
            guard let self else { return }
            do throws(CloudError) {
                let found = try result.get()
                guard !found.isElsewhere, found.isWhole else {
                    // What moves all the time is compared at some head all the same.
                    let readsAll = !found.isElsewhere || attemptsLeft == 1
                    return verify(
                        timeout: timeout, readsAll: readsAll, attemptsLeft: max(1, attemptsLeft - 1), completion)
                }
                let (pending, loss) = try read { (try $0.operationCount(), try self.contentLoss(in: $0)) }
                completion(
                    .success(
                        Verification(
                            token: found.head, localDigest: found.localDigest, serverDigest: found.serverDigest,
                            differences: found.differences, hasMore: found.hasMore, pending: pending,
                            damagedChunkCount: loss.lostChunks, isContentMissing: loss.isAllMissing)))
            } catch { completion(.failure(error)) }
        }
    }

    func contentLoss(in rows: ScopeTransaction) throws -> ContentLoss {
        try model is any ContentKeeping ? ContentLoss(in: rows) : ContentLoss()
    }

    private static let nothing = Verification(
        token: .zero, localDigest: .empty, serverDigest: .empty, differences: [], pending: 0)
    private static let left = CloudError(.notSignedIn, "This home has no account signed in. Sign in.")

    private struct Found {
        var verification: Verification
        /// The copy has another head than what was read.
        var isElsewhere: Bool
    }

    /// - Parameter reader: By which the pages are staged: the newest state of each item is what is compared.
    private func compare(
        _ reading: ChangesReading, by reader: Int, timeout: Duration,
        _ completion: @escaping (Result<Found, CloudError>) -> Void
    ) {
        var request = reading.request
        request.itemsMax = sync.options.pageItemsMax
        engine.call(model.service, request, as: WireReadChangesReply.self, app: app, timeout: timeout) {
            [weak self] result, _ in
            guard let self else { return }
            do throws(CloudError) {
                var reading = reading
                let page = try result.get()
                let isFirst = reading.pageCount == 0
                let bytes = page.changes.stagedBytes
                try engine.local.requireRoom(for: reading.byteCount + bytes, staging: bytes)
                try readBesideStage { try $0.stage(page.changes, isFirst: isFirst, by: reader) }
                if try reading.take(page) {
                    let found = try readBesideStage { try self.found(page, by: reader, in: $0) }
                    forgetStage(of: reader)
                    return completion(.success(found))
                }
                guard reading.byteCount <= sync.options.readingBytesMax else {
                    throw CloudError(.malformedRequest, "The server has more in the scope than it may have.")
                }
                compare(reading, by: reader, timeout: timeout, completion)
            } catch {
                forgetStage(of: reader)
                completion(.failure(error))
            }
        }
    }

    private func readBesideStage<Value>(_ body: (ScopeTransaction) throws -> Value) throws(CloudError) -> Value {
        guard let scope else { throw Self.left }
        return try engine.local.readBesideStage { try body(ScopeTransaction($0, scope)) }
    }

    /// What cannot be removed goes with the process.
    func forgetStage(of reader: Int) {
        try? engine.local.readBesideStage { try ScopeTransaction.clearStage(of: reader, $0) }
    }

    /// Goes through both sides in the order of names, and keeps what is not the same.
    private func found(
        _ last: WireReadChangesReply, by reader: Int, in rows: ScopeTransaction
    ) throws -> Found {
        let state = try rows.state()
        let token = ChangeToken(last.token)
        let key = [UInt8](last.digestKey)
        var verification = Verification(
            token: token, localDigest: state.digest, serverDigest: SetDigest(bytes: last.digest) ?? .empty,
            differences: [], pending: try rows.operationCount())
        let loss = try contentLoss(in: rows)
        verification.damagedChunkCount = loss.lostChunks
        verification.isContentMissing = loss.isAllMissing
        func note(_ name: ItemName, _ kind: Verification.Difference.Kind) {
            guard verification.differences.count < Verification.differencesMax else {
                return verification.hasMore = true
            }
            verification.differences.append(.init(key: name, kind: kind))
        }
        let theirs = try rows.staged(by: reader).filter { !$0.deleted }
        var next = try theirs.next()
        try model.forEachDigest(in: rows, key: state.digestKey) { name, here in
            while let change = next, ItemName(change.item) < name {
                note(ItemName(change.item), .missingHere)
                next = try theirs.next()
            }
            guard let change = next, change.item.hasSameBytes(as: name.rawValue) else {
                return note(name, .missingOnServer)
            }
            next = try theirs.next()
            if model.digest(of: change, key: key) != here { note(name, .differs) }
        }
        while let change = next {
            note(ItemName(change.item), .missingHere)
            next = try theirs.next()
        }
        return Found(verification: verification, isElsewhere: token != state.head)
    }
}
