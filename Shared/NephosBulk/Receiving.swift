internal import NephosBus
private import NephosChunks
internal import NephosContent
internal import NephosCore

/// Chunks on their way in: taken as long as there is room, stored on a work pool in batches of a partition, committed
/// by the service's loop, and answered.
///
/// On the loop of content only.
final class Receiving {
    /// Bytes of content that are verified, sealed and flushed in one go: as they are, since that is the work.
    private static let batchBytesMax = 7 << 20
    /// Chunks of them: their rows take the service's loop a few milliseconds, and everybody waits for those.
    private static let batchCountMax = 32
    /// Batches that are sealed and written at once: one uses the processor while another waits for the disk.
    private static let runningMax = 2
    /// The same, with those whose rows are not committed: they may all be in one group.
    private static let begunMax = 3
    /// After so many chunks were committed the next are begun no sooner than that has taken, so that rows of chunks,
    /// however small and many these are, leave the service's loop half of its time; after fewer sooner by as much.
    private static let restMax: Duration = .milliseconds(500)

    /// What became of a batch.
    struct Committed: Sendable {
        /// For each chunk nil, or why it was not stored.
        var errors: [CloudError?]
        /// How full the uploads are now that it filled.
        var standings: [Upload: Upload.Standing] = [:]
        /// What their accounts have written of late, each in the partition.
        var writings: [Turn: Writing] = [:]
        /// Bytes of chunks that their uploads had already, or had no room for, by a part, for accounts (``WastedWork``).
        var repeated: [AccountID: Int] = [:]
        /// Whether the database has room for what makes room alone.
        var isShortOfRoom = false
    }

    /// Commits the rows of a batch, on the service's loop, and calls back on any thread.
    typealias Commit = @Sendable (ChunkWork.Batch, @escaping @Sendable (Committed) -> Void) -> Void

    /// What an upload has room for, so that nothing is written that would be refused afterwards.
    private struct Filling {
        var standing: Upload.Standing
        /// Where it stores, and for whom.
        let turn: Turn
        /// Bytes that are on their way to it.
        var pending: UInt64 = 0

        func shortage(for bytes: UInt64) -> CloudError? {
            guard standing.filled + bytes <= standing.reserved else { return .uploadIsFull(standing) }
            return standing.filled + pending + bytes <= standing.reserved ? nil : Receiving.busy
        }
    }

    /// What an account may still write, so that it is told before it is done.
    private struct Spending {
        var writing: Writing
        /// When it was so much, by the loop's clock.
        var since: Duration
        /// Bytes that are on their way to the disk.
        var pending: UInt64 = 0

        func shortage(for bytes: UInt64, at now: Duration) -> CloudError? {
            let writing = writing.after(now - since)
            if let refusal = writing.refusal(of: bytes) { return refusal }
            return writing.refusal(of: pending + bytes) == nil ? nil : Receiving.busy
        }
    }

    private let loop: any BusLoop
    private let work: ChunkWork
    private let commit: Commit
    /// Called with each chunk that has its answer.
    private let answer: (IncomingChunk, CloudError?) -> Void
    private var room: Room
    private var waiting = Turns<Turn, IncomingChunk>()
    private var wasted = WastedWork()
    private var running = 0
    private var begun = 0
    /// Nothing is begun before.
    private var restsUntil: Duration = .zero
    private var isResting = false
    private var fillings: [Upload: Filling] = [:]
    /// Each partition counts by itself: what is written to a public database is not what its account's own has.
    private var spendings: [Turn: Spending] = [:]
    /// Whether the database's disk was full when rows were to be committed last. Nothing is written then that would
    /// have none; what comes asks the database again.
    private var isShortOfRoom = false

    init(
        loop: any BusLoop, work: ChunkWork, room: Room, commit: @escaping Commit,
        answer: @escaping (IncomingChunk, CloudError?) -> Void
    ) {
        self.loop = loop
        self.work = work
        self.room = room
        self.commit = commit
        self.answer = answer
    }

    /// Bytes that are held for all devices.
    var heldBytes: Int { room.total }
    /// Uploads, and their accounts, of which it knows how full they are.
    var knownCount: Int { fillings.count + spendings.count }

    /// Notes how full a ticket's upload is.
    func note(_ standing: Upload.Standing, of upload: Upload, in turn: Turn) {
        fillings[upload, default: Filling(standing: standing, turn: turn)].standing = standing
    }

    /// Notes what an account has written of late.
    func note(_ writing: Writing, of turn: Turn) {
        let pending = spendings[turn]?.pending ?? 0
        spendings[turn] = Spending(writing: writing, since: loop.monotonicNow, pending: pending)
    }

    /// Forgets all uploads but these, and those to which something is on its way; and whose they are.
    func keep(_ uploads: Set<Upload>) {
        fillings = fillings.filter { $1.pending > 0 || uploads.contains($0) }
        let turns = Set(fillings.values.map(\.turn))
        spendings = spendings.filter { $1.pending > 0 || turns.contains($0) }
        wasted.forget(at: loop.monotonicNow)
    }

