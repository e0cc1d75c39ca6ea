internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// The rows of what has come.
extension Transfers {
    func commit(_ batch: ChunkWork.Batch, _ done: @escaping @Sendable (Receiving.Committed) -> Void) {
        guard let host else { return }
        host.submit { [unowned self] in
            let committed = try addRows(of: batch, host, in: $0)
            // In the order of the group: a room that was changed behind these rows is not forgotten for them.
            $0.afterCommit { [unowned host] in
                Self.count(batch, committed, with: host)
                for group in batch.groups { group.release() }
                done(committed)
            }
        } then: { [weak self] failure in
            guard let failure else {
                self?.damage.recountIfAny()
                return
            }
            for group in batch.groups { group.release() }
            let errors = batch.results.map { result in
                if case .refused(let error) = result { error } else { failure }
            }
            done(Receiving.Committed(errors: errors, isShortOfRoom: failure == .diskFull))
        }
    }

    private static func count(
        _ batch: ChunkWork.Batch, _ committed: Receiving.Committed, with host: any ServiceRuntime
    ) {
        let stored = zip(batch.chunks, committed.errors).filter { $1 == nil }.map(\.0)
        host.count("content.received.chunks", by: stored.count)
        host.count("content.received.bytes", by: stored.reduce(0) { $0 + $1.counted })
        host.count("content.received.plain_bytes", by: stored.reduce(0) { $0 + Int($1.filling) })
    }

    /// Decides for each chunk, and adds the rows of those that are stored.
    private func addRows(
        of batch: ChunkWork.Batch, _ host: any ServiceRuntime, in transaction: any HandlerTransaction
    ) throws -> Receiving.Committed {
        guard !transaction.isShortOfRoom else { throw CloudError.diskFull }
        let now = host.loop.wallClock.now
        var fillings = Fillings(ledger: host.storage, transaction: transaction)
        var added: [Owner: [StoredChunk]] = [:]
        var placed: Set<Placed> = []
        var healed: Set<Placed> = []
        var repeated: [AccountID: Int] = [:]
        /// What was there for the very upload was opened in vain. What is elsewhere in the account was asked for.
        func noteRepeat(_ chunk: IncomingChunk, _ result: ChunkWork.Stored) {
            guard !result.isPlaced else { return }
            repeated[chunk.ticket.account, default: 0] += chunk.contentLength / WastedWork.knownPart
        }
        let errors = try zip(batch.chunks, batch.results).map { chunk, result -> CloudError? in
            let ticket = chunk.ticket
            let place = HoldStore.Place(owner: ticket.owner, partition: ticket.partition)
            let id = chunk.frame.chunk
            if case .refused(let error) = result { return error }
            guard let upload = ticket.upload, let standing = try fillings.standing(of: upload) else {
                return .uploadHasEnded
            }
            // A repeat. It was put all the same if it could not be read.
            if try HoldStore.has(id, for: upload.id, at: place, in: transaction) {
                noteRepeat(chunk, result)
                if case .placed(let stored) = result { added[ticket.owner, default: []].append(stored) }
                return nil
            }
            let key = Placed(owner: ticket.owner, id: id)
            // What contents rest on already heals without room: nothing else would let it on a full plan, and its device
            // has asked for none. The upload's room is for what is new.
            if result.isPlaced || healed.contains(key), try isUsed(id, under: ticket, in: transaction) {
                if case .placed(let stored) = result { added[ticket.owner, default: []].append(stored) }
                healed.insert(key)
                return nil
            }
            guard standing.filled + chunk.filling <= standing.reserved else {
                noteRepeat(chunk, result)
                // A repeat finds it healed.
                return try isUsed(id, under: ticket, in: transaction) ? nil : .uploadIsFull(standing)
            }
            if case .placed(let stored) = result {
                added[ticket.owner, default: []].append(stored)
                placed.insert(key)
            } else if !placed.contains(key), !healed.contains(key),
                try ChunkIndex.find(id, of: ticket.owner, in: ticket.partition, in: transaction) == nil
            {
                return Self.removedMeanwhile
            }
            try HoldStore.add(id, counted: Int(chunk.filling), for: upload.id, at: place, in: transaction)
            fillings.fill(upload, by: chunk.filling)
            return nil
        }
        for (owner, chunks) in added {
            // Those that came meanwhile another way are replaced too: these bytes are as good.
            try ChunkIndex.replace(chunks, of: owner, in: transaction)
        }
        // Of what was put and is refused here nothing else would tell that it is dead.
        try ChunkIndex.noteLengths(with: batch.groups.flatMap(\.chunks), in: transaction)
        try fillings.save(until: expiry(host))
        return Receiving.Committed(
            errors: errors, standings: fillings.standings,
            writings: try writings(of: batch, at: now, host, in: transaction), repeated: repeated)
    }

    /// Whether a content of the app's containers rests on the chunk.
    private func isUsed(
        _ chunk: ChunkID, under ticket: Ticket, in transaction: any HandlerTransaction
    ) throws -> Bool {
        try ChunkWork.isUsed(chunk, under: ticket, reading, in: transaction)
    }

    /// Counts what was written to disk, also of what was refused afterwards.
    private func writings(
        of batch: ChunkWork.Batch, at now: Timestamp, _ host: any ServiceRuntime, in transaction: any HandlerTransaction
    ) throws -> [Turn: Writing] {
        var writings: [Turn: Writing] = [:]
        for ticket in batch.chunks.map(\.ticket) where writings[ticket.turn] == nil {
            writings[ticket.turn] = try writing(
                of: ticket.account, to: ticket.owner, in: ticket.partition,
                adding: batch.written[ticket.account, default: 0], at: now, host, in: transaction)
        }
        return writings
    }

    private static let removedMeanwhile = CloudError(
        .serviceBusy, "The chunk was there, and was removed meanwhile. Send it again.", retryAfter: .milliseconds(10))

    private struct Placed: Hashable {
        var owner: Owner
        var id: ChunkID
    }
}

/// The reservations that a batch fills, each read and written once.
private struct Fillings {
    let ledger: StorageLedger
    let transaction: any HandlerTransaction
    private var known: [Upload: Reservation?] = [:]
    private var added: [Upload: UInt64] = [:]

    init(ledger: StorageLedger, transaction: any HandlerTransaction) {
        self.ledger = ledger
        self.transaction = transaction
    }

    /// Nil: the upload has ended.
    mutating func standing(of upload: Upload) throws -> Upload.Standing? {
        let reservation: Reservation?
        if let found = known[upload] {
            reservation = found
        } else {
            let found = try ledger.reservation(upload.id, of: upload.owner, in: transaction)
            reservation = found.flatMap { $0.hasEnded ? nil : $0 }
            known.updateValue(reservation, forKey: upload)
        }
        return reservation.map {
            Upload.Standing(reserved: $0.bytes, filled: $0.filled + added[upload, default: 0])
        }
    }

    mutating func fill(_ upload: Upload, by bytes: UInt64) { added[upload, default: 0] += bytes }

    func save(until expires: Timestamp) throws {
        for (upload, bytes) in added {
            if let reservation = known[upload] ?? nil {
                try ledger.fill(reservation, by: bytes, until: expires, in: transaction)
            }
        }
    }

    var standings: [Upload: Upload.Standing] {
        var standings: [Upload: Upload.Standing] = [:]
        for (upload, reservation) in known {
            guard let reservation else { continue }
            standings[upload] = Upload.Standing(
                reserved: reservation.bytes, filled: reservation.filled + added[upload, default: 0])
        }
        return standings
    }
}
