internal import Foundation
internal import GRDB
internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

extension DocumentsModel {
    /// Operations keep their order: a folder is made before files go into it, and a name is free before another item
    /// takes it.
    func arrange(_ operations: inout [OutboxOperation], isFull: Bool, in rows: ScopeTransaction) throws {
        let makingRoom = try isFull ? makingRoom(among: operations, in: rows) : []
        for index in operations.indices {
            operations[index].goesAlone = true
            operations[index].makesRoom = makingRoom.contains(operations[index].position)
        }
    }

    func continueTransfers(hasUploads: Bool) {
        // Another process may have asked for a download.
        downloads.look()
        if hasUploads { uploads.beginSoon() }
    }

    func preparations(
        among operations: [OutboxOperation], in rows: ScopeTransaction
    ) throws -> [Int64: Preparation] {
        let documents = DocumentTransaction(rows)
        let unstored = Set(try documents.unstored().map(\.position))
        // They may be behind all that is looked at here.
        var paused = HeldByPause()
        for operation in try documents.pausedRequests() {
            paused.add(try footprints.footprint(of: operation, documents), at: operation.position)
        }
        guard !unstored.isEmpty || !paused.isEmpty else { return [:] }
        var held = HeldBack()
        var behindPaused = HeldBack()
        var preparations: [Int64: Preparation] = [:]
        for operation in operations {
            let footprint = try footprints.footprint(of: operation, documents)
            guard !paused.contains(operation.position) else {
                preparations[operation.position] = .paused
                continue
            }
            if operation.state == .unsent, paused.concerns(footprint) || behindPaused.concerns(footprint) {
                behindPaused.add(footprint, isForContent: false)
                preparations[operation.position] = .behindPaused
                continue
            }
            let isHeld = operation.state == .unsent && unstored.contains(operation.position)
            guard isHeld || held.concerns(footprint) else { continue }
            held.add(footprint, isForContent: isHeld)
            preparations[operation.position] =
                !isHeld
                ? .behind
                : uploads.isRunning(operation.position) ? .sending : uploads.isBusy ? .waiting : .unsent
        }
        return preparations
    }

    func hasten() {
        uploads.hasten()
        downloads.hasten()
    }

