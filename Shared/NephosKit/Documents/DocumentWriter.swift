public import Foundation
public import NephosCore
internal import NephosFiles
internal import Synchronization

/// Writes a file of a container piece by piece, of whatever length: ``UbiquityContainer/makeWriter(at:makesFolders:)``.
///
/// What is written is in this device's home, and nobody sees it until ``finish()``. Given up, or let go of before that,
/// it leaves nothing; nor does a process that ends.
public final class DocumentWriter: Sendable {
    private struct State {
        var staging: ContentStaging?
        /// As long as it is short: then it goes along with its item.
        var short = Data()
        /// Keeps sweeps away.
        var claim: FileLock?
        var isOver = false
        var written: UInt64 = 0
    }

    private let container: UbiquityContainer
    private let path: DocumentPath
    private let makesFolders: Bool
    private let folder: ContentFolder
    private let version: DocumentID
    private let state: Mutex<State>

    init(_ container: UbiquityContainer, at path: DocumentPath, makesFolders: Bool) throws(CloudError) {
        // Before anything is written.
        try path.requireNames()
        try path.requireSynced()
        folder = try ContentFolder(home: container.session.local.home)
        version = container.session.engine.makeDocumentID()
        state = Mutex(State(claim: try folder.claim()))
        (self.container, self.path, self.makesFolders) = (container, path, makesFolders)
    }

    deinit { cancel() }

    /// Adds to the content. One call at a time: it returns when the bytes are written.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`; `.storageFailure`, also when the home's disk has no room;
    ///   `.operationCancelled` once it is over. After an error it is.
    public func write(_ data: Data) async throws(CloudError) {
        let result = await Session.elsewhere { try self.take(data) }
        do { try result.get() } catch {
            cancel()
            throw LocalFailure.error(of: error, at: nil)
        }
    }

    private func take(_ data: Data) throws {
        try state.withLock { state in
            guard !state.isOver else { throw Self.over }
            if state.staging == nil, state.short.count + data.count <= DocumentLimits.inlineBytesMax {
                state.short.append(data)
                state.written += UInt64(data.count)
                return
            }
            if state.staging == nil {
                state.staging = try ContentStaging(folder, version, bytes: 0)
                try state.short.withUnsafeBytes { try state.staging?.take($0) }
                state.short = Data()
            }
            try data.withUnsafeBytes { try state.staging?.take($0) }
            state.written += UInt64(data.count)
        }
    }

    /// Bytes that were written so far.
    public var bytesWritten: UInt64 { state.withLock(\.written) }

    /// Puts what was written at the path: a new file, or a new version of the one that is there.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/put(_:at:makesFolders:)-(Data,_,_)`` does; `.operationCancelled`
    ///   once it is over, and in a task that was cancelled: what has come may not be all. After an error it is over.
    @discardableResult
    public func finish() async throws(CloudError) -> DocumentEntry {
        guard !Task.isCancelled else {
            cancel()
            throw CloudError(.operationCancelled, "The task that wrote the content was cancelled. Nothing was put.")
        }
        let modified = container.session.engine.stamp.now.nanoseconds
        let result = await Session.elsewhere { try self.end(modified) }
        defer { cancel() }
        do {
            let (content, claim) = try result.get()
            defer { withExtendedLifetime(claim) {} }
            let source = StagedSource(path: path, content: content)
            do throws(CloudError) {
                return try await container.put(source, in: folder, makesFolders: makesFolders)
            } catch {
                folder.remove(source)
                throw error
            }
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    /// Ends the content. Of several who ask for it at once, one gets it.
    ///
    /// - Returns: It, and what keeps sweeps away from it.
    private func end(_ modified: Int64) throws -> (StagedContent, FileLock?) {
        try state.withLock { state in
            guard !state.isOver else { throw Self.over }
            state.isOver = true
            let claim = state.claim
            guard let content = try state.staging?.finish(modified: modified) else {
                let short = StagedContent(
                    version: version, length: UInt64(state.short.count), inline: state.short, modified: modified)
                return (short, claim)
            }
            state.staging = nil
            do {
                try container.session.fault?("writer.flush")
                try folder.flush([content])
            } catch {
                folder.remove(version)
                throw error
            }
            return (content, claim)
        }
    }

    /// Gives it up. Nothing once it is over.
    public func cancel() {
        state.withLock { state in
            state.staging?.cancel()
            state = State(isOver: true, written: state.written)
        }
    }

    private static let over = CloudError(
        .operationCancelled, "The writer has ended: it was finished, given up, or has failed. Begin another.")
}

extension UbiquityContainer {
    /// Begins a file of a length that nobody knows yet.
    ///
    /// - Parameter makesFolders: Whether the folders that it is in are made.
    /// - Throws: ``CloudError`` `.invalidArguments` for a path that no item of the container can have;
    ///   `.storageFailure`.
    public func makeWriter(at path: String, makesFolders: Bool = false) throws(CloudError) -> DocumentWriter {
        try DocumentWriter(self, at: DocumentPath(path), makesFolders: makesFolders)
    }

    /// The same, at any place.
    package func makeWriter(at path: DocumentPath, makesFolders: Bool) throws(CloudError) -> DocumentWriter {
        try DocumentWriter(self, at: path, makesFolders: makesFolders)
    }

    /// Puts a file of the bytes that come, however many; the next are asked for when those before are written.
    ///
    /// - Parameter onProgress: Gets the bytes that were written so far.
    /// - Throws: What the sequence throws, or ``CloudError`` as ``DocumentWriter/write(_:)`` and
    ///   ``DocumentWriter/finish()`` do. Nothing was put then.
    @discardableResult
    public func put<Pieces: AsyncSequence>(
        contentsOf pieces: Pieces, at path: String, makesFolders: Bool = false,
        onProgress: (UInt64) -> Void = { _ in }
    ) async throws -> DocumentEntry where Pieces.Element == Data {
        let writer = try makeWriter(at: path, makesFolders: makesFolders)
        do {
            for try await piece in pieces {
                try await writer.write(piece)
                onProgress(writer.bytesWritten)
            }
        } catch {
            writer.cancel()
            throw error
        }
        return try await writer.finish()
    }
}
