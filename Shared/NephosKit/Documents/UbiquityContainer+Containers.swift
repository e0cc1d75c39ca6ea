internal import Foundation
public import NephosCore
internal import NephosWire

/// From one container to another that the app lists too.
extension UbiquityContainer {
    /// Copies an item into another container, a folder with all that is in it, as
    /// ``copy(_:to:replaces:)`` does within one. What the server has of the contents is not sent; what waits on this
    /// device is.
    ///
    /// On this device all of it is there at once, or nothing. Something whose content is gone from this container by the
    /// time it is sent is refused, and listed as such.
    ///
    /// - Parameters:
    ///   - target: Where in the other container the copy is to be. A folder that is there takes it in, under its name.
    ///   - other: Opened by the same session, by an app that lists this container too.
    ///   - replaces: Whether a file that is there gets the content as a new version; else it is in the way.
    /// - Throws: ``CloudError`` `.missingEntitlement` when the other's app does not list this container;
    ///   `.constraintViolation` when a content is on its way here from a third container that it does not list (wait until
    ///   it is sent); else as
    ///   ``copy(_:to:replaces:)`` does.
    @discardableResult
    public func copy(
        _ source: some DocumentAddressing, to target: some DocumentAddressing, in other: UbiquityContainer,
        replaces: Bool = false
    ) async throws(CloudError) -> DocumentCopy {
        guard other.id != id else { return try await copy(source, to: target, replaces: replaces) }
        return try await carry(source, to: target, in: other, replaces: replaces) { _, _, _, copy in copy }
    }

    /// Moves an item into another container: copies it as ``copy(_:to:in:replaces:)`` does, and once the server has all
    /// of the copy, moves it to this container's trash.
    ///
    /// Until then the item is in both (``ContainerStatus/leaving``). It stays here where something of it could not be
    /// copied, or was changed meanwhile by whichever device; that is among what was refused then. It goes on by itself
    /// after whatever cuts it off.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded` when more than 1000 items of a folder wait to be sent; else as
    ///   ``copy(_:to:in:replaces:)`` does.
    @discardableResult
    public func move(
        _ source: some DocumentAddressing, to target: some DocumentAddressing, in other: UbiquityContainer,
        replaces: Bool = false
    ) async throws(CloudError) -> DocumentCopy {
        guard other.id != id else {
            return DocumentCopy(
                item: try await move(source, to: target, replaces: replaces), itemCount: 1, stepCount: 1)
        }
        let engine = session.engine
        let copy = try await carry(source, to: target, in: other, replaces: replaces) { item, source, waiting, copy in
            let (operation, now, writer) = engine.stamp
            guard try source.waiting(in: item.id).count <= DocumentLimits.seenMax else {
                throw CloudError(
                    .limitExceeded, "Too much of the folder waits to be sent. Wait until it is, and move it then.",
                    details: ["maximum": "\(DocumentLimits.seenMax)"])
            }
            var leaving = try source.trashing(item, batch: engine.makeDocumentID())
            leaving.trash.movedTo = other.id
            let move = DocumentTransaction.Move(source: id, item: item, change: leaving)
            if let waiting {
                try source.other(other.id).add(move, waitingFor: waiting)
            } else {
                try source.leave(move, id: operation, writer: writer, now: now)
            }
            return copy
        }
        scope.execute { $0.push() }
        return copy
    }

    /// - Parameter then: Gets the item, this container, and where what the copy needs waits; nil: the server has it.
    private func carry(
        _ source: some DocumentAddressing, to target: some DocumentAddressing, in other: UbiquityContainer,
        replaces: Bool,
        then: (HeldDocument, DocumentTransaction, ClosedRange<Int64>?, DocumentCopy) throws -> DocumentCopy
    ) async throws(CloudError) -> DocumentCopy {
        guard session === other.session else {
            throw CloudError(.invalidArguments, "Both containers have to be of one session.")
        }
        guard let listed = try session.account?.containers(of: other.app),
            listed.contains(where: { $0.hasSameBytes(as: id) })
        else {
            throw CloudError(
                .missingEntitlement, "The app lists no such container.",
                details: ["app": other.app.rawValue, "container": id])
        }
        let folder = try ContentFolder(home: session.local.home)
        let claim = try folder.claim()
        defer { withExtendedLifetime(claim) {} }
        let lender = ContentLender(folder, listed: listed, makeID: session.engine.makeDocumentID)
        do throws(CloudError) {
            try await requireDownload()
            return try await other.change { draft in
                lender.drop()
                let here = try documents(draft.documents.rows.database)
                let item = try here.item(at: here.path(source))
                let copy = try draft.copy(
                    item, from: here, to: draft.documents.path(target), replaces: replaces
                ) { try lender.lend($0, of: here) }
                if !lender.linked.isEmpty { try folder.flushNames() }
                let steps = try draft.requests(container: "").count
                return (item: item, copy: copy, count: draft.itemCount, steps: steps)
            } waiting: { documents, made, positions in
                let copy = DocumentCopy(
                    item: try documents.requireEntry(made.copy), itemCount: max(1, made.count),
                    stepCount: max(1, made.steps))
                return try then(
                    made.item, self.documents(documents.rows.database),
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