    func pack(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> any SwiftProtobuf.Message {
        if let question = try DocumentQuestion(operation.payload) { return question.request }
        var request = try WireApplyChanges(serializedBytes: operation.payload)
        if operation.head.sequence > 0 { request.head = WireChangeToken(operation.head) }
        return request
    }

    func receipt(_ reply: Frame, of operation: OutboxOperation, in rows: ScopeTransaction) throws -> PushReceipt? {
        if let question = try DocumentQuestion(operation.payload) {
            return try receipt(reply, to: question, in: rows)
        }
        let request = try WireApplyChanges(serializedBytes: operation.payload)
        var named = Set(request.changes.compactMap { DocumentID(bytes: $0.item)?.name })
        // What is made is not on its way any more.
        if let device = try DocumentTransaction(rows).device { named.insert(DocumentID.coming(from: device).name) }
        guard let reply = try? reply.decode(WireApplyChangesReply.self), let merged = reply.merged(by: request)
        else { return nil }
        named.formUnion(merged.values.compactMap { DocumentID(bytes: $0)?.name })
        guard reply.items.allSatisfy({ named.contains(ItemName($0.item)) })
        else { return nil }
        let token = ChangeToken(reply.token)
        // Of very many items the bodies are left out: they are pulled.
        let isWhole = reply.items.allSatisfy { !$0.body.isEmpty || $0.deleted }
        let documents = DocumentTransaction(rows)
        let items = (isWhole ? reply.items : []).map { change in
            DocumentTransaction.Synced(
                change, sequence: change.sequence == 0 ? token.sequence : min(change.sequence, token.sequence))
        }
        return PushReceipt(
            token: token, previousSequence: reply.previousSequence, winner: isWhole ? 0 : token.sequence
        ) { isCurrent, state in
            let offered = try self.offered(by: request, in: documents)
            // What is read of them is made anew once they are stored, and not before that besides.
            var left = try documents.takeChanges(at: operation.position)
            var ofDoubts: [WireDocumentChange] = []
            if isCurrent {
                for item in items where item.sequence > state.head.sequence {
                    let mine = try documents.synced(item.name)
                    guard mine.map({ $0.sequence <= item.sequence }) ?? true else { continue }
                    left.remove(item.name)
                    ofDoubts += try self.offerOfDoubt(over: item, documents)
                    try documents.put(item, replacing: mine, &state)
                }
            }
            for item in left { try documents.refresh(item) }
            try documents.redirect(merged, after: operation.position)
            let request = request.merged(merged)
            try self.offer(ofDoubts, in: documents)
            if !isCurrent {
                // The epoch that took it is over; the one that was brought back may lack it.
                try self.offerWhatIsLacking(items, in: documents)
            }
            let byName = Dictionary(items.map { ($0.name, $0) }) { first, _ in first }
            for change in request.changes { try self.rebase(change, on: byName, operation, in: documents) }
            let former = try self.keepCopies(of: request, at: operation.position, in: documents)
            try documents.forgetContents(at: operation.position)
            try self.settleRefusals(after: request, in: documents)
            var settling = SettlingItems()
            for item in items { settling.add(item) }
            try self.settleRefusals(by: settling, in: documents)
            try self.heedPauses(of: request, in: documents)
            try self.finishMoves(after: operation.position, isCurrent: isCurrent, in: documents)
            self.sweepSoon(request, former)
            self.closeUpload(request.transferID, of: self.name)
            return try self.news(ofOthersThan: offered, in: documents)
        }
    }

    /// What is offered again, as it is read here while it waits.
    private func offered(
        by request: WireApplyChanges, in documents: DocumentTransaction
    ) throws -> [DocumentID: WireDocumentItem] {
        try request.changes.filter(\.offered).reduce(into: [:]) { items, change in
            guard let id = DocumentID(bytes: change.item) else { return }
            items[id] = try documents.document(id)?.wire
        }
    }

    /// Somebody may have brought the item back already, and later states of it: the app has to hear of those.
    private func news(
        ofOthersThan offered: [DocumentID: WireDocumentItem], in documents: DocumentTransaction
    ) throws -> ChangeNotification? {
        var changed = ToldNames()
        for (id, was) in offered {
            guard let now = try documents.document(id)?.wire else { continue }
            let isSame =
                now.parent == was.parent && now.name == was.name && now.hasTrash == was.hasTrash
                && now.attributes == was.attributes && now.content.version == was.content.version
            if !isSame { changed.add(id.name) }
        }
        return changed.news()
    }

    /// Bytes that the server had already make no version: what was made from them is made from the one that has them. And
    /// what others had deleted already lies in the trash with theirs: it is removed from there.
    private func rebase(
        _ change: WireDocumentChange, on items: [ItemName: DocumentTransaction.Synced], _ operation: OutboxOperation,
        in documents: DocumentTransaction
    ) throws {
        if case .trash(let trash)? = change.kind {
            return try rebase(trash, of: change, on: items, operation, in: documents)
        }
        guard case .replace(let replace)? = change.kind, let id = DocumentID(bytes: change.item),
            let item = items[id.name]?.item
        else { return }
        let contents = [item.content] + item.conflicts
        guard !contents.contains(where: { $0.version == replace.content.version }),
            let same = contents.first(where: { $0.hasBytes(of: replace.content) })
        else { return }
        try documents.renameVersion(ofLocalFilesOf: id, replace.content.version, to: same.version)
        try documents.revise(id, after: operation.position) { later in
            switch later.kind {
            case .replace(var next) where next.content.base == replace.content.version:
                next.content.base = same.version
                later.kind = .replace(next)
            case .rendition(var next) where next.ofVersion == replace.content.version:
                next.ofVersion = same.version
                later.kind = .rendition(next)
            case .versions(var next) where next.before == replace.content.version:
                next.before = same.version
                later.kind = .versions(next)
            case .trash(var next) where next.base == replace.content.version:
                next.base = same.version
                later.kind = .trash(next)
            default: break
            }
            return true
        }
    }

    private func rebase(
        _ trash: WireTrashItem, of change: WireDocumentChange, on items: [ItemName: DocumentTransaction.Synced],
        _ operation: OutboxOperation, in documents: DocumentTransaction
    ) throws {
        guard let id = DocumentID(bytes: change.item), let item = items[id.name]?.item, item.hasTrash,
            item.trash.batch != trash.batch
        else { return }
        try documents.revise(id, after: operation.position) { later in
            if case .remove(var next) = later.kind, next.batch == trash.batch {
                next.batch = item.trash.batch
                later.kind = .remove(next)
            }
            return true
        }
    }

    private func offerWhatIsLacking(_ items: [DocumentTransaction.Synced], in documents: DocumentTransaction) throws {
        var changes: [WireDocumentChange] = []
        for item in items {
            guard let id = DocumentID(item.name.rawValue), let wire = item.item else { continue }
            let mine = try documents.synced(item.name)
            if mine == nil {
                changes += DocumentChanges.creation(of: wire, named: id)
            } else if let held = mine?.item {
                changes += DocumentChanges.difference(to: wire, from: held, of: id)
            }
        }
        try offer(changes, in: documents)
    }

    /// What the server has now stays here too, as far as there is room: its file gets another row.
    ///
    /// - Returns: Files that nobody needs any more.
    private func keepCopies(
        of request: WireApplyChanges, at position: Int64, in documents: DocumentTransaction
    ) throws -> [DocumentID] {
        let kept = try documents.contents(at: position)
        guard !kept.isEmpty, let folder = try? ContentFolder(home: engine.local.home) else { return [] }
        let bound = try ContentCache.bound(documents.rows.database, folder)
        let bringing = Dictionary(
            request.changes.compactMap { change in
                change.content.flatMap { DocumentID(bytes: $0.version) }.map { ($0, change) }
            }
        ) { first, _ in first }
        var former: [DocumentID] = []
        for content in kept where !content.chunks.isEmpty && content.source == nil {
            guard let change = bringing[content.version],
                let wire = change.content, let item = DocumentID(bytes: change.item),
                try documents.document(item)?.wire.hasBytes(of: wire) == true,
                try wire.length <= bound || documents.isWanted(item)
            else { continue }
            former += try documents.addCopy(
                of: wire, for: item, file: content.version, chunks: content.chunks, now: engine.now)
        }
        return try former + ContentCache.trim(documents.rows.database, folder)
    }

    /// Once it is certain on disk that nobody needs them, removes the files of contents.
    func sweepSoon(_ request: WireApplyChanges, _ others: [DocumentID] = []) {
        let versions = others + request.changes.compactMap { $0.content.flatMap { DocumentID(bytes: $0.version) } }
        engine.loop.schedule(after: .zero) { [weak self] in self?.sweep(versions) }
    }

    func sweep(_ versions: [DocumentID]) { engine.removeContents(versions) }

    /// How a command line names this container, where another would be meant by itself.
    var options: String {
        let containers = engine.session?.containerIDs?[app.rawValue]
        let container = containers?.first == name ? "" : " --container=\(ShellCommand.word(name))"
        return ShellCommand.options(app: app, isDefault: app == engine.session?.defaultApp, home: engine.local.home)
            + container
    }

    // MARK: For people

    /// Of many, the first few.
    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName] {
        let documents = DocumentTransaction(rows)
        let changed =
            try DocumentQuestion(operation.payload)?.request.items
            ?? WireApplyChanges(serializedBytes: operation.payload).changes.flatMap(\.namedItems)
        return try changed.prefix(Self.listedMax).compactMap { item in
            guard let id = DocumentID(bytes: item) else { return nil }
            return try documents.pathText(of: id).map { ItemName($0) } ?? id.name
        }
    }

