internal import NephosChunks
internal import NephosContent
public import NephosCore
public import NephosServiceKit
internal import NephosStorage

/// What one container's contents rest on, within a group's transaction: chunks, and the nodes of their manifests.
///
/// A reference is counted when a node is stored, for each of its children, and when a content is committed, for its root
/// alone. So a commit, a copy or an end of a content changes one count, and what follows from it is done in steps.
public struct ContentUses {
    private let store: UseStore
    private let charges: ContainerCharges
    private let ledger: StorageLedger
    private let transaction: any HandlerTransaction
    private let app: AppID
    private let device: DeviceID
    private let onEnd: () -> Void

    /// - Parameters:
    ///   - siblings: Other containers of the same thing.
    ///   - room: On what the container counts.
    ///   - app: On whose account in the ledger counts what is added; and of which device.
    ///   - onEnd: Called once an upload is over and that is on disk.
    init(
        _ container: ItemName, besides siblings: Set<String> = [], at place: HoldStore.Place, ledger: StorageLedger,
        on room: StorageRoom, app: AppID, device: DeviceID, in transaction: any HandlerTransaction,
        onEnd: @escaping () -> Void = {}
    ) {
        self.onEnd = onEnd
        store = UseStore(
            place: place, container: container.rawValue, siblings: siblings, transaction: transaction)
        charges = ContainerCharges(
            place: store.place, container: store.container, ledger: ledger, room: room, transaction: transaction)
        self.ledger = ledger
        self.transaction = transaction
        self.app = app
        self.device = device
    }

    // MARK: Reading

    /// What a container lacks, by positions in what was asked about.
    public struct Missing: Hashable, Sendable {
        /// What is in the upload neither.
        public var missing: [Int] = []
        /// What the upload has stored.
        public var held: [Int] = []
        /// Of the missing: chunks that contents of the container rest on, and that were found damaged. They need no
        /// room.
        public var damaged: [Int] = []
        /// Bytes that the upload has stored, all together.
        public var storedBytes: UInt64 = 0
        /// Bytes of nodes that were read for it.
        public var nodeBytes = 0
    }

    /// What of these the container lacks. What other containers have counts for nothing: an app learns nothing of them,
    /// and of uploads only what those have stored that it made itself.
    ///
    /// - Parameters:
    ///   - upload: Nil, or one that is not open or another app's: none.
    ///   - source: Another container of the owner, which the app may read: chunks that it uses are not missing. Its
    ///     nodes are: each container has its own.
    public func missing(
        _ ids: [ChunkID], in upload: ReservationID?, besides source: ItemName? = nil
    ) throws -> Missing {
        let upload = try upload.flatMap { try openUpload($0) }
        let source = source.map { store.ofContainer($0.rawValue) }
        var found = Missing(storedBytes: upload?.filled ?? 0)
        let damaged = try DamagedChunks.noted(
            among: ids, of: store.place.owner, in: store.place.partition, in: transaction)
        // One that is named often is looked for once.
        var standings: [ChunkID: Standing] = [:]
        for (index, id) in ids.enumerated() {
            let standing = try standings[id] ?? standing(of: id, damaged, upload, source, &found.nodeBytes)
            standings[id] = standing
            switch standing {
            case .there: break
            case .held: found.held.append(index)
            case .missing: found.missing.append(index)
            case .damaged:
                found.missing.append(index)
                found.damaged.append(index)
            }
        }
        return found
    }

    private enum Standing {
        case there, held, missing, damaged
    }

    /// - Parameters:
    ///   - damaged: Chunks that are noted.
    ///   - source: Another container, whose chunks will do.
    ///   - nodeBytes: Bytes of nodes that were read are added.
    private func standing(
        of id: ChunkID, _ damaged: Set<ChunkID>, _ upload: Reservation?, _ source: UseStore?, _ nodeBytes: inout Int
    ) throws -> Standing {
        if try store.isUsed(id) { return damaged.contains(id) ? .damaged : .there }
        if let source, !damaged.contains(id), try source.isUsed(id) { return .there }
        if let node = try store.nodeBytes(id) {
            nodeBytes += node.count
            // One that is damaged is sent again, and takes its place.
            if Self.isNode(node, id) { return .there }
        }
        guard let upload, !damaged.contains(id), try isStored(id, by: upload) else { return .missing }
        return .held
    }

    private static func isNode(_ bytes: [UInt8], _ id: ChunkID) -> Bool {
        bytes.withUnsafeBytes { ChunkID(hashing: $0) } == id
    }