    /// - Returns: Why the chunk is not taken; nil: it is, and will be answered.
    func take(_ frame: BulkFrame, _ ticket: Ticket, of peer: Peer) -> CloudError? {
        guard let upload = ticket.upload, let filling = fillings[upload], let spending = spendings[ticket.turn]
        else { return Self.onlyFetching }
        if let refusal = wasted.refusal(of: ticket.account, at: loop.monotonicNow) { return refusal }
        let length: Int
        // What says that it opens to more than a chunk is not held, and nothing is allocated for it.
        do { length = try frame.withContent { try ChunkCoder.length(ofEncoded: $0, frame.encoding) } } catch {
            return CloudError(wrapping: error)
        }
        var chunk = IncomingChunk(peer: peer, ticket: ticket, frame: frame, contentLength: length)
        let written = UInt64(chunk.written)
        chunk.shortage =
            isShortOfRoom
            ? Shortage.ofDisk(.diskFull)
            : filling.shortage(for: chunk.filling).map { .ofUpload($0) }
                ?? spending.shortage(for: written, at: loop.monotonicNow).map { .ofDisk($0) }
        switch room.take(chunk.counted, for: chunk.holder) {
        case .taken: break
        case .beyondOwn: return Self.beyondCredit
        case .beyondAll: return Self.busy
        }
        if chunk.shortage == nil {
            fillings[upload]?.pending += chunk.filling
            spendings[ticket.turn]?.pending += written
        }
        waiting.add(chunk, of: chunk.turn)
        return nil
    }

    /// Begins what can be begun, when a batch of messages has been looked at.
    func goOn() {
        while running < Self.runningMax, begun < Self.begunMax, isRested() {
            var (bytes, count) = (0, 0)
            let next = waiting.next {
                bytes += Int($0.filling)
                count += 1
                return bytes <= Self.batchBytesMax && count <= Self.batchCountMax
            }
            guard let (turn, chunks) = next else { return }
            // What was let in before the account had so much done in vain.
            if let refusal = wasted.refusal(of: turn.account, at: loop.monotonicNow) {
                end(chunks, Committed(errors: chunks.map { _ in refusal }, isShortOfRoom: isShortOfRoom))
                continue
            }
            run(chunks, turn.partition)
        }
    }

    private func isRested() -> Bool {
        let left = restsUntil - loop.monotonicNow
        guard left > .zero else { return true }
        guard !isResting else { return false }
        isResting = true
        loop.schedule(after: left) { [weak self] in
            self?.isResting = false
            self?.goOn()
        }
        return false
    }

    private func rest(after count: Int, took time: Duration) {
        let rest = time * min(count, Self.batchCountMax) / Self.batchCountMax
        restsUntil = max(restsUntil, loop.monotonicNow + min(rest, Self.restMax))
    }

    private func run(_ chunks: [IncomingChunk], _ partition: Int) {
        running += 1
        begun += 1
        loop.offload(to: .content) { [work] in
            work.store(chunks, in: partition)
        } then: { [weak self] result in
            guard let self else { return }
            running -= 1
            switch result {
            case .success(let batch):
                for (account, bytes) in batch.wasted { wasted.note(bytes, of: account, at: loop.monotonicNow) }
                commitRows(of: batch)
            case .failure(let error):
                begun -= 1
                let error = CloudError(wrapping: error)
                end(chunks, Committed(errors: chunks.map { _ in error }, isShortOfRoom: isShortOfRoom))
            }
            goOn()
        }
    }

    private func commitRows(of batch: ChunkWork.Batch) {
        let own = LoopBound(self, to: loop)
        let handle = loop.handle
        let chunks = batch.chunks
        let start = loop.monotonicNow
        commit(batch) { committed in
            handle.execute { loop in
                own.withValue(on: loop) {
                    $0.begun -= 1
                    $0.rest(after: chunks.count, took: loop.monotonicNow - start)
                    $0.end(chunks, committed)
                    $0.goOn()
                }
            }
        }
    }

    private func end(_ chunks: [IncomingChunk], _ committed: Committed) {
        isShortOfRoom = committed.isShortOfRoom
        for (upload, standing) in committed.standings { fillings[upload]?.standing = standing }
        for (account, bytes) in committed.repeated { wasted.note(bytes, of: account, at: loop.monotonicNow) }
        for (turn, writing) in committed.writings where spendings[turn] != nil { note(writing, of: turn) }
        for (chunk, error) in zip(chunks, committed.errors) {
            room.give(chunk.counted, of: chunk.holder)
            if chunk.shortage == nil, let upload = chunk.ticket.upload {
                fillings[upload]?.pending -= chunk.filling
                spendings[chunk.turn]?.pending -= UInt64(chunk.written)
            }
            answer(chunk, error)
        }
    }

    private static let onlyFetching = CloudError(
        .invalidArguments, "The ticket is for fetching. Open the transfer with an id and the room that it needs.")
    private static let beyondCredit = CloudError(
        .limitExceeded, "More was sent than the device has credit for. Wait for answers.",
        details: ["credit_bytes": "\(BulkLimits.creditBytes)"])
    private static let busy = CloudError(
        .serviceBusy, "Too much content of all devices waits. Send the chunk again in a moment.",
        retryAfter: .milliseconds(20))
}

extension CloudError {
    /// The reservation has no room for the chunk.
    static func uploadIsFull(_ standing: Upload.Standing) -> CloudError {
        CloudError(
            .quotaExceeded, "The upload has no room left. Open it with as many bytes as it needs in all.",
            details: ["reserved_bytes": "\(standing.reserved)", "stored_bytes": "\(standing.filled)"])
    }
}
