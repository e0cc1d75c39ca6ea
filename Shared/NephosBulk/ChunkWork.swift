internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
private import Synchronization

/// Why a chunk may not be written.
enum Shortage: Sendable {
    /// Its upload has no room for it. One that takes the place of damaged bytes needs no more than these have.
    case ofUpload(CloudError)
    /// The account has written too much of late, or the disk is full.
    case ofDisk(CloudError)

    var error: CloudError {
        switch self {
        case .ofUpload(let error), .ofDisk(let error): error
        }
    }

    fileprivate func concerns(_ chunkIsDamaged: Bool) -> Bool {
        switch self {
        case .ofUpload: !chunkIsDamaged
        case .ofDisk: true
        }
    }
}

/// A chunk that a device has sent, and that is not answered yet.
struct IncomingChunk: Sendable {
    let peer: Peer
    let ticket: Ticket
    let frame: BulkFrame
    /// Set: nothing is written for it; it is stored only if it is there already.
    let shortage: Shortage?

    var counted: Int { BulkLimits.counted(frame.contentBytes) }
    var holder: Room.Holder { Room.Holder(account: ticket.account, key: ticket.key) }
}

/// A chunk that a device has asked for.
struct ChunkRequest: Sendable {
    let ticket: Ticket
    let number: UInt64
    let chunk: ChunkID
}

/// What somebody who read a chunk has to say of it.
enum ChunkFinding: Hashable, Sendable {
    case damaged(DamagedChunk)
    /// It has a note, and can be read all the same.
    case recovered(RecoveredChunk)

    /// Whether it is told that the chunk's segment is not there.
    var isOfNothing: Bool { if case .damaged(let chunk) = self { chunk.damage == .gone } else { false } }
}

extension ChunkFailure {
    /// What is noted of the chunk; nil: nothing ails it.
    var damage: DamagedChunk.Damage? {
        switch self {
        case .moved, .missing: .gone
        case .damaged: .bytes
        case .notAuthentic: .seal
        case .suiteUnknown: nil
        }
    }
}

/// What is done with content on a work pool's threads: hashing, sealing and writing; reading and opening.
struct ChunkWork: Sendable {
    private let store: any BlobStore
    private let snapshots: any Snapshots
    private let groups = GroupPool()
    /// Bytes of the disk that content leaves free: for the rows, and for what makes room.
    private let roomKeptBytes: Int

    init(store: any BlobStore, snapshots: any Snapshots, roomKeptBytes: Int) {
        self.store = store
        self.snapshots = snapshots
        self.roomKeptBytes = roomKeptBytes
    }

    /// A step of freeing a segment's dead room. Nil: the segment is not closed.
    func copy(_ rewrite: SegmentRewrite) throws -> SegmentRewrite.Copied? {
        var group = groups.take()
        defer { groups.giveBack(group) }
        return try rewrite.copy(&group, through: snapshots)
    }

    // MARK: Storing

    /// What became of a chunk before its rows are committed.
    enum Stored: Sendable {
        /// Its bytes are durable there.
        case placed(StoredChunk)
        /// The owner had it already, a moment ago, and it can be read.
        case known
        case refused(CloudError)

        var isPlaced: Bool { if case .placed = self { true } else { false } }
    }

    /// Chunks whose rows are to be committed.
    struct Batch: Sendable {
        var chunks: [IncomingChunk]
        /// For each of the chunks.
        var results: [Stored]
        /// Bytes that were written to disk for accounts, whatever becomes of the rows.
        var written: [AccountID: UInt64] = [:]
        /// To be released once the rows are committed, or never will be.
        var groups: [StoredGroup]
    }

    /// Verifies the chunks, seals those that their owners do not have yet, or that cannot be read any more, and writes
    /// them with one flush for each group.
    ///
    /// - Parameter chunks: All of one partition.
    func store(_ chunks: [IncomingChunk], in partition: Int) -> Batch {
        var batch = Batch(chunks: chunks, results: [], groups: [])
        batch.results = chunks.map { chunk in
            let isTrue = chunk.frame.withContent { ChunkID(hashing: $0) } == chunk.frame.chunk
            return isTrue ? .known : .refused(Self.wrongHash)
        }
        do {
            try put(&batch, but: try known(batch, in: partition), in: partition)
        } catch {
            // What was put by then is dead room.
            let failure = CloudError(wrapping: error)
            for index in batch.results.indices {
                if case .refused = batch.results[index] { continue }
                batch.results[index] = .refused(failure)
            }
        }
        return batch
    }