    private func isStored(_ id: ChunkID, by upload: Reservation) throws -> Bool {
        let place = store.place
        return try HoldStore.has(id, for: upload.id, at: place, in: transaction)
            && ChunkIndex.find(id, of: place.owner, in: place.partition, in: transaction) != nil
    }

    /// - Throws: ``CloudError`` `.unknownItem`: the container has no such node; `.storageFailure`: it is damaged.
    public func node(_ id: ChunkID) throws -> [UInt8] {
        guard let bytes = try store.nodeBytesOfAny(id) else {
            throw CloudError(.unknownItem, "The container has no such manifest node.")
        }
        guard Self.isNode(bytes, id) else {
            throw CloudError(
                .storageFailure,
                "The list of the content's chunks cannot be read any more. Put the file again: that brings it back.",
                details: ["reason": "damaged"])
        }
        return bytes
    }

    // MARK: Taking

    /// Begins to use contents. Decides before it writes.
    ///
    /// - Parameters:
    ///   - nodes: Manifest nodes that the container may lack, children first. One that neither another nor a content
    ///     names belongs to the upload until then.
    ///   - upload: What has stored the chunks that the container did not use; what was charged to its room is from now
    ///     on charged to them.
    ///   - source: Another container of the owner, which the app may read: what contents rest on may be chunks that it
    ///     uses. They count there, for as long as they are used there; if that is on something else, they count here too.
    ///   - changes: What is counted of the container besides, in the same go.
    /// - Throws: ``CloudError`` `.invalidArguments`: a node is malformed, or neither named nor of an upload; `.unknownItem`: a chunk or a node
    ///   that is named is not there, or is not as long as was said; `.quotaExceeded`. Nothing was changed then.
    public func take(
        _ contents: [UsedContent], nodes: [[UInt8]], from upload: ReservationID?, besides source: ItemName? = nil,
        counting changes: CountChanges = CountChanges()
    ) throws {
        let inline = contents.reduce(0) { $0 + $1.bytesBesideChunks }
        guard !nodes.isEmpty || contents.contains(where: { !$0.isInline }) else {
            return try charges.charge(inline, and: changes, app: app, device: device)
        }
        var taking = try Taking(
            nodes, store, source: source.map { store.ofContainer($0.rawValue) }, room: charges.room,
            upload: upload.flatMap { try openUpload($0) })
        for content in contents where !content.isInline { try taking.add(content) }
        try taking.checkNodes(upload)
        let borrowed = taking.borrowed.values.reduce(0, +)
        try charges.charge(inline + taking.countedOfNew + borrowed, and: changes, app: app, device: device)
        try write(taking)
    }

    /// Looks whether contents could be taken, without their room.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`, as ``take(_:nodes:from:besides:counting:)`` does.
    public func check(_ contents: [UsedContent], from upload: ReservationID?) throws {
        var taking = try Taking(
            [], store, source: nil, room: charges.room, upload: upload.flatMap { try openUpload($0) })
        for content in contents where !content.isInline { try taking.add(content) }
    }

    /// Has contents that are used already used once more.
    public func keep(_ contents: [UsedContent]) throws {
        for content in contents where !content.isInline {
            let part = UseStore.Part(id: content.root, isNode: content.depth > 0)
            guard var use = try store.use(of: part) else { continue }
            use.count += 1
            try store.set(use, of: part)
        }
    }

    /// Nil: it has ended, or is another app's. Of a repeat all may be in use already, and nothing of the upload is needed.
    private func openUpload(_ id: ReservationID) throws -> Reservation? {
        guard let reservation = try ledger.reservation(id, of: store.place.owner, in: transaction),
            !reservation.hasEnded, reservation.app == app
        else { return nil }
        // What is in it would count on the other from then on, where there may be no room for it.
        guard reservation.room.name == charges.room.name else { throw CloudError.otherRoom }
        return reservation
    }

