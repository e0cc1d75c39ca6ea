internal import NephosBus
internal import NephosCore
internal import NephosStorage

// What an instance keeps in memory of a partition between two groups, it can forget, and read again: partitions are
// what instances of a service may one day divide among themselves.
extension ServiceHost {
    /// Forgets all that is known of a partition, between two groups: somebody else may write to it from now on.
    ///
    /// What belongs to no partition stays: whose tokens are good and what budgets are left (both are of who asks, and a
    /// debt is not forgiven), and the history, which is the whole database's.
    package func drop(partition: Int) {
        runner.betweenGroups { [self] in
            guard !isClosed else { return }
            cache.drop(partition: partition)
            ownerKeys.drop(partition: partition)
            storage.drop(partition: partition)
            publisher?.drop(partition: partition)
            for follower in followers { follower.drop(partition: partition) }
            mending.drop(partition: partition)
            service.drop(partition: partition)
        }
    }

    /// The partition is this instance's again: what is not read when it is asked for is read now, in the next group and
    /// before its requests.
    package func takeUp(partition: Int) {
        run { [self] transaction in
            // At once, for the requests of this very group; if it is rolled back, that is harmless.
            operations.recall(newest: try Feed.newestOperation(in: transaction))
            try service.takeUp(partition: partition, in: transaction)
            return TakenUp(
                position: try transaction.position(ofPartition: partition),
                cursors: try followers.map {
                    try FollowCursors.cursor(of: $0.service, partition: partition, in: transaction)
                })
        } then: { [weak self] result in
            guard let self, !isClosed else { return }
            guard case .success(let found) = result else {
                // Storage fails; until it does not, nothing of the partition can be answered anyway.
                return _ = loop.schedule(after: .seconds(1)) { [weak self] in self?.takeUp(partition: partition) }
            }
            publisher?.takeUp(partition: partition, at: found.position)
            for (follower, cursor) in zip(followers, found.cursors) {
                follower.takeUp(partition: partition, at: cursor)
            }
            storage.takeUp()
        }
    }

    private struct TakenUp {
        var position: ChangeToken
        var cursors: [ChangeToken?]
    }
}
