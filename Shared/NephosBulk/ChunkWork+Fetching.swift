internal import NephosBus
private import NephosChunks
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Reading and opening.
extension ChunkWork {
    /// The answer to a request.
    struct Fetched: Sendable {
        /// The chunk, or why it is not there.
        var frame: Frame
        /// What it takes of the credit.
        var counted: Int
        /// What is to be noted of it: that it could not be read, or that it could although there is a note.
        var finding: ChunkFinding?
    }

    /// Memory for one chunk after the other.
    private final class Memory {
        /// As it lies on disk.
        var sealed: [UInt8] = []
        /// For devices that do not take it as it lies there.
        var opened: [UInt8] = []
        let coder = ChunkCoder()

        static func reserve(_ count: Int, in bytes: inout [UInt8]) {
            if bytes.count < count { bytes = [UInt8](repeating: 0, count: count) }
        }
    }

    /// Reads chunks that were asked for, as long as they fit.
    ///
    /// - Returns: The answers to the first of the requests. Fewer than there are: the next one does not fit.
    func fetch(_ requests: [ChunkRequest], bytesMax: Int) -> [Fetched] {
        var answers: [Fetched] = []
        var rest = bytesMax
        let memory = Memory()
        var isFolderThere = false
        for request in requests {
            var found: Found?
            do {
                guard let answer = try answer(to: request, bytesMax: rest, &found, memory) else { break }
                answers.append(answer)
                rest -= answer.counted
            } catch {
                let refusal = isOfFolder(error, &isFolderThere) ? Self.contentMissing : Self.reply(to: error)
                answers.append(
                    Fetched(
                        frame: BulkFrame.refused(
                            request.ticket.id, number: request.number, chunk: request.chunk, refusal),
                        counted: 0, finding: found?.damaged(by: error)))
            }
        }
        return answers
    }

    /// Whether it failed because the whole folder is not there, or cannot be read, and not this chunk.
    ///
    /// - Parameter isFolderThere: That was found already.
    private func isOfFolder(_ error: any Error, _ isFolderThere: inout Bool) -> Bool {
        switch error {
        case ChunkFailure.missing: break
        case let error as CloudError where error.code == .storageFailure: break
        default: return false
        }
        if presence.isMissing { return true }
        guard !isFolderThere else { return false }
        do {
            try ContentDisk.check(store, snapshots)
            isFolderThere = true
            return false
        } catch { return error is ContentDisk.Gone }
    }

    /// - Parameter found: The chunk as it was looked up, also if it throws.
    /// - Returns: Nil: it does not fit.
    private func answer(
        to request: ChunkRequest, bytesMax: Int, _ found: inout Found?, _ memory: Memory
    ) throws -> Fetched? {
        var gone: SegmentPlace?
        while true {
            found = try find(request)
            guard let found else { throw Self.unknown }
            let chunk = found.chunk
            // It was moved since it was looked up, or its segment is not there.
            guard chunk.place != gone else { throw ChunkFailure.missing(chunk.place) }
            // The numbers of a damaged row may be any.
            guard chunk.isSound else { throw ChunkFailure.damaged(chunk.place) }
            let bytes = chunk.place.length - ChunkSealer.overhead
            guard bytes > 0, bytes <= BulkLimits.chunkBytesMax else { throw ChunkFailure.damaged(chunk.place) }
            let isTaken = [.plain, request.accepts].contains(ChunkSealer.encoding(ofSuite: chunk.form.suite))
            let counted = BulkLimits.counted(isTaken ? bytes : chunk.form.contentLength)
            guard counted <= bytesMax else { return nil }
            do {
                let frame =
                    isTaken
                    ? try frame(chunk, for: request, contentBytes: bytes, memory)
                    : try decodedFrame(chunk, for: request, contentBytes: bytes, memory)
                return Fetched(frame: frame, counted: counted, finding: found.recovered)
            } catch ChunkFailure.moved { gone = chunk.place }
        }
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
    static let contentMissing = CloudError(
        .storageFailure,
        "The server does not find its files of contents. Only its operator can bring them back; then this works again.",
        details: ["reason": "content_missing"])
    private static let unknown = CloudError(.unknownItem, "There is no such chunk.")
    private static let damaged = CloudError(
        .storageFailure, "Some of the content cannot be read any more. Another device may have it.",
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
        if try isUsed(chunk, under: ticket, in: snapshot) { return true }
        // Of what is no account's, uploads are of others, too.
        guard ticket.owner.account != nil else { return false }
        let place = HoldStore.Place(owner: ticket.owner, partition: ticket.partition)
        return try HoldStore.uploads(of: chunk, at: place, in: snapshot).contains { upload in
            try StorageLedger.app(ofReservation: upload, of: ticket.owner, in: snapshot) == ticket.reservingApp
        }
    }

    /// The chunk as it lies on disk, opened where it will be sent from.
    private func frame(
        _ chunk: IndexedChunk, for request: ChunkRequest, contentBytes: Int, _ memory: Memory
    ) throws -> Frame {
        let encoding = ChunkSealer.encoding(ofSuite: chunk.form.suite) ?? .plain
        return try withSealed(chunk, &memory.sealed) { sealed in
            try BulkFrame.chunk(
                request.ticket.id, number: request.number, encoding: encoding, contentBytes: contentBytes
            ) {
                let opened = try request.ticket.sealer.open(sealed, id: request.chunk, into: $0)
                // Else the row says another suite than sealed it, or another length than the chunk has.
                guard opened == encoding,
                    encoding == .plain
                        || (try? ChunkCoder.length(ofEncoded: UnsafeRawBufferPointer($0), encoding))
                            == chunk.form.contentLength
                else { throw ChunkFailure.damaged(chunk.place) }
                return request.chunk
            }
        }
    }

    /// The chunk as it is, for a device that does not take it as it lies on disk.
    private func decodedFrame(
        _ chunk: IndexedChunk, for request: ChunkRequest, contentBytes: Int, _ memory: Memory
    ) throws -> Frame {
        Memory.reserve(contentBytes, in: &memory.opened)
        let coder = memory.coder
        let encoding = try withSealed(chunk, &memory.sealed) { sealed in
            try memory.opened.withUnsafeMutableBytes {
                try request.ticket.sealer.open(
                    sealed, id: request.chunk, into: UnsafeMutableRawBufferPointer(rebasing: $0[..<contentBytes]))
            }
        }
        return try memory.opened.withUnsafeBytes { opened in
            try BulkFrame.chunk(
                request.ticket.id, number: request.number, contentBytes: chunk.form.contentLength
            ) {
                let bytes = UnsafeRawBufferPointer(rebasing: opened[..<contentBytes])
                // It was looked at before it was sealed: it is the row that says something else.
                do { try coder.decode(bytes, encoding, into: $0) } catch { throw ChunkFailure.damaged(chunk.place) }
                return request.chunk
            }
        }
    }

    private func withSealed<Result>(
        _ chunk: IndexedChunk, _ memory: inout [UInt8], _ body: (UnsafeRawBufferPointer) throws -> Result
    ) throws -> Result {
        Memory.reserve(chunk.place.length, in: &memory)
        return try memory.withUnsafeMutableBytes { memory in
            let sealed = UnsafeMutableRawBufferPointer(rebasing: memory[..<chunk.place.length])
            try store.read(chunk.place, of: chunk.id, into: sealed)
            return try body(UnsafeRawBufferPointer(sealed))
        }
    }
}
