internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Notes chunks that were found damaged, and tells the operator of them: each once, however often it is asked for.
///
/// On the service's loop only.
final class DamageNotes {
    /// Rows of one group: a few milliseconds.
    static let groupMax = 256
    /// Chunks that wait for their group. What is found beyond that is found again.
    private static let waitingMax = 4096
    /// Containers that one line of the log names.
    private static let namedMax = 10

    private unowned let transfers: Transfers
    private var waiting: Set<DamagedChunk> = []
    private var isNoting = false
    private var isCounting = false
    /// Noted when it was counted last.
    private(set) var count = 0

    init(_ transfers: Transfers) { self.transfers = transfers }

    /// Chunks that could not be read.
    func note(_ chunks: [DamagedChunk]) {
        for chunk in chunks where waiting.count < Self.waitingMax { waiting.insert(chunk) }
        goOn()
    }

    private func goOn() {
        guard !isNoting, !waiting.isEmpty, let host = transfers.host else { return }
        isNoting = true
        let some = Array(waiting.prefix(Self.groupMax))
        note(some, with: host) { _ in
        } then: { [weak self] _ in
            guard let self else { return }
            isNoting = false
            // What could not be noted is found again.
            waiting.subtract(some)
            goOn()
        }
    }

    /// Notes chunks in one group, and whatever else the body writes.
    func note(
        _ chunks: [DamagedChunk], with host: any ServiceRuntime,
        _ body: @escaping (any HandlerTransaction) throws -> Void, then completion: @escaping (CloudError?) -> Void
    ) {
        var found: [Owner: Found] = [:]
        host.submit {
            found = [:]
            for chunk in try DamagedChunks.note(chunks, at: host.loop.wallClock.now, in: $0) {
                let place = HoldStore.Place(owner: chunk.owner, partition: chunk.place.segment.partition)
                let containers = try UseStore.containers(using: UseStore.Part(id: chunk.id), at: place, in: $0)
                found[chunk.owner, default: Found()].count += 1
                found[chunk.owner, default: Found()].containers.formUnion(containers)
            }
            try body($0)
        } then: { [weak self] failure in
            if failure == nil, !found.isEmpty {
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
                "Chunks of content cannot be read any more. A device that has the files heals them: put them again",
                details: [
                    "account": owner.rawValue, "chunks": "\(found.count)",
                    "containers": found.containers.sorted().prefix(Self.namedMax).joined(separator: " "),
                ])
        }
    }

    /// Bytes were stored: what was damaged may be whole.
    func recountIfAny() { if count > 0 { recount() } }

    /// Counts what is noted, for whoever asks how the service is.
    func recount() {
        guard !isCounting, let host = transfers.host else { return }
        isCounting = true
        let snapshots = host.snapshots
        host.loop.offload(to: .content) {
            try snapshots.read { try DamagedChunks.count(in: $0) }
        } then: { [weak self] result in
            guard let self else { return }
            isCounting = false
            guard let count = try? result.get() else { return }
            self.count = count
            transfers.host?.set("chunks.damaged", to: count)
        }
    }
}
