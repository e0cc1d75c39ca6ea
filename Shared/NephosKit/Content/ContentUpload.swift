import Foundation
import NephosBus
import NephosChunks
import NephosCore
import NephosWire

/// How far the contents of a container are that are sent.
struct UploadProgress: Sendable {
    var bytesDone = 0
    var bytesTotal = 0
    /// The next chunk waits because of the rate.
    var isPaced = false
    /// Why nothing moves; nil: it does, or there is nothing to move.
    var waiting: CloudError?
}

/// One request's contents on their way.
final class ContentUpload {
    var operation: OutboxOperation
    let account: AccountID?
    let isShort: Bool
    /// Its contents are offered again; no request waits for them.
    let isOffer: Bool
    var request: ContentRequest
    /// Names it among the account's uploads. The same each time, also in another process.
    var transfer: Data
    /// Whether the service may know of it, and what it is for may rest on it.
    var isOpen = false { didSet { wasBegun = wasBegun || isOpen } }
    /// Whether the service may know of it, of use or not.
    private(set) var wasBegun = false
    /// Where each chunk is, by its id.
    var places: [ChunkID: Place] = [:]
    /// Contents of another container of which it is not known yet what they consist of; and chunks of those that are
    /// known, which are not here, by whose they are.
    var unread: [WaitingContent] = []
    var borrowed: [ChunkID: DocumentID] = [:]
    /// The containers that are to have something and may lack it still. They have their turns one after the other: what
    /// the first one takes from the upload is not there for the next any more.
    var containers: [String] = []
    /// Whether one of them had its turn, and has what it is to have: what others refer to is in this upload.
    var hasServed = false
    /// What was not asked about yet, by container.
    var unasked: [String: [ChunkID]] = [:]
    /// Manifest nodes, children first, by container; and which of them it lacks.
    var nodes: [String: [Data]] = [:]
    var missingNodes: Set<ChunkID> = []
    /// Chunks that the container whose turn it is lacks.
    var missing: Set<ChunkID> = []
    /// Of the missing: they take the place of what the service cannot read any more, and need no room.
    var damaged: Set<ChunkID> = []
    /// Bytes that the upload holds, and whether it is of any use that it does.
    var storedBytes: UInt64 = 0
    var holdsSome = false
    var left: [ChunkID] = []
    /// Chunks that the service found to be others than their hashes say, though they are not, and how often.
    var mistaken: [ChunkID: Int] = [:]
    var storing = 0
    var client: BulkClient?
    /// Set while the next chunk has to wait: because of the rate, or until others have had the loop.
    var pacing: (any LoopTimer)?
    /// What is read and compressed beside the loop, in bytes of each batch.
    private(set) var batches: [Int: Int] = [:]
    private var batchCount = 0
    var preparedBytes: Int { batches.values.reduce(0, +) }
    var progress = UploadProgress()
    /// What the home was told last of how far it is, and when.
    var noted = (percent: 0, at: Duration.zero)
    /// When it was looked last whether others know that it is on its way.
    var announced: Duration = .zero
    /// When its row was written last.
    var told: Duration = .zero
    /// The service was in the way; it is gone on with after the pause.
    var isIdle = false

    init(
        _ operation: OutboxOperation, _ account: AccountID?, _ request: ContentRequest, isShort: Bool,
        isOffer: Bool = false
    ) {
        self.operation = operation
        self.account = account
        self.request = request
        (self.isShort, self.isOffer) = (isShort, isOffer)
        transfer = request.transfer(of: operation)
    }

    /// A chunk within a content of the home.
    struct Place: Sendable {
        var version: DocumentID
        var offset: Int
        var length: Int
    }

    /// A chunk that is about to go.
    struct Outgoing: Sendable {
        var chunk: ChunkID
        var place: Place
        /// As it is called among those of its connection.
        var number: UInt64
        /// Whether it goes as it is: compressed, it did not come as it was sent.
        var isPlain = false
    }

    /// - Returns: What the batch is called.
    func begin(_ batch: [Outgoing]) -> Int {
        batchCount += 1
        batches[batchCount] = batch.reduce(0) { $0 + BulkLimits.counted($1.place.length) }
        return batchCount
    }

    /// - Returns: False: it was given up meanwhile.
    func end(_ batch: Int) -> Bool { batches.removeValue(forKey: batch) != nil }

    func forgetBatches() { batches = [:] }

    /// The container whose turn it is: the service opens an upload, and goes on with it, for what may be stored there.
    var turn: String { containers.first ?? request.container }

    /// Notes where the chunks of a content are that is here.
    func place(_ chunks: [CutChunk], of version: DocumentID) {
        var offset = 0
        for chunk in chunks {
            places[chunk.id] = Place(version: version, offset: offset, length: chunk.length)
            offset += chunk.length
        }
    }

    /// Has the container asked about a node.
    func add(_ nodes: [Data], to container: String) {
        var known = Set(self.nodes[container, default: []].map(Self.id))
        for node in nodes where known.insert(Self.id(node)).inserted {
            self.nodes[container, default: []].append(node)
            unasked[container, default: []].append(Self.id(node))
        }
    }

