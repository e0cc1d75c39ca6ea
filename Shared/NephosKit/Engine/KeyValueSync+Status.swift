internal import Bus
public import Core
internal import Wire

extension KeyValueSync {
    /// Pending writes that a status lists; there may be more.
    static let listedMax = 1000

    /// Where the store stands, and why anything in it waits.
    public func status() throws(CloudError) -> StoreStatus {
        let session = engine.session
        let place = LocalStore.scope(of: app, session: session)
        let (state, pending, refused) = try engine.local.read { database in
            let store = StoreTransaction(database, place)
            return (
                try store.state(),
                try store.pending(limit: Self.listedMax).map { ($0.operation, $0.writes.map(\.key)) },
                try store.refusals()
            )
        }
        let problem = storeProblem
        let described = pending.map { operation, keys in
            sync.describe(
                operation, items: keys, problem: problem, isSynced: state.synced, isServerHeard: isServerHeard,
                at: moment)
        }
        return StoreStatus(
            initialSyncFinished: state.synced, head: state.head, digest: state.digest,
            pending: described, refused: refused, problem: problem, agrees: sync.agrees,
            budget: sync.outbox.pacing.budget,
            isFollowing: engine.follower.isFollowing(app))
    }

    var storeProblem: CloudError? {
        guard let session = engine.session, session.signedIn else {
            return CloudError(.notSignedIn, "This home has no account signed in. Sign in.")
        }
        if let ending = session.ending { return ending }
        return problem
    }

    var isServerHeard: Bool { engine.hasHeard(.keyValue) }

    var moment: Moment { Moment(time: engine.now, monotonic: engine.loop.monotonicNow) }
}
