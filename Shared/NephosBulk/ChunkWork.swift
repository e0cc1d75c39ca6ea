internal import NephosBus
private import NephosChunks
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
    /// Bytes of the chunk as it is, as the frame says. More than the frame has, if that is compressed.
    let contentLength: Int
    /// Set: nothing is written for it; it is stored only if its ticket has it already.
    var shortage: Shortage?

    /// What it takes of the credit, of memory and of the disk.
    var counted: Int { BulkLimits.counted(frame.contentBytes) }
    /// What it takes of its upload's room, and so of the plan.
    var filling: UInt64 { UInt64(BulkLimits.counted(contentLength)) }
    /// What it takes of what its account may write within a day: of the disk, or of an app's plan, which all share.
    var written: Int { ticket.owner.isApp ? max(counted, Int(filling)) : counted }
    var turn: Turn { ticket.turn }
    var holder: Room.Holder { Room.Holder(account: ticket.account, key: ticket.key) }
}

/// Whose turn it is to have chunks stored, together: each account has its own, whichever partition it stores to.
struct Turn: Hashable, Sendable {
    var account: AccountID
    var partition: Int
}

/// A chunk that a device has asked for.
struct ChunkRequest: Sendable {
    let ticket: Ticket
    let number: UInt64
    let chunk: ChunkID
    /// How it may be encoded, if not as it is.
    let accepts: ChunkEncoding
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
    let store: any BlobStore
    let snapshots: any Snapshots
    private let reading: Transfers.Reading
    private let groups = GroupPool()
    let presence: ContentPresence
    /// Bytes of the disk that content leaves free: for the rows, and for what makes room.
    private let roomKeptBytes: Int

    init(
        store: any BlobStore, snapshots: any Snapshots, reading: @escaping Transfers.Reading = Transfers.asOneContainer,
        presence: ContentPresence = ContentPresence(), roomKeptBytes: Int
    ) {
        self.store = store
        self.snapshots = snapshots
        self.reading = reading
        self.presence = presence
        self.roomKeptBytes = roomKeptBytes
    }

    /// Whether a content that the ticket is for rests on the chunk, as it is now.
    func isUsed(_ chunk: ChunkID, under ticket: Ticket, in snapshot: any ReadTransaction) throws -> Bool {
        try Self.isUsed(chunk, under: ticket, reading, in: snapshot)
    }

    static func isUsed(
        _ chunk: ChunkID, under ticket: Ticket, _ reading: Transfers.Reading, in snapshot: any ReadTransaction
    ) throws -> Bool {
        let place = HoldStore.Place(owner: ticket.owner, partition: ticket.partition)
        return try ticket.readable.contains {
            let containers = try reading($0, ticket.owner, ticket.partition, snapshot)
            return try UseStore.container(of: containers, using: UseStore.Part(id: chunk), at: place, in: snapshot)
                != nil
        }
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
        /// Its ticket had it already, a moment ago, and it can be read.
        case known
        case refused(CloudError)

        var isPlaced: Bool { if case .placed = self { true } else { false } }
        var isRefused: Bool { if case .refused = self { true } else { false } }
    }

    /// Chunks whose rows are to be committed.
    struct Batch: Sendable {
        var chunks: [IncomingChunk]
        /// For each of the chunks.
        var results: [Stored]
        /// Bytes that were written for accounts, to disk or on an app's plan, whatever becomes of the rows.
        var written: [AccountID: UInt64] = [:]
        /// Bytes of content that were opened in vain for accounts (``WastedWork``).
        var wasted: [AccountID: Int] = [:]
        /// To be released once the rows are committed, or never will be.
        var groups: [StoredGroup]

        /// Counts what was not what its id says, and by a part what its upload has no room for. What the upload has
        /// already is counted once its rows were looked at (``Receiving/Committed/repeated``). That the disk is full, or
        /// the day's writing done, is not what its sender has done in vain.
        fileprivate mutating func countWaste(untrue: [Bool]) {
            for ((chunk, result), isUntrue) in zip(zip(chunks, results), untrue) where result.isRefused {
                if !isUntrue, case .ofDisk? = chunk.shortage { continue }
                wasted[chunk.ticket.account, default: 0] +=
                    isUntrue ? chunk.contentLength : chunk.contentLength / WastedWork.knownPart
            }
        }
    }

    /// Verifies the chunks, seals those that their tickets do not have yet, or that cannot be read any more, and writes
    /// them with one flush for each group.
    ///
    /// A ticket has the chunks that its upload holds, and those on which contents rest that it may read. Other chunks of
    /// the owner are written again: an answer, or a budget, would tell that somebody has them.
    ///
    /// - Parameter chunks: All of one partition.
    func store(_ chunks: [IncomingChunk], in partition: Int) -> Batch {
        var batch = Batch(chunks: chunks, results: [], groups: [])
        let coder = ChunkCoder()
        batch.results = chunks.map { chunk in
            do { return try Self.id(of: chunk, coder) == chunk.frame.chunk ? .known : .refused(Self.wrongHash) } catch {
                return .refused(CloudError(wrapping: error))
            }
        }
        let untrue = batch.results.map(\.isRefused)
        do {
            try put(&batch, but: try known(batch, in: partition), in: partition)
            batch.countWaste(untrue: untrue)
        } catch {
            // What was put by then is dead room. That it failed is nobody's doing.
            let failure = error is ContentDisk.Gone ? Self.contentMissing : CloudError(wrapping: error)
            for index in batch.results.indices {
                if case .refused = batch.results[index] { continue }
                batch.results[index] = .refused(failure)
            }
        }
        return batch
    }

