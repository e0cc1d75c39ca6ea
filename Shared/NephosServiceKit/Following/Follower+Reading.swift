internal import NephosBus
internal import NephosCore
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

// Closes a gap: what a follower has missed is read from the feed, some partitions at a time.
extension Follower {
    func read(_ partition: Int) {
        guard !isClosed, partitions[partition]?.isReading != true else { return }
        partitions[partition, default: Partition()].isReading = true
        waitingReads.append(partition)
        startReads()
    }

    func readLater(_ partition: Int) {
        partitions[partition, default: Partition()].isReading = true
        host.loop.schedule(after: Self.retryPause) { [weak self] in
            guard let self, !isClosed else { return }
            inTurn { [self] in
                waitingReads.append(partition)
                startReads()
            }
        }
    }

    private func startReads() {
        while readsInFlight < Self.readsMax, !waitingReads.isEmpty {
            readsInFlight += 1
            readNext(waitingReads.removeFirst())
        }
    }

    private func readNext(_ partition: Int) {
        let state = partitions[partition] ?? Partition()
        let reading = state.reading ?? Reading(partition, after: state.cursor)
        let generation = state.generation
        client?.call("ReadChanges", body: Frame(encoding: reading.pages.request)) { [weak self] reply in
            guard let self, !isClosed else { return }
            inTurn { [self] in
                readsInFlight -= 1
                guard partitions[partition]?.generation == generation else {
                    waitingReads.append(partition)
                    return startReads()
                }
                switch reply.result.decoded(as: WireReadChangesReply.self) {
                case .success(let page): return applyRead(page, of: partition, reading)
                case .failure(let error) where error.code == .changeTokenExpired:
                    host.count("follower.restarts", by: 1)
                    partitions[partition]?.reading = Reading(partition, after: nil)
                    // One that has begun anew and expires all the same need not be hurried.
                    if reading.restarts { readLater(partition) } else { waitingReads.append(partition) }
                case .failure: readLater(partition)
                }
                startReads()
            }
        }
    }

    private func applyRead(_ page: WireReadChangesReply, of partition: Int, _ before: Reading) {
        var reading = before
        var steps: [Step] = []
        let isLast: Bool
        do throws(CloudError) { isLast = try reading.pages.take(page) } catch {
            host.count("follower.malformed", by: 1)
            partitions[partition]?.reading = nil
            readLater(partition)
            return startReads()
        }
        if reading.restarts, before.end == nil, before.pages.pageCount == 0 {
            steps.append(Step(partition: partition, restarts: true))
        }
        for change in page.changes {
            if reading.end != nil {
                steps.append(Step(partition: partition, items: [FeedItem(change)]))
            } else if change.item == directoryScope.description {
                reading.meetsDirectory = service == .identity
            } else if let event = ServiceEvent(of: service, partition: partition, head: change) {
                steps.append(Step(partition: partition, event: event))
            } else {
                host.count("follower.skipped", by: 1)
            }
        }
        var isWhole = isLast
        if isLast, reading.end == nil {
            reading.end = ChangeToken(page.token)
            if reading.meetsDirectory {
                isWhole = false
                reading.pages = ChangesReading(
                    .scope(directoryScope.path.rawValue), of: directoryScope.owner.rawValue, after: reading.after)
            }
        }
        guard isWhole, let end = reading.end else {
            return apply(steps) { [self] isStored in
                if isStored {
                    partitions[partition]?.reading = reading
                    waitingReads.append(partition)
                } else {
                    readLater(partition)
                }
                startReads()
            }
        }
        steps.append(Step(partition: partition, cursor: end))
        apply(steps) { [self] isStored in
            if isStored { endReading(of: partition, after: reading.after, at: end) } else { readLater(partition) }
            startReads()
        }
    }

    private func endReading(of partition: Int, after start: ChangeToken, at end: ChangeToken) {
        partitions[partition]?.reading = nil
        let target = partitions[partition]?.target ?? .zero
        let isVain = end.sequence == start.sequence
        // What was heard of, and is not there when it is asked for a second time, was lost with an old copy.
        if target.epoch == end.epoch, target > end, !isVain || partitions[partition]?.wasVain != true {
            partitions[partition]?.wasVain = isVain
            waitingReads.append(partition)
        } else {
            partitions[partition]?.target = end
            partitions[partition]?.wasVain = false
            partitions[partition]?.isReading = false
        }
    }
}
