internal import NephosChunks
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// What is to be used from now on, while it is decided.
struct Taking {
    struct Node {
        var id: ChunkID
        var bytes: [UInt8]
        var level: Int
        var length: UInt64
    }

    let upload: Reservation?
    /// How many uses of each chunk and node come.
    private(set) var uses: [UseStore.Part: Int64] = [:]
    private(set) var newNodes: [Node] = []
    /// Those that are there, and damaged: what rests on them is counted.
    private(set) var healed: [Node] = []
    private var known: [ChunkID: (level: Int, length: UInt64)] = [:]
    /// What those count that are new: their bytes, and their rows.
    private var sizes: [ChunkID: UInt64] = [:]
    /// Those that were there already.
    private var present: [ChunkID] = []
    private let store: UseStore
    /// Of another container, whose chunks count as there.
    private let source: UseStore?
    /// On what the container counts.
    private let room: StorageRoom
    /// Chunks of the other container that nothing counts here yet, since that one counts on something else; and what
    /// they count.
    private(set) var borrowed: [ChunkID: UInt64] = [:]

    init(
        _ nodes: [[UInt8]], _ store: UseStore, source: UseStore?, room: StorageRoom, upload: Reservation?
    ) throws {
        self.store = store
        self.source = source
        self.room = room
        self.upload = upload
        for bytes in nodes {
            let id = bytes.withUnsafeBytes { ChunkID(hashing: $0) }
            guard known[id] == nil else { continue }
            guard try store.node(id) == nil else {
                present.append(id)
                guard try store.nodeBytes(id) != bytes else { continue }
                let node = try ManifestNode(of: bytes)
                known[id] = (Int(node.level), node.length)
                healed.append(Node(id: id, bytes: bytes, level: Int(node.level), length: node.length))
                continue
            }
            let node = try ManifestNode(of: bytes)
            for child in node.children {
                if node.level == 0 {
                    try requireChunk(child.id, length: child.length)
                } else {
                    try requireNode(child.id, level: Int(node.level) - 1, length: child.length)
                }
                uses[UseStore.Part(id: child.id, isNode: node.level > 0), default: 0] += 1
            }
            known[id] = (Int(node.level), node.length)
            sizes[id] = UInt64(bytes.count + DocumentLimits.rowBytes)
            newNodes.append(Node(id: id, bytes: bytes, level: Int(node.level), length: node.length))
        }
    }

    mutating func add(_ content: UsedContent) throws {
        if content.depth == 0 {
            try requireChunk(content.root, length: content.length)
        } else {
            try requireNode(content.root, level: content.depth - 1, length: content.length)
            // Who reads refuses a tree whose top has one child.
            let sent = newNodes.last { $0.id == content.root } ?? healed.last { $0.id == content.root }
            let bytes = try sent?.bytes ?? store.nodeBytes(content.root) ?? []
            guard try ManifestNode(of: bytes).children.count > 1 else {
                throw CloudError(
                    .invalidArguments, "The top node of a manifest has two children at least.",
                    details: ["argument": "nodes"])
            }
        }
        uses[UseStore.Part(id: content.root, isNode: content.depth > 0), default: 0] += 1
    }

    /// What it counts. 0: it was there.
    func counted(ofNew node: ChunkID) -> UInt64 { sizes[node] ?? 0 }

    /// What all that are new count.
    var countedOfNew: UInt64 { sizes.values.reduce(0, +) }

    /// Nodes that are ahead of what names them.
    var unnamed: [ChunkID] {
        (newNodes.map(\.id) + present).filter { uses[UseStore.Part(id: $0, isNode: true)] == nil }
    }

    /// A node that nothing names would lie there for ever.
    ///
    /// - Parameter id: Of the upload that was named.
    func checkNodes(_ id: ReservationID?) throws {
        let named = Set(uses.keys.filter(\.isNode).map(\.id))
        guard upload != nil || newNodes.allSatisfy({ named.contains($0.id) }) else {
            guard id == nil else { throw CloudError.uploadHasEnded }
            throw CloudError(
                .invalidArguments,
                "A manifest node is named by no content of the batch, by no other node, and goes with no upload.",
                details: ["argument": "nodes"])
        }
    }

    private func requireNode(_ id: ChunkID, level: Int, length: UInt64) throws {
        guard let node = try known[id] ?? store.node(id), node.level == level, node.length == length else {
            throw CloudError(
                .unknownItem, "A manifest node that the content rests on is missing, or is another than was said.",
                details: ["chunk": id.hex])
        }
    }

    /// It has to be used by the container or by the one that was named besides, or stored by the upload: what is
    /// elsewhere in the account is sent again, and so is what was found damaged.
    private mutating func requireChunk(_ id: ChunkID, length: UInt64) throws {
        let place = store.place
        let isHeld = try upload.map { try HoldStore.has(id, for: $0.id, at: place, in: store.transaction) } ?? false
        let isThere = try isHeld || store.isUsed(id) || source?.isUsed(id) ?? false
        guard isThere, try !DamagedChunks.isNoted(id, of: place.owner, in: place.partition, in: store.transaction),
            let chunk = try ChunkIndex.find(id, of: place.owner, in: place.partition, in: store.transaction),
            UInt64(clamping: chunk.form.contentLength) == length
        else {
            throw CloudError(
                .unknownItem, "A chunk that the content rests on was not stored, or is not as long as was said.",
                details: ["chunk": id.hex])
        }
        let part = UseStore.Part(id: id)
        // One that was used here, and whose end is not carried out yet, counts still.
        guard source != nil, !isHeld, try (store.use(of: part)?.count ?? 0) == 0,
            try (store.use(of: part)?.counted ?? 0) == 0, try store.other(using: part, on: room) == nil
        else { return }
        borrowed[id] = UInt64(BulkLimits.counted(Int(clamping: length)))
    }
}

extension ManifestNode {
    init(of bytes: [UInt8]) throws { self = try bytes.withUnsafeBytes { try ManifestNode(decoding: $0) } }
}
