public import Foundation
public import NephosCore
internal import NephosFiles
internal import Synchronization

/// Writes a file of a container piece by piece, of whatever length: ``DocumentStreams/makeWriter(at:makesFolders:)``.
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

    private let handle: ContainerHandle
    private let path: DocumentPath
    private let makesFolders: Bool
    private let folder: ContentFolder
    private let version: DocumentID
    private let state: Mutex<State>

    init(_ handle: ContainerHandle, at path: DocumentPath, makesFolders: Bool) throws(CloudError) {
        // Before anything is written.
        try path.requireNames()
        try path.requireSynced()
        folder = try handle.contentFolder()
        version = handle.makeID()
        state = Mutex(State(claim: try folder.claim()))
        (self.handle, self.path, self.makesFolders) = (handle, path, makesFolders)
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
    /// - Throws: ``CloudError`` as ``UbiquityContainer/put(_:at:makesFolders:conditions:)-(Data,_,_,_)`` does; `.operationCancelled`
    ///   once it is over, and in a task that was cancelled: what has come may not be all. After an error it is over.
    @discardableResult
    public func finish() async throws(CloudError) -> DocumentEntry {
        try await finish(modified: nil) { content, folder throws(CloudError) in
            try await handle.imports.put(
                StagedSource(path: path, content: content), in: folder, makesFolders: makesFolders)
        }
    }

    /// The same, with the caller's own way to put it.
    ///
    /// - Parameters:
    ///   - modified: The content's date; nil: now.
    ///   - put: Puts the content. If it throws, the content is removed.
    func finish(
        modified: DocumentDate?, _ put: (StagedContent, ContentFolder) async throws(CloudError) -> DocumentEntry
    ) async throws(CloudError) -> DocumentEntry {
        guard !Task.isCancelled else {
            cancel()
            throw CloudError(.operationCancelled, "The task that wrote the content was cancelled. Nothing was put.")
        }
        let date = modified?.nanoseconds ?? handle.now.nanoseconds
        let result = await Session.elsewhere { try self.end(date) }
        defer { cancel() }
        do {
            let (content, claim) = try result.get()
            defer { withExtendedLifetime(claim) {} }
            do throws(CloudError) { return try await put(content, folder) } catch {
                // After a timeout the change still waits to be sent, with this content.
                if error.code != .deadlineExceeded { folder.remove(StagedSource(path: path, content: content)) }
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
                try handle.session.fault?("writer.flush")
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
