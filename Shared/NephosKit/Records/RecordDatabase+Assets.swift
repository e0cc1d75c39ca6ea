public import Foundation
internal import GRDB
public import NephosCore
internal import NephosFiles
internal import NephosWire
internal import Synchronization

extension RecordDatabase {
    /// Bytes that are read into memory in one go, at most.
    public static let assetDataBytesMax: UInt64 = 256 << 20

    // MARK: Fetching

    /// Whether the asset's bytes are in this device's home, so that they are read without the server.
    ///
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`.
    public func isHere(_ asset: RecordAsset) async throws(CloudError) -> Bool {
        guard asset.length > 0, asset.source == nil else { return true }
        return try localCopy(of: asset) != nil
    }

    /// The asset's bytes: from this device's home if they are here, else from the server. Each chunk is what its hash
    /// says. What has come stays here, as far as there is room (``Session/setContentCache(maxBytes:)``).
    ///
    /// - Parameters:
    ///   - id: The record that has it. Who may read that may fetch it.
    ///   - timeout: How long nothing may come before it is given up.
    /// - Throws: ``CloudError`` `.limitExceeded` when it has more than 256 MiB (download it to a file); `.unknownItem`
    ///   when the server does not have it, or not any more (fetch the record again); `.deadlineExceeded`,
    ///   `.networkUnavailable` and the like (try again); `.operationCancelled`, `.notSignedIn`, `.storageFailure`.
    public func data(
        of asset: RecordAsset, in id: RecordID, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> Data {
        guard asset.length <= Self.assetDataBytesMax else {
            throw CloudError(
                .limitExceeded, "The asset is too long to be read into memory. Download it to a file.",
                details: ["bytes_max": "\(Self.assetDataBytesMax)"])
        }
        let sink = DataSink(count: Int(asset.length))
        try await write(asset, of: id, to: sink, timeout) { _ in }
        return sink.content
    }

    /// Writes the asset's bytes into a local file, which is replaced as a whole: it is complete or as it was, whatever
    /// happens. Where a link is there, what it leads to is replaced.
    ///
    /// - Parameters:
    ///   - id: The record that has it.
    ///   - file: Where it is to be.
    ///   - timeout: How long nothing may come before it is given up.
    ///   - onProgress: Gets the bytes that have come, and all.
    /// - Throws: ``CloudError`` as ``data(of:in:timeout:)`` does; `.invalidArguments` when a folder or whatever else is no
    ///   file is there; `.storageFailure`, `.permissionFailure` of the file.
    public func download(
        _ asset: RecordAsset, of id: RecordID, to file: URL, timeout: Duration = .seconds(30),
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) {
        try await download(
            asset, of: id, to: LocalPath(file), followsLinks: true, timeout: timeout, onProgress: onProgress)
    }

    /// The same, to any place.
    ///
    /// - Parameter followsLinks: Whether a link that is there means what it leads to; else it is in the way.
    package func download(
        _ asset: RecordAsset, of id: RecordID, to place: LocalPath, followsLinks: Bool, timeout: Duration,
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) {
        do {
            let part = try PartFile(for: LocalTarget.file(place, followsLinks: followsLinks), isExecutable: false)
            try part.cut(to: asset.length)
            try await write(asset, of: id, to: FileSink(file: part.file, name: part.name), timeout) {
                onProgress(UInt64($0), asset.length)
            }
            try part.keepAccess()
            try await Session.elsewhere { try part.flush() }.get()
            try part.takePlace()
            onProgress(asset.length, asset.length)
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    private func write(
        _ asset: RecordAsset, of id: RecordID, to sink: any ContentSink, _ timeout: Duration,
        _ onProgress: @escaping @Sendable (Int) -> Void
    ) async throws(CloudError) {
        try RecordNames.check(id)
        try RecordAsset.require(asset.length)
        guard asset.length > 0 else { return }
        if let source = asset.source {
            // It was not saved yet.
            let result: Result<Void, any Error> = await Session.elsewhere { try source.write(to: sink) }
            do { return try result.get() } catch { throw LocalFailure.error(of: error, at: nil) }
        }
        let copy = try localCopy(of: asset)
        if let copy, try await read(copy, of: asset, to: sink) { return }
        try await fetch(asset, of: id, to: sink, replacing: copy?.file, timeout, onProgress)
    }

    private func localCopy(of asset: RecordAsset) throws(CloudError) -> LocalCopy? {
        try read { try copies($0).copy(of: asset) }
    }

    /// - Returns: False: it is not here as it was. Some of it may be written.
    private func read(
        _ copy: LocalCopy, of asset: RecordAsset, to sink: any ContentSink
    ) async throws(CloudError) -> Bool {
        let folder = try ContentFolder(home: session.local.home)
        let result: Result<ContentFolder.CopyOutcome, any Error> = await Session.elsewhere {
            try folder.copy(copy, 0..<Int(asset.length), to: sink)
        }
        do {
            let outcome = try result.get()
            session.note(outcome, of: copy, asset) { database in
                _ = try session(in: database)
                return copies(database)
            }
            return outcome == .written
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    func copies(_ database: Database) -> ContentCache {
        ContentCache(database, RecordPlace.database(container).scope(of: account))
    }

    /// - Parameter damaged: The file that it was in, and is not any more as it was; nil: none.
    private func fetch(
        _ asset: RecordAsset, of id: RecordID, to sink: any ContentSink, replacing damaged: DocumentID?,
        _ timeout: Duration, _ onProgress: @escaping @Sendable (Int) -> Void
    ) async throws(CloudError) {
        let place = ContentPlace.records(
            isPublic ? "\(container)/\(RecordLimits.defaultZone)/\(id.name)" : container, app: app)
        let folder = try? ContentFolder(home: session.local.home)
        let bound = try folder.map { folder throws(CloudError) in try read { try ContentCache.bound($0, folder) } } ?? 0
        let fetched = try await session.fetch(
            asset, 0..<Int(asset.length), of: place, to: sink, staying: bound, timeout, onProgress)
        guard let fetched, let folder else { return }
        defer { fetched.copy.drop() }
        let now = session.engine.stamp.now
        do throws(CloudError) {
            try session.local.keepCopies(in: folder) { database in
                _ = try session(in: database)
                let unneeded = try copies(database).add(
                    asset, in: fetched.copy.file, fetched.chunks, now: now, replacing: damaged)
                return [unneeded].compactMap { $0 }
            }
            fetched.copy.keep()
        } catch {
            // It is fetched again.
            return
        }
    }

    // MARK: Saving

    /// Whether the server may have lost assets that records have: of a private database it says so; of a public one nobody
    /// is told.
    func mayHaveLostAssets() throws(CloudError) -> Bool {
        guard !isPublic else { return true }
        return try read { try ContentLoss(in: zones($0).rows).lostChunks > 0 }
    }

    /// Copies the assets of records that are about to be saved into the home, flushed.
    ///
    /// - Parameter areAllNew: Also those that the records have had before, where they come as bytes.
    /// - Returns: Nil: there are none.
    func stage(_ records: [Record], areAllNew: Bool) async throws(CloudError) -> StagedAssets? {
        var sources: [WireRecordAsset: RecordAsset.Source] = [:]
        for record in records {
            let fields = areAllNew ? record.broughtFields : record.changedFields
            for asset in fields.flatMap({ record.fields[$0]?.assets ?? [] }) where asset.length > 0 {
                if let source = asset.source { sources[asset.wire] = source }
            }
        }
        guard !sources.isEmpty else { return nil }
        let here = try read { database in
            let assets = copies(database)
            return try sources.keys.reduce(into: [WireRecordAsset: LocalCopy]()) { $0[$1] = try assets.copy(of: $1) }
        }
        let staged = try StagedAssets(ContentFolder(home: session.local.home))
        let (wanted, engine) = (sources, session.engine)
        let result: Result<Void, any Error> = await Session.elsewhere {
            for (asset, source) in wanted {
                try staged.stage(asset, source, here[asset], as: engine.makeDocumentID())
            }
            try staged.flush()
        }
        do { try result.get() } catch {
            // Here, and not with the last reference: the other thread may have one for a moment still.
            staged.cancel()
            throw LocalFailure.error(of: error, at: nil)
        }
        return staged
    }
}

extension RecordAsset.Source {
    fileprivate func write(to sink: any ContentSink) throws {
        var offset = 0
        try read { bytes in
            try sink.write(bytes, at: offset)
            offset += bytes.count
        }
    }
}

/// Bytes of assets that are in the home, before the database knows of them. Those that it does not get to know are gone
/// with this.
final class StagedAssets: Sendable {
    private struct Staged {
        var file: DocumentID
        var chunks: [CutChunk]
        /// The file is another name of one that is here already.
        var isLink = false
        /// Which file the asset was in, that could not be used.
        var replaced: DocumentID?
        var content: StagedContent?
    }

    private struct State {
        /// No sweep may take what is staged until its rows are there.
        var claim: FileLock?
        var staged: [WireRecordAsset: Staged] = [:]
        /// Files that a row names by now; and those that none does any more.
        var kept: Set<DocumentID> = []
        var unneeded: [DocumentID] = []
    }

    private let folder: ContentFolder
    private let state: Mutex<State>

    /// - Throws: ``CloudError`` `.storageFailure`.
    init(_ folder: ContentFolder) throws(CloudError) {
        self.folder = folder
        state = Mutex(State(claim: try folder.claim()))
    }

    deinit { cancel() }

    /// - Parameter copy: What is here of it already: it gets another name, in case it goes meanwhile.
    func stage(
        _ asset: WireRecordAsset, _ source: RecordAsset.Source, _ copy: LocalCopy?, as file: DocumentID
    ) throws {
        if let copy, copy.file != file, folder.holdsWhole(copy), folder.link(copy.file, as: file) {
            return state.withLock { $0.staged[asset] = Staged(file: file, chunks: copy.chunks, isLink: true) }
        }
        var staging = try ContentStaging(folder, file, bytes: Int(clamping: asset.length))
        do {
            try source.read { try staging.take($0) }
            let content = try staging.finish(modified: 0)
            state.withLock {
                $0.staged[asset] = Staged(file: file, chunks: content.chunks, replaced: copy?.file, content: content)
            }
            guard content.length == asset.length, Data(content.root.map(\.bytes) ?? []) == asset.root else {
                throw CloudError(
                    .constraintViolation,
                    "The file of an asset was written since the asset was made of it. Make the asset anew.")
            }
        } catch {
            staging.cancel()
            throw error
        }
    }

    func flush() throws(CloudError) {
        let staged = state.withLock { $0.staged.values.map { ($0.content, $0.isLink) } }
        try folder.flush(staged.compactMap(\.0))
        if staged.contains(where: \.1) { try folder.flushNames() }
    }

    /// Notes in the transaction of the save that they are here.
    func keep(in assets: ContentCache, now: Timestamp) throws {
        try state.withLock { state in
            (state.kept, state.unneeded) = ([], [])
            for (asset, staged) in state.staged {
                // What another save has brought meanwhile stays: its upload reads from there.
                let unneeded = try assets.add(
                    asset, in: staged.file, staged.chunks, now: now, replacing: staged.replaced)
                if let unneeded { state.unneeded.append(unneeded) }
                if unneeded != staged.file { state.kept.insert(staged.file) }
            }
        }
    }

    /// Removes the files, unless the transaction has ended: no row names them.
    func cancel() {
        state.withLock { state in
            for staged in state.staged.values { folder.remove(staged.file) }
            state.staged = [:]
            state.claim = nil
        }
    }

    /// The transaction is over.
    func end() {
        state.withLock { state in
            for staged in state.staged.values where !state.kept.contains(staged.file) { folder.remove(staged.file) }
            for file in state.unneeded { folder.remove(file) }
            state.staged = [:]
            state.claim = nil
        }
    }
}