    static func id(_ node: Data) -> ChunkID { node.withUnsafeBytes { ChunkID(hashing: $0) } }

    /// Takes in what a content consists of whose chunks another container has.
    func borrow(_ chunks: [CutChunk], of content: WaitingContent) {
        for chunk in chunks
        where borrowed.updateValue(content.version, forKey: chunk.id) == nil && places[chunk.id] == nil {
            unasked[content.container, default: []].append(chunk.id)
        }
    }

    /// A content whose bytes are not here as they were put.
    struct Unreadable: Error {
        var version: DocumentID
        var error: CloudError
        /// Whether something of it is here still, which may be of use to somebody.
        var isHere = false

        static func lost(_ version: DocumentID) -> Unreadable {
            Unreadable(
                version: version,
                error: CloudError(
                    .unknownItem,
                    "The content that was to be sent is not in this device's home any more. Put it again."))
        }

        /// - Parameter error: What the service says of it; nil: that some of its chunks are nowhere.
        static func gone(_ version: DocumentID, from container: String, _ error: CloudError? = nil) -> Unreadable {
            if error?.code == .missingEntitlement {
                return Unreadable(
                    version: version,
                    error: CloudError(
                        .missingEntitlement, "The app does not list the container any more that this was copied from.",
                        details: ["source": container]))
            }
            if let error, error.code != .unknownItem { return Unreadable(version: version, error: error) }
            return Unreadable(
                version: version,
                error: CloudError(
                    .unknownItem,
                    "The container that this was copied from does not have the content any more. Copy it from elsewhere.",
                    details: ["source": container]))
        }

        static func changed(_ version: DocumentID) -> Unreadable {
            Unreadable(
                version: version,
                error: CloudError(
                    .constraintViolation,
                    "The content that was to be sent was changed in this device's home. Put it again."),
                isHere: true)
        }
    }

    /// Chunks that are ready to be sent, in their order, up to one that is not; and why that is not.
    struct Made: Sendable {
        var chunks: [BulkClient.MadeChunk] = []
        var failure: (any Error)?
    }

    /// Reads chunks, and compresses them if that saves enough. On any thread.
    ///
    /// - Parameter isChecked: Each is compared with its hash.
    static func make(
        _ batch: [Outgoing], under ticket: BulkTicket, in folder: ContentFolder, isChecked: Bool
    ) -> Made {
        let coder = ChunkCoder()
        var made = Made()
        var file: (version: DocumentID, handle: FileHandle)?
        do {
            for outgoing in batch {
                let place = outgoing.place
                if file?.version != place.version { file = (place.version, try openFile(place.version, in: folder)) }
                guard let descriptor = file?.handle.fileDescriptor else { throw Unreadable.lost(place.version) }
                made.chunks.append(
                    try BulkClient.make(
                        outgoing.number, under: ticket, bytes: place.length, by: outgoing.isPlain ? nil : coder
                    ) { room in
                        try read(place, of: descriptor, named: folder.file(place.version), into: room)
                        if isChecked { try check(room, of: outgoing) }
                        return outgoing.chunk
                    })
            }
        } catch { made.failure = error }
        return made
    }

    /// Reads a chunk once more, and compares it with its hash.
    ///
    /// - Throws: ``Unreadable``: it is not here as it was put; ``CloudError``: the home cannot be read.
    static func check(_ outgoing: Outgoing, in folder: ContentFolder) throws {
        let place = outgoing.place
        let file = try openFile(place.version, in: folder)
        let room = UnsafeMutableRawBufferPointer.allocate(byteCount: max(1, place.length), alignment: 16)
        defer { room.deallocate() }
        let bytes = UnsafeMutableRawBufferPointer(rebasing: room[..<place.length])
        try read(place, of: file.fileDescriptor, named: folder.file(place.version), into: bytes)
        try check(bytes, of: outgoing)
    }

    private static func check(_ bytes: UnsafeMutableRawBufferPointer, of outgoing: Outgoing) throws {
        guard ChunkID(hashing: UnsafeRawBufferPointer(bytes)) == outgoing.chunk else {
            throw Unreadable.changed(outgoing.place.version)
        }
    }

    private static func openFile(_ version: DocumentID, in folder: ContentFolder) throws -> FileHandle {
        let name = folder.file(version)
        let descriptor = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            let number = errno
            let failure = folder.unreadable(version)
            // Where the folder is not there, it may be elsewhere for now, with all that is in it.
            guard number != ENOENT || !folder.isThere else { throw Unreadable.lost(version) }
            throw failure
        }
        return FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
    }

    /// - Throws: ``Unreadable``: it is not here as it was put; ``CloudError``: the home cannot be read.
    private static func read(
        _ place: Place, of descriptor: Int32, named name: String, into room: UnsafeMutableRawBufferPointer
    ) throws {
        var filled = 0
        while filled < place.length {
            let count = pread(
                descriptor, room.baseAddress.map { $0 + filled }, place.length - filled, off_t(place.offset + filled))
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw ContentFolder.unreadable(name) }
            guard count > 0 else { throw Unreadable.lost(place.version) }
            filled += count
        }
    }
}