    private static let listedMax = 5

    /// Contents that lost and are not resolved. Items have them, so the server is not asked.
    func conflicts(
        of name: String?, withHistory: Bool, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void
    ) {
        completion(
            Result { () throws(CloudError) in
                try engine.local.read { database in
                    let documents = DocumentTransaction(ScopeTransaction(database, place(in: engine.session)))
                    guard try documents.rows.state().synced else { throw Self.notDownloaded }
                    let found = try Self.itemsInConflict(documents).flatMap { item in
                        let path = try documents.path(of: item)?.path
                        return item.wire.conflicts.map { self.conflict($0, of: item, at: path) }
                    }
                    let asked = found.filter { name == nil || $0.name == ItemName(name ?? "") }
                    return Array(asked.sorted { $0.won > $1.won }.prefix(limit))
                }
            })
    }

    func conflictCount(in rows: ScopeTransaction) throws -> Int {
        try Self.itemsInConflict(DocumentTransaction(rows)).reduce(0) { $0 + $1.wire.conflicts.count }
    }

    /// Conflicts of a file in the trash are listed again once it is out of there.
    private static func itemsInConflict(_ documents: DocumentTransaction) throws -> [HeldDocument] {
        var found: [HeldDocument] = []
        try documents.eachItem { if !$0.wire.conflicts.isEmpty { found.append($0) } }
        return try found.filter { try documents.entry($0)?.isTrashed != true }
    }