    private static let wrongHash = CloudError(
        .invalidArguments, "The chunk's bytes are not those that its id names. Send it again as it is.")

    private struct Key: Hashable {
        var owner: Owner
        var id: ChunkID
    }

    /// What owners have already of a batch.
    private struct Known {
        var readable: Set<Key> = []
        var damaged: Set<Key> = []
    }

    private func known(_ batch: Batch, in partition: Int) throws -> Known {
        var ids: [Owner: [ChunkID]] = [:]
        for (chunk, result) in zip(batch.chunks, batch.results) {
            if case .known = result { ids[chunk.ticket.owner, default: []].append(chunk.frame.chunk) }
        }
        let rows = try snapshots.read { snapshot in
            try ids.flatMap { owner, ids in
                let rows = try ChunkIndex.find(ids, of: owner, in: partition, in: snapshot).values
                let noted = try DamagedChunks.noted(among: ids, of: owner, in: partition, in: snapshot)
                return rows.map { (row: $0, isNoted: noted.contains($0.id)) }
            }
        }
        var known = Known()
        for (row, isNoted) in rows {
            let key = Key(owner: row.owner, id: row.id)
            // What was noted may be more than its bytes show: that it does not open.
            if try !isNoted && canBeRead(row) { known.readable.insert(key) } else { known.damaged.insert(key) }
        }
        return known
    }

    /// Whether the disk still has what was put. Who sends a chunk again may be the last who has it. One that is moved
    /// at this moment is put again; that costs dead room.
    private func canBeRead(_ chunk: IndexedChunk) throws -> Bool {
        do { _ = try store.read(chunk.place, of: chunk.id) } catch is ChunkFailure { return false }
        return true
    }

    private func put(_ batch: inout Batch, but known: Known, in partition: Int) throws {
        var group = groups.take()
        defer { groups.giveBack(group) }
        var seen = known.readable
        var waiting: [Int] = []
        func flush(_ batch: inout Batch) throws {
            guard !group.isEmpty else { return }
            defer { group.removeAll() }
            if let room = store.room, room.free < roomKeptBytes { throw CloudError.diskFull }
            let stored = try store.put(&group, in: partition)
            batch.groups.append(stored)
            for (index, chunk) in zip(waiting, stored.chunks) {
                batch.results[index] = .placed(chunk)
                batch.written[batch.chunks[index].ticket.account, default: 0] += UInt64(chunk.place.recordBytes)
            }
            waiting = []
        }
        for (index, chunk) in batch.chunks.enumerated() {
            let key = Key(owner: chunk.ticket.owner, id: chunk.frame.chunk)
            guard case .known = batch.results[index], seen.insert(key).inserted else { continue }
            if let shortage = chunk.shortage, shortage.concerns(known.damaged.contains(key)) {
                batch.results[index] = .refused(shortage.error)
                continue
            }
            if !group.hasRoom(forUnsealed: chunk.frame.contentBytes) { try flush(&batch) }
            try chunk.frame.withContent {
                try group.append(chunk.frame.chunk, sealing: $0, with: chunk.ticket.sealer)
            }
            waiting.append(index)
        }
        try flush(&batch)
    }

    // MARK: Fetching

    /// The answer to a request.
    struct Fetched: Sendable {
        /// The chunk, or why it is not there.
        var frame: Frame
        /// What it takes of the credit.
        var counted: Int
        /// What is to be noted of it: that it could not be read, or that it could although there is a note.
        var finding: ChunkFinding?
    }

    /// Reads chunks that were asked for, as long as they fit.
    ///
    /// - Returns: The answers to the first of the requests. Fewer than there are: the next one does not fit.
    func fetch(_ requests: [ChunkRequest], bytesMax: Int) -> [Fetched] {
        var answers: [Fetched] = []
        var rest = bytesMax
        var sealed: [UInt8] = []
        for request in requests {
            var found: Found?
            do {
                found = try find(request)
                guard let chunk = found?.chunk else { throw Self.unknown }
                guard chunk.place.isSound else { throw ChunkFailure.damaged(chunk.place) }
                let bytes = chunk.place.length - ChunkSealer.overhead
                guard bytes > 0, bytes <= BulkLimits.chunkBytesMax else { throw ChunkFailure.damaged(chunk.place) }
                let counted = BulkLimits.counted(bytes)
                guard counted <= rest else { break }
                let frame = try frame(chunk, for: request, contentBytes: bytes, &sealed)
                answers.append(Fetched(frame: frame, counted: counted, finding: found?.recovered))
                rest -= counted
            } catch {
                answers.append(
                    Fetched(
                        frame: BulkFrame.refused(
                            request.ticket.id, number: request.number, chunk: request.chunk, Self.reply(to: error)),
                        counted: 0, finding: found?.damaged(by: error)))
            }
        }
        return answers
    }

