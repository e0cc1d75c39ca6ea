import Foundation
import GRDB
import NephosCore
import NephosFiles
import NephosWire
import Synchronization

extension RecordDatabase {
    /// Whether the server may have lost assets that records have: of a private database it says so; of a public one nobody
    /// is told.
    func mayHaveLostAssets() throws(CloudError) -> Bool {
        guard !isPublic else { return true }
        return try read { try ContentLoss(in: zones($0).rows).lostChunks > 0 }
    }

    func copies(_ rows: Database) -> ContentCache {
        ContentCache(rows, RecordPlace.database(container).scope(of: account))
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