    private func write(_ taking: Taking) throws {
        for node in taking.newNodes {
            try store.add(node.bytes, as: node.id, level: node.level, length: node.length)
        }
        for node in taking.healed {
            try store.heal(node.bytes, as: node.id, level: node.level, length: node.length)
        }
        for id in taking.unnamed {
            guard let upload = taking.upload else { continue }
            try HoldStore.add(node: id, to: store.container, for: upload.id, at: store.place, in: transaction)
            let counted = taking.counted(ofNew: id)
            guard counted > 0 else { continue }
            try store.set(
                UseStore.Use(count: 0, counted: counted, app: app, device: device, room: charges.room),
                of: UseStore.Part(id: id, isNode: true))
        }
        var moved: UInt64 = 0
        for (part, count) in taking.uses {
            var use =
                try store.use(of: part)
                ?? UseStore.Use(count: 0, counted: 0, app: app, device: device, room: charges.room)
            if use.count == 0, use.counted == 0 {
                (use.app, use.device) = (app, device)
                if part.isNode {
                    use.counted = taking.counted(ofNew: part.id)
                } else if let bytes = taking.borrowed[part.id] {
                    use.counted = bytes
                } else if let upload = taking.upload, try store.other(using: part, on: charges.room) == nil {
                    use.counted = try HoldStore.take(part.id, from: upload.id, at: store.place, in: transaction)
                    moved += use.counted
                }
            }
            use.count += count
            try store.set(use, of: part)
        }
        guard let upload = taking.upload else { return }
        try charges.keep(moved, of: upload, app: app, device: device)
        // One of which all was taken is over. Its device may have no time to say so.
        guard moved == upload.filled, taking.unnamed.isEmpty,
            let left = try ledger.reservation(upload.id, of: upload.owner, in: transaction), left.filled == 0,
            try isInUse(all: upload)
        else { return }
        try ledger.end(left, in: transaction)
        transaction.afterCommit(onEnd)
    }

    /// Whether contents rest on all that the upload holds. Of much it is not looked.
    private func isInUse(all upload: Reservation) throws -> Bool {
        let limit = 64
        let nodes = try HoldStore.nodes(of: upload.id, at: store.place, limit: limit + 1, in: transaction)
        guard let nodes, nodes.count <= limit else { return false }
        return try nodes.allSatisfy {
            try store.ofContainer($0.container).use(of: UseStore.Part(id: $0.id, isNode: true))?.count ?? 0 > 0
        }
    }

    // MARK: Giving back

    /// Ends the use of contents. What rests on them follows in steps.
    public func giveBack(_ contents: [UsedContent]) throws {
        for content in contents {
            try release(content.bytesBesideChunks, app: content.app, device: content.device)
            if !content.isInline { try giveBack(UseStore.Part(id: content.root, isNode: content.depth > 0)) }
        }
    }

    /// Gives back what counted besides contents.
    public func release(_ bytes: UInt64, app: AppID, device: DeviceID) throws {
        try charges.release(bytes, app: app, device: device)
    }

    private func giveBack(_ part: UseStore.Part) throws {
        guard var use = try store.use(of: part) else { return }
        use.count = max(0, use.count - 1)
        try store.set(use, of: part)
        if use.count == 0 { try store.addEnding(of: part) }
    }

    /// Carries out the end of a chunk or a node that nothing uses any more.
    ///
    /// - Returns: How many uses that has ended, itself among them.
    func end(_ part: UseStore.Part) throws -> Int {
        try store.endEnding(of: part)
        // It may be in use again, or of an upload again, whose end ends it.
        guard let use = try store.use(of: part), use.count == 0,
            try !part.isNode
                || !HoldStore.isHeld(node: part.id, in: store.container, at: store.place, in: transaction)
        else { return 1 }
        try store.set(nil, of: part)
        guard part.isNode else {
            try endChunk(part, use)
            return 1
        }
        try counted(by: use).release(use.counted, app: use.app, device: use.device)
        // A damaged one keeps what it names.
        let node = try store.nodeBytes(part.id).flatMap { try? ManifestNode(of: $0) }
        for child in node?.children ?? [] {
            try giveBack(UseStore.Part(id: child.id, isNode: node.map { $0.level > 0 } ?? false))
        }
        try store.removeNode(part.id)
        return 1 + (node?.children.count ?? 0)
    }

    private func endChunk(_ part: UseStore.Part, _ use: UseStore.Use) throws {
        if let other = try store.other(using: part, on: use.room) {
            // It stays, and counts there from now on.
            guard use.counted > 0, var heir = try other.use(of: part) else { return }
            heir.counted = use.counted
            try other.set(heir, of: part)
            return try counted(by: use).move(
                use.counted, from: (use.app, use.device), to: (heir.app, heir.device), in: other.container)
        }
        try counted(by: use).release(use.counted, app: use.app, device: use.device)
        let place = store.place
        guard try UseStore.containers(using: part, at: place, in: transaction).isEmpty,
            try !HoldStore.isHeld(part.id, at: place, in: transaction)
        else { return }
        try ChunkIndex.remove([part.id], of: place.owner, in: place.partition, in: transaction)
    }

    /// It says itself on what it counts.
    private func counted(by use: UseStore.Use) -> ContainerCharges {
        ContainerCharges(
            place: store.place, container: store.container, ledger: ledger, room: use.room, transaction: transaction)
    }
}

extension UsedContent {
    fileprivate var bytesBesideChunks: UInt64 { rowBytes + (isInline ? length : 0) }
}