    /// A chunk as it was looked up.
    private struct Found {
        var chunk: IndexedChunk
        var isNoted: Bool

        var recovered: ChunkFinding? { isNoted ? .recovered(RecoveredChunk(chunk, isOpened: true)) : nil }

        /// Nil: what ails it is noted, so that whoever asks for it again and again costs the service's loop nothing; or
        /// it is not damaged.
        func damaged(by error: any Error) -> ChunkFinding? {
            guard !isNoted, let damage = (error as? ChunkFailure)?.damage else { return nil }
            return .damaged(DamagedChunk(chunk, damage: damage))
        }
    }

    private static func reply(to error: any Error) -> CloudError {
        switch error {
        case ChunkFailure.suiteUnknown: sealedAnew
        case is ChunkFailure: damaged
        default: CloudError(wrapping: error)
        }
    }

    private static let sealedAnew = CloudError(
        .storageFailure, "The chunk was sealed by a newer version of the service. Upgrade the service.",
        details: ["reason": "version"])
    private static let unknown = CloudError(.unknownItem, "There is no such chunk.")
    private static let damaged = CloudError(
        .storageFailure, "The chunk cannot be read any more. Another device may have it.",
        details: ["reason": "damaged"])

    private func find(_ request: ChunkRequest) throws -> Found? {
        let (ticket, id) = (request.ticket, request.chunk)
        return try snapshots.read {
            guard try mayFetch(id, ticket, in: $0),
                let chunk = try ChunkIndex.find(id, of: ticket.owner, in: ticket.partition, in: $0)
            else { return nil }
            return Found(
                chunk: chunk,
                isNoted: try DamagedChunks.isNoted(id, of: ticket.owner, in: ticket.partition, in: $0))
        }
    }

    /// Whether a content of the app's containers rests on the chunk, or one of the app's uploads has stored it. What else
    /// the account has answers like what it has not: so nothing can be probed by its hash.
    private func mayFetch(_ chunk: ChunkID, _ ticket: Ticket, in snapshot: any ReadTransaction) throws -> Bool {
        let place = HoldStore.Place(owner: ticket.owner, partition: ticket.partition)
        for container in ticket.containers where try UseStore.isUsed(chunk, by: container, at: place, in: snapshot) {
            return true
        }
        // Of what is no account's, uploads are of others, too.
        guard ticket.owner.account != nil else { return false }
        return try HoldStore.uploads(of: chunk, at: place, in: snapshot).contains { upload in
            try StorageLedger.app(ofReservation: upload, of: ticket.owner, in: snapshot) == ticket.reservingApp
        }
    }

    /// - Parameter sealed: Memory for the chunk as it lies on disk; used again for the next.
    private func frame(
        _ chunk: IndexedChunk, for request: ChunkRequest, contentBytes: Int, _ sealed: inout [UInt8]
    ) throws -> Frame {
        if sealed.count < chunk.place.length { sealed = [UInt8](repeating: 0, count: chunk.place.length) }
        return try sealed.withUnsafeMutableBytes { memory in
            let sealed = UnsafeMutableRawBufferPointer(rebasing: memory[..<chunk.place.length])
            try read(chunk, for: request, into: sealed)
            return try BulkFrame.chunk(request.ticket.id, number: request.number, contentBytes: contentBytes) {
                try request.ticket.sealer.open(UnsafeRawBufferPointer(sealed), id: request.chunk, into: $0)
                return request.chunk
            }
        }
    }

    private func read(
        _ chunk: IndexedChunk, for request: ChunkRequest, into sealed: UnsafeMutableRawBufferPointer
    ) throws {
        var place = chunk.place
        while true {
            do { return try store.read(place, of: request.chunk, into: sealed) } catch ChunkFailure.moved {
                // It was moved since it was looked up.
                guard let now = try find(request)?.chunk.place, now != place, now.length == sealed.count else {
                    throw ChunkFailure.missing(place)
                }
                place = now
            }
        }
    }
}

/// Buffers for groups, used again: each is megabytes.
private final class GroupPool: Sendable {
    private static let countMax = 2
    private let free = Mutex<[ChunkGroup]>([])

    func take() -> ChunkGroup { free.withLock { $0.popLast() } ?? ChunkGroup() }

    func giveBack(_ group: ChunkGroup) {
        var group = group
        group.removeAll()
        free.withLock { if $0.count < Self.countMax { $0.append(group) } }
    }
}
