internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosStorage

// What a follower stores: what events say, and how far it has come.
extension Follower {
    /// Applies the steps in one transaction and moves the cursors. Nothing else goes by them until it is done.
    ///
    /// - Parameter completion: Gets false if storage failed: nothing was moved, and they have to come again.
    func apply(_ steps: [Step], then completion: @escaping (Bool) -> Void) {
        isApplying = true
        let end = { [self] (isStored: Bool) in
            // Not if the service has stopped meanwhile.
            guard !isClosed else { return }
            completion(isStored)
            endTurn()
        }
        tryToApply(steps) { [self] error in
            guard let error else { return end(true) }
            if Self.isOfStorage(error) { return end(false) }
            // One of them cannot be handled. Each by itself, so that it holds up nobody else.
            OneByOne.run(steps) { [self] step, next in
                tryToApply([step]) { [self] error in
                    guard let error else { return next(true) }
                    if Self.isOfStorage(error) || step.restarts { return next(false) }
                    host.count("follower.skipped", by: 1)
                    host.logger.error(
                        "An event could not be handled and was skipped", error,
                        metadata: RequestTrace.metadata(nil, causedBy: step.event?.causeID))
                    guard step.cursor != nil else { return next(true) }
                    tryToApply([Step(partition: step.partition, cursor: step.cursor)]) { next($0 == nil) }
                }
            } then: {
                end($0)
            }
        }
    }

    private static func isOfStorage(_ error: CloudError) -> Bool {
        error.code == .storageFailure || error.code == .serviceUnavailable
    }

    private func tryToApply(_ steps: [Step], then completion: @escaping (CloudError?) -> Void) {
        var cursors: [Int: ChangeToken] = [:]
        for step in steps { if let cursor = step.cursor { cursors[step.partition] = cursor } }
        let now = host.loop.wallClock.now
        host.run { [self] transaction in
            try carryOut(steps, cursors, at: now, in: transaction)
        } then: { [self] result in
            switch result {
            case .success(let facts):
                applied(steps, facts, cursors)
                completion(nil)
            case .failure(let error): completion(error)
            }
        }
    }

    /// - Returns: What identity has said.
    private func carryOut(
        _ steps: [Step], _ cursors: [Int: ChangeToken], at now: Timestamp, in transaction: any HandlerTransaction
    ) throws -> [DirectoryFact] {
        var facts: [DirectoryFact] = []
        for step in steps {
            if step.restarts {
                try handler?.restartFollowing(service, partition: step.partition, in: transaction)
                // With the directory's partition all others begin anew, and it is always there.
                if service == .identity, step.partition == directoryScope.partition {
                    try host.storage.tellAll(in: transaction)
                    try host.directoryReport.begin(in: transaction)
                }
            }
            for item in step.items {
                guard let fact = DirectoryFact(item) else { continue }
                try host.directory.store(fact, in: item, at: now, transaction)
                facts.append(fact)
            }
            if let event = step.event, !event.isOfDirectory {
                try host.trace.during(nil, causedBy: event.causeID) { try handler?.handle(event, in: transaction) }
            }
        }
        if following.cursorDelay == .zero { try store(cursors, in: transaction) }
        return facts
    }

    private func applied(_ steps: [Step], _ facts: [DirectoryFact], _ cursors: [Int: ChangeToken]) {
        host.directory.learn(facts)
        if service == .identity, steps.contains(where: \.restarts) { host.directoryReport.resume() }
        for (partition, cursor) in cursors {
            partitions[partition, default: Partition()].cursor = cursor
            if let target = partitions[partition]?.target, target.epoch != cursor.epoch || target < cursor {
                partitions[partition]?.target = cursor
            }
        }
        if following.cursorDelay != .zero { saveLater(cursors.keys) }
    }

    private func store(_ cursors: [Int: ChangeToken], in transaction: any HandlerTransaction) throws {
        for (partition, cursor) in cursors {
            try FollowCursors.setCursor(cursor, of: service, partition: partition, in: transaction)
        }
    }

    // MARK: Cursors that may lag

    private func saveLater(_ changed: some Sequence<Int>) {
        dirty.formUnion(changed)
        guard saveTimer == nil, !dirty.isEmpty else { return }
        saveTimer = host.loop.schedule(after: following.cursorDelay) { [weak self] in
            guard let self, !isClosed else { return }
            saveTimer = nil
            saveCursors()
        }
    }

    func saveCursors() {
        guard !dirty.isEmpty else { return }
        let cursors = dirty.reduce(into: [:]) { $0[$1] = partitions[$1]?.cursor }
        host.run { [self] in
            try store(cursors, in: $0)
        } then: { [self] result in
            // After a failure they stay dirty, and go with the next ones; and so do those that have moved on since.
            guard case .success = result else { return }
            dirty = dirty.filter { partitions[$0]?.cursor != cursors[$0] }
        }
    }
}
