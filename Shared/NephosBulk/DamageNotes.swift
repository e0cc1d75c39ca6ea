internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Notes chunks that were found damaged, and tells the operator of them: each once, however often it is asked for; and
/// forgets the notes of those that can be read after all.
///
/// On the service's loop only.
final class DamageNotes {
    /// Rows of one group: a few milliseconds.
    static let groupMax = 256
    /// Chunks that wait for their group. What is found beyond that is found again.
    private static let waitingMax = 4096
    /// Containers that one line of the log names.
    private static let namedMax = 10
    /// Between two countings, which look at every note.
    private static let countInterval: Duration = .milliseconds(500)

    private unowned let transfers: Transfers
    private var waiting: Set<ChunkFinding> = []
    private var isNoting = false
    private var isCounting = false
    /// Notes have changed since the counting that is under way began.
    private var isStale = false
    /// Noted when it was counted last.
    private(set) var count = 0

    init(_ transfers: Transfers) { self.transfers = transfers }

    /// What was found when chunks were read.
    func note(_ findings: [ChunkFinding]) {
        for finding in findings where waiting.count < Self.waitingMax { waiting.insert(finding) }
        goOn()
    }

    private func goOn() {
        guard !isNoting, !waiting.isEmpty, let host = transfers.host else { return }
        isNoting = true
        let some = Array(waiting.prefix(Self.groupMax))
        leaveOut(some) { [weak self] findings in
            self?.note(findings, with: host) { _ in
            } then: { [weak self] _ in
                guard let self else { return }
                isNoting = false
                // What could not be noted is found again.
                waiting.subtract(some)
                goOn()
            }
        }
    }

    /// Leaves out chunks whose segments are not there, if most of all are not.
    private func leaveOut(_ findings: [ChunkFinding], then: @escaping ([ChunkFinding]) -> Void) {
        guard findings.contains(where: \.isOfNothing) else { return then(findings) }
        transfers.watch.check { isThere in then(isThere ? findings : findings.filter { !$0.isOfNothing }) }
    }

    /// Notes findings in one group, and whatever else the body writes.
    func note(
        _ findings: [ChunkFinding], with host: any ServiceRuntime,
        _ body: @escaping (any HandlerTransaction) throws -> Void, then completion: @escaping (CloudError?) -> Void
    ) {
        var damaged: [DamagedChunk] = []
        var recovered: [RecoveredChunk] = []
        for finding in findings {
            switch finding {
            case .damaged(let chunk): damaged.append(chunk)
            case .recovered(let chunk): recovered.append(chunk)
            }
        }
        var found: [Owner: Found] = [:]
        var forgotten = 0
        host.submit { [damaged, recovered, transfers] in
            found = [:]
            for chunk in try DamagedChunks.note(damaged, at: host.loop.wallClock.now, in: $0) {
                let place = HoldStore.Place(owner: chunk.owner, partition: chunk.place.segment.partition)
                let containers = try UseStore.containers(using: UseStore.Part(id: chunk.id), at: place, in: $0)
                found[chunk.owner, default: Found()].count += 1
                found[chunk.owner, default: Found()].containers.formUnion(containers)
            }
            for owner in found.keys.sorted(by: { $0.rawValue < $1.rawValue }) {
                try transfers.onLoss?(owner, found[owner]?.containers ?? [], $0)
            }
            forgotten = try DamagedChunks.forget(recovered, in: $0)
            try body($0)
        } then: { [weak self] failure in
            if failure == nil, !found.isEmpty || forgotten > 0 {
                self?.tell(found, host)
                self?.recount()
            }
            completion(failure)
        }
    }

    private struct Found {
        var count = 0
        var containers: Set<String> = []
    }

    private func tell(_ found: [Owner: Found], _ host: any ServiceRuntime) {
        for (owner, found) in found.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
            host.report(
                "Chunks of content cannot be read any more. A device that has the files sends them again once it "
                    + "synchronises. Else put them again, or restore a backup",
                details: [
                    "account": owner.rawValue, "chunks": "\(found.count)",
                    "containers": found.containers.sorted().prefix(Self.namedMax).joined(separator: " "),
                ])
        }
    }

    /// Chunks were stored or removed: what was damaged may be whole, or gone.
    func recountIfAny() { if count > 0 || isStale { recount() } }

    /// Counts what is noted, for whoever asks how the service is.
    func recount() {
        isStale = true
        guard !isCounting, let host = transfers.host else { return }
        isCounting = true
        isStale = false
        count { [weak self, weak host] isCounted in
            if !isCounted { self?.isStale = true }
            host?.loop.schedule(after: Self.countInterval) { [weak self] in
                guard let self else { return }
                isCounting = false
                if isStale { recount() }
            }
        }
    }

    /// Counts what is noted until now, at once.
    ///
    /// - Parameter completion: Gets whether it was counted: the pool may be full, or the database fail.
    func count(then completion: @escaping (_ isCounted: Bool) -> Void) {
        guard let host = transfers.host else { return }
        let snapshots = host.snapshots
        host.loop.offload(to: .content) {
            try snapshots.read { try DamagedChunks.count(in: $0) }
        } then: { [weak self] result in
            guard let self, let host = transfers.host, let count = try? result.get() else { return completion(false) }
            self.count = count
            host.set("chunks.damaged", to: count)
            completion(true)
        }
    }
}
