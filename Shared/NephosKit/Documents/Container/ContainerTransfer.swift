internal import Foundation
internal import NephosCore
internal import NephosWire

/// Copies and moves items from one container to another of the same session, whose app lists both.
struct ContainerTransfer {
    let source: ContainerHandle
    let target: ContainerHandle

    /// See ``UbiquityContainer/copy(_:to:in:replaces:)``.
    func copy(
        _ path: some DocumentAddressing, to place: some DocumentAddressing, replaces: Bool
    ) async throws(CloudError) -> DocumentCopy {
        try await carry(path, to: place, replaces: replaces) { _, _, _, copy in copy }
    }

    /// See ``UbiquityContainer/move(_:to:in:replaces:)``.
    func move(
        _ path: some DocumentAddressing, to place: some DocumentAddressing, replaces: Bool
    ) async throws(CloudError) -> DocumentCopy {
        let engine = source.session.engine
        let copy = try await carry(path, to: place, replaces: replaces) { item, rows, waiting, copy in
            let (operation, now, writer) = engine.stamp
            guard try rows.waiting(in: item.id).count <= DocumentLimits.seenMax else {
                throw CloudError(
                    .limitExceeded, "Too much of the folder waits to be sent. Wait until it is, and move it then.",
                    details: ["maximum": "\(DocumentLimits.seenMax)"])
            }
            var leaving = try rows.trashing(item, batch: engine.makeDocumentID())
            leaving.trash.movedTo = self.target.id
            let move = DocumentTransaction.Move(source: source.id, item: item, change: leaving)
            if let waiting {
                try rows.other(self.target.id).add(move, waitingFor: waiting)
            } else {
                try rows.leave(move, id: operation, writer: writer, now: now)
            }
            return copy
        }
        source.scope.execute { $0.push() }
        return copy
    }

    /// - Parameter then: Gets the item, this container, and where what the copy needs waits; nil: the server has it.
    private func carry(
        _ path: some DocumentAddressing, to place: some DocumentAddressing, replaces: Bool,
        then: (HeldDocument, DocumentTransaction, ClosedRange<Int64>?, DocumentCopy) throws -> DocumentCopy
    ) async throws(CloudError) -> DocumentCopy {
        guard source.session === target.session else {
            throw CloudError(.invalidArguments, "Both containers have to be of one session.")
        }
        guard let listed = try source.session.account?.containers(of: target.app),
            listed.contains(where: { $0.hasSameBytes(as: source.id) })
        else {
            throw CloudError(
                .missingEntitlement, "The app lists no such container.",
                details: ["app": target.app.rawValue, "container": source.id])
        }
        let folder = try source.contentFolder()
        let claim = try folder.claim()
        defer { withExtendedLifetime(claim) {} }
        let lender = ContentLender(folder, listed: listed, makeID: source.makeID)
        do throws(CloudError) {
            try await source.requireDownload()
            return try await target.change { draft in
                lender.drop()
                let here = try source.documents(draft.documents.rows.database)
                let item = try here.item(at: here.path(path))
                let copy = try draft.copy(
                    item, from: here, to: draft.documents.path(place), replaces: replaces
                ) { try lender.lend($0, of: here) }
                if !lender.linked.isEmpty { try folder.flushNames() }
                let steps = try draft.requests(container: "").count
                return (item: item, copy: copy, count: draft.itemCount, steps: steps)
            } waiting: { documents, made, positions in
                let copy = DocumentCopy(
                    item: try documents.requireEntry(made.copy), itemCount: max(1, made.count),
                    stepCount: max(1, made.steps))
                return try then(
                    made.item, source.documents(documents.rows.database),
                    positions ?? documents.waitingPositions(of: made.copy), copy)
            }
        } catch {
            lender.drop()
            throw error
        }
    }
}

/// What one container has of contents, for another to have too.
private final class ContentLender {
    private let folder: ContentFolder
    private let listed: [String]
    private let makeID: () -> DocumentID
    /// Contents whose bytes are here under a name of their own.
    private(set) var linked: [StagedContent] = []

    /// - Parameter listed: Containers of the app that copies.
    init(_ folder: ContentFolder, listed: [String], makeID: @escaping () -> DocumentID) {
        self.folder = folder
        self.listed = listed
        self.makeID = makeID
    }

    /// Nobody needs them.
    func drop() {
        for content in linked { folder.remove(content.version) }
        linked = []
    }

    /// - Returns: Nil: the content goes with its item.
    func lend(_ content: WireDocumentContent, of source: DocumentTransaction) throws -> StagedContent? {
        guard !content.isInline else { return nil }
        guard let root = ChunkID(bytes: [UInt8](content.root)) else { throw ContentReading.damaged }
        var staged = StagedContent(
            version: makeID(), length: content.length, root: root, depth: content.depth, modified: content.modified)
        staged.source = source.container
        if let held = try source.heldVersion(of: content) {
            // The server may have nothing of it yet.
            staged.chunks = try source.chunks(of: held)
            try folder.duplicate(held, as: staged.version)
            linked.append(staged)
        } else {
            staged.isHere = false
            if let waiting = try source.borrowed(content), let first = waiting.source {
                guard listed.contains(first.container) else {
                    throw CloudError(
                        .constraintViolation,
                        "The content is on its way here from a container that the app does not list. Wait until it is sent.",
                        details: ["container": first.container])
                }
                staged.source = first.container
                staged.chunks = waiting.chunks
            } else {
                staged.chunks = try source.copies.copy(of: content)?.chunks ?? []
            }
            if content.depth == 0 { staged.chunks = [CutChunk(id: root, length: Int(clamping: content.length))] }
        }
        staged.nodes = staged.chunks.isEmpty ? [] : try CutChunk.nodes(of: staged.chunks)
        return staged
    }
}

extension StagedContent {
    /// Where it is taken from; nil: it is here.
    var borrowedFrom: ContentSource? {
        guard !isHere, let source, let root else { return nil }
        return ContentSource(container: source, root: root, depth: depth)
    }
}
