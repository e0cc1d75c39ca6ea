import NephosBus
import NephosCore
import NephosWire

/// Compares the copy with the server's, down to the items that differ: everything is read once more, and nothing of it
/// is kept.
extension ScopeDriver {
    /// The scope may move between the two readings: they are compared again at the same head, so often.
    private static let comparisonsMax = 5

    /// Brings the copy up to date first. Changes nothing else.
    ///
    /// - Parameter timeout: How long to wait for the server at most, each time that it is asked.
    func verify(timeout: Duration, _ completion: @escaping (Result<Verification, CloudError>) -> Void) {
        verify(timeout: timeout, attemptsLeft: Self.comparisonsMax, completion)
    }

    private func verify(
        timeout: Duration, attemptsLeft: Int, _ completion: @escaping (Result<Verification, CloudError>) -> Void
    ) {
        wait(for: nil, timeout: timeout, isImpatient: true) { [weak self] result in
            guard let self else { return }
            if case .failure(let error) = result { return completion(.failure(error)) }
            guard let scope else { return completion(.failure(Self.left)) }
            let reading = ChangesReading(.scope(scope.path), of: scope.owner?.rawValue ?? "", after: .zero)
            compare(reading, [:], timeout: timeout) { [weak self] result in
                guard let self else { return }
                if case .success(let found) = result, found.isElsewhere, attemptsLeft > 1 {
                    return verify(timeout: timeout, attemptsLeft: attemptsLeft - 1, completion)
                }
                completion(result.map(\.verification))
            }
        }
    }

    private static let left = CloudError(.notSignedIn, "This home has no account signed in. Sign in.")

    private struct Found {
        var verification: Verification
        /// The copy has another head than what was read.
        var isElsewhere: Bool
    }

    /// - Parameter theirs: What the pages before have brought: the newest state of each item.
    private func compare(
        _ reading: ChangesReading, _ theirs: [ItemName: WireChange], timeout: Duration,
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
                let theirs = theirs.merging(page.changes.map { (ItemName($0.item), $0) }) { $1 }
                if try reading.take(page) {
                    return completion(.success(try found(page, theirs)))
                }
                guard reading.byteCount <= sync.options.readingBytesMax else {
                    throw CloudError(.malformedRequest, "The server has more in the scope than any may have.")
                }
                compare(reading, theirs, timeout: timeout, completion)
            } catch { completion(.failure(error)) }
        }
    }

    private func found(_ last: WireReadChangesReply, _ theirs: [ItemName: WireChange]) throws(CloudError) -> Found {
        let (state, mine, pending) = try read { rows in
            let state = try rows.state()
            return (state, try model.digests(in: rows, key: state.digestKey), try rows.operationCount())
        }
        let key = [UInt8](last.digestKey)
        let live = theirs.filter { !$0.value.deleted }
        var differences: [Verification.Difference] = []
        for name in Set(mine.keys).union(live.keys).sorted() {
            switch (mine[name], live[name]) {
            case (_, let change?) where change.damaged: differences.append(.init(key: name, kind: .damagedOnServer))
            case (nil, _): differences.append(.init(key: name, kind: .missingHere))
            case (_, nil): differences.append(.init(key: name, kind: .missingOnServer))
            case (let here?, let there?):
                if model.digest(of: there, key: key) != here { differences.append(.init(key: name, kind: .differs)) }
            }
        }
        let token = ChangeToken(last.token)
        return Found(
            verification: Verification(
                token: token, localDigest: state.digest, serverDigest: SetDigest(bytes: last.digest) ?? .empty,
                differences: differences, pending: pending),
            isElsewhere: token != state.head)
    }
}