    static let notDownloaded = CloudError(
        .storeOutOfStep, "This device has not downloaded the container yet, so nobody here knows what is in it.")

    private func conflict(_ content: WireDocumentContent, of item: HeldDocument, at path: DocumentPath?)
        -> ScopeConflict
    {
        // What is copied into a shell has to lead there.
        let argument = path.flatMap { $0.isText ? $0.text : nil } ?? item.id.argument
        // A device's clock is past 1970; a file that is dated before it shows when the server took it.
        let written = content.modified > 0 ? content.modified : content.committed
        var conflict = ScopeConflict(
            name: ItemName(path?.text ?? item.id.description), outcome: .lost,
            written: Timestamp(nanoseconds: written) ?? .init(milliseconds: 0),
            device: DeviceID(content.deviceID), winner: DeviceID(item.wire.content.deviceID),
            won: Timestamp(nanoseconds: content.committed) ?? .init(milliseconds: 0))
        let version = DocumentID(bytes: content.version)
        (conflict.lostBytes, conflict.wonBytes) = (content.length, item.wire.content.length)
        conflict.replacementWritten = Timestamp(nanoseconds: item.wire.content.modified)
        conflict.content = .string("\(content.length) bytes")
        conflict.replacement = .content(.string("\(item.wire.content.length) bytes"))
        conflict.recovery = version.map {
            "nephos docs get\(options) --version-id=\($0) " + ShellCommand.arguments([argument])
        }
        conflict.resolutions =
            version.map { version in
                ["--keep=\(version)", "--keep=current", "--keep-both"].map {
                    "nephos docs resolve\(options) \($0) " + ShellCommand.arguments([argument])
                }
            } ?? []
        return conflict
    }
}

extension WireDocumentItem {
    /// Whether the item has this content, as the current one, as one that lost, or as a further one.
    func hasBytes(of content: WireDocumentContent) -> Bool {
        ([self.content] + conflicts).contains { $0.hasBytes(of: content) } || isRendition(content)
    }

    /// Whether a further content of the item has these bytes, and no other of its contents.
    func isRendition(_ content: WireDocumentContent) -> Bool {
        renditions.contains { $0.content.hasBytes(of: content) }
            && !([self.content] + conflicts).contains { $0.hasBytes(of: content) }
    }
}