    private static func id(of chunk: IncomingChunk, _ coder: ChunkCoder) throws -> ChunkID {
        try chunk.frame.withContent { try coder.withDecoded($0, chunk.frame.encoding) { ChunkID(hashing: $0) } }
    }

    private static let wrongHash = CloudError(
        .invalidArguments, "The chunk's bytes are not those that its id names. Send it again as it is.")

    private struct Key: Hashable {
        var owner: Owner
        var id: ChunkID
    }

    /// What tickets have already of a batch: the places of its chunks.
    private struct Known {
        var readable: Set<Int> = []
        var damaged: Set<Int> = []
    }

    private func known(_ batch: Batch, in partition: Int) throws -> Known {
        var places: [Owner: [Int]] = [:]
        for (place, result) in batch.results.enumerated() {
            if case .known = result { places[batch.chunks[place].ticket.owner, default: []].append(place) }
        }
        let rows = try snapshots.read { snapshot in
            try places.flatMap { owner, places in
                let ids = places.map { batch.chunks[$0].frame.chunk }
                let rows = try ChunkIndex.find(ids, of: owner, in: partition, in: snapshot)
                let noted = try DamagedChunks.noted(among: ids, of: owner, in: partition, in: snapshot)
                return try zip(places, ids).compactMap { place, id in
                    guard let row = rows[id], try isHad(batch.chunks[place], in: snapshot) else {
                        return nil as (place: Int, row: IndexedChunk, isNoted: Bool)?
                    }
                    return (place, row, noted.contains(id))
                }
            }
        }
        var known = Known()
        for (place, row, isNoted) in rows {
            // What was noted may be more than its bytes show: that it does not open.
            let isWhole = row.isSound && row.form.contentLength == batch.chunks[place].contentLength
            if isWhole && !isNoted && canBeRead(row) {
                known.readable.insert(place)
            } else {
                known.damaged.insert(place)
            }
        }
        return known
    }

    /// Whether the chunk's upload holds it, or a content rests on it that its ticket may read.
    private func isHad(_ chunk: IncomingChunk, in snapshot: any ReadTransaction) throws -> Bool {
        let ticket = chunk.ticket
        let place = HoldStore.Place(owner: ticket.owner, partition: ticket.partition)
        if let upload = ticket.upload,
            try HoldStore.has(chunk.frame.chunk, for: upload.id, at: place, in: snapshot)
        {
            return true
        }
        return try isUsed(chunk.frame.chunk, under: ticket, in: snapshot)
    }

    /// Whether the disk still has what was put. Who sends a chunk again may be the last who has it. One that is moved
    /// at this moment is put again, and so is one that nobody can say of whether it is there; that costs dead room.
    private func canBeRead(_ chunk: IndexedChunk) -> Bool { (try? store.read(chunk.place, of: chunk.id)) != nil }

    private func put(_ batch: inout Batch, but known: Known, in partition: Int) throws {
        var group = groups.take()
        defer { groups.giveBack(group) }
        var seen: Set<Key> = []
        var waiting: [Int] = []
        func flush(_ batch: inout Batch) throws {
            guard !group.isEmpty else { return }
            defer { group.removeAll() }
            if let room = store.room, room.free < roomKeptBytes { throw CloudError.diskFull }
            let stored = try store.put(
                &group, in: partition, isDoubted: presence.isMissing, through: snapshots)
            batch.groups.append(stored)
            for (index, chunk) in zip(waiting, stored.chunks) {
                batch.results[index] = .placed(chunk)
                let sent = batch.chunks[index]
                batch.written[sent.ticket.account, default: 0] += UInt64(
                    sent.ticket.owner.isApp ? max(sent.written, chunk.place.recordBytes) : chunk.place.recordBytes)
            }
            waiting = []
        }
        for (index, chunk) in batch.chunks.enumerated() {
            guard case .known = batch.results[index], !known.readable.contains(index) else { continue }
            if let shortage = chunk.shortage, shortage.concerns(known.damaged.contains(index)) {
                batch.results[index] = .refused(shortage.error)
                continue
            }
            guard seen.insert(Key(owner: chunk.ticket.owner, id: chunk.frame.chunk)).inserted else { continue }
            if !group.hasRoom(forUnsealed: chunk.frame.contentBytes) { try flush(&batch) }
            // As it came: it opens to what it should.
            try chunk.frame.withContent {
                try group.append(
                    chunk.frame.chunk, sealing: $0, chunk.frame.encoding, contentLength: chunk.contentLength,
                    with: chunk.ticket.sealer)
            }
            waiting.append(index)
        }
        try flush(&batch)
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
