internal import NephosBus
internal import NephosCore
internal import NephosStorage

// What may read much does so off the loop, from snapshots, some at a time.
extension GroupRunner {
    /// What was read off the loop. One that fails has cost what it has read by then.
    private struct Read: Sendable {
        var value: Result<any Sendable, CloudError>
        var cost: ReadCost
    }

    /// Reads a snapshot for the item; what its connection sends meanwhile waits.
    func read(_ item: GroupItem, _ reading: Router.Bulk.Reading) {
        item.costBefore = item.cost
        waitingReads.add((item, reading), of: item.context.caller?.account)
        startReads()
    }

    private func startReads() {
        while readsInFlight < Self.readsMax, !isClosed, let (item, reading) = waitingReads.next() {
            guard item.deadline.map({ $0 < loop.monotonicNow }) != true else {
                end(item, .failure(.late))
                continue
            }
            startRead(item, reading)
        }
    }

    private func startRead(_ item: GroupItem, _ reading: Router.Bulk.Reading) {
        readsInFlight += 1
        let history = groups.cache.history
        loop.offload(to: .reading) { [snapshots, read = reading.read] in
            try snapshots.read { snapshot in
                let feed = FeedSnapshot(snapshot, history: history)
                let value = Result { try read(feed) }.mapError { CloudError(wrapping: $0) }
                return Read(value: value, cost: feed.cost)
            }
        } then: { [weak self] result in
            guard let self, !isClosed else { return }
            readsInFlight -= 1
            do {
                let read = try result.get()
                item.cost = read.cost
                // Its tokens would be of a history that has ended meanwhile.
                guard groups.cache.history?.run == history?.run else {
                    throw CloudError(
                        .serviceBusy, "Another history began meanwhile. Try again.", retryAfter: .milliseconds(10))
                }
                end(item, .success(try reading.finish(read.value.get())))
            } catch {
                end(item, .failure(CloudError(wrapping: error)))
            }
            startReads()
        }
    }

    private func end(_ item: GroupItem, _ outcome: GroupItem.Outcome) {
        item.outcome = outcome
        answer(item)
        release(item)
    }

    /// Lets what has waited behind the read go on, in a turn of its own.
    func release(_ item: GroupItem) {
        guard reads.end(item) else { return }
        let connection = item.context.peer.connection
        loop.schedule(after: .zero) { [weak self] in
            guard let self, !isEnding else { return }
            // Before what the connection has sent since.
            let items = reads.goOn(connection)
            arrived.insert(contentsOf: items, at: 0)
            arrivedBytes += items.reduce(0) { $0 + $1.bytes }
            goOn()
        }
    }
}
