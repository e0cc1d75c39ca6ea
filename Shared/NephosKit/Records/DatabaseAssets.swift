public import Foundation
internal import GRDB
public import NephosCore
internal import NephosFiles
internal import NephosWire

/// Assets of which the server has lost some bytes.
public struct DamagedAssets: Sendable {
    /// A record and field with a damaged asset. One asset may be in many places.
    public struct Place: Hashable, Sendable {
        /// The record that has the asset.
        public var record: RecordID
        /// The field that has it.
        public var field: String
    }

    /// The places, zone by zone, ordered by record name; at most ``placesMax``.
    public var places: [Place] = []
    /// Whether there are, or may be, more.
    public var hasMore = false

    /// Maximum number of places.
    public static let placesMax = 1000
}

/// Bytes of records' assets, as ``RecordDatabase/assets`` has them. They are saved with their records.
public struct DatabaseAssets: Sendable {
    let database: RecordDatabase

    /// Maximum bytes that one call reads into memory: 256 MiB.
    public static let dataBytesMax: UInt64 = 256 << 20

    /// Whether the asset's bytes are in this device's home, and can be read without the server.
    ///
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`.
    public func isHere(_ asset: RecordAsset) async throws(CloudError) -> Bool {
        guard asset.length > 0, asset.source == nil else { return true }
        return try localCopy(of: asset) != nil
    }

    /// The asset's bytes: from this device's home if they are here, else from the server. Each chunk is checked against
    /// its hash. Downloaded bytes stay here, as far as there is room (``Session/setContentCache(maxBytes:)``).
    ///
    /// - Parameters:
    ///   - asset: The value of an asset field.
    ///   - id: The record that has the asset. Every reader of the record may download it.
    ///   - timeout: How long no data may arrive.
    /// - Throws: ``CloudError`` `.limitExceeded` when it has more than 256 MiB (download it to a file); `.unknownItem`
    ///   when the server does not have it (any more): fetch the record again; `.deadlineExceeded`,
    ///   `.networkUnavailable` and the like (try again); `.operationCancelled`, `.notSignedIn`, `.storageFailure`.
    public func data(
        of asset: RecordAsset, in id: RecordID, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> Data {
        guard asset.length <= Self.dataBytesMax else {
            throw CloudError(
                .limitExceeded, "The asset is too long to be read into memory. Download it to a file.",
                details: ["bytes_max": "\(Self.dataBytesMax)"])
        }
        let sink = DataSink(count: Int(asset.length))
        try await write(asset, of: id, to: sink, timeout) { _ in }
        return sink.content
    }

    /// Writes the asset's bytes into a local file, which is replaced as a whole: afterwards it is complete or
    /// unchanged. If the path is a symbolic link, its target is replaced.
    ///
    /// - Parameters:
    ///   - asset: The value of an asset field.
    ///   - id: The record that has the asset.
    ///   - file: The path of the file.
    ///   - timeout: How long no data may arrive.
    ///   - onProgress: Gets the bytes downloaded, and the total.
    /// - Throws: ``CloudError`` as ``data(of:in:timeout:)`` does; `.invalidArguments` when the path is a folder or
    ///   another kind of item than a file; `.storageFailure`, `.permissionFailure` of the file.
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
        try database.read { try database.copies($0).copy(of: asset) }
    }

    /// - Returns: False: it is not here as it was. Some of it may be written.
    private func read(
        _ copy: LocalCopy, of asset: RecordAsset, to sink: any ContentSink
    ) async throws(CloudError) -> Bool {
        let folder = try ContentFolder(home: database.session.local.home)
        let result: Result<ContentFolder.CopyOutcome, any Error> = await Session.elsewhere {
            try folder.copy(copy, 0..<Int(asset.length), to: sink)
        }
        do {
            let outcome = try result.get()
            database.session.note(outcome, of: copy, asset) { rows in
                _ = try database.session(in: rows)
                return database.copies(rows)
            }
            return outcome == .written
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    /// - Parameter damaged: The file that it was in, and is not any more as it was; nil: none.
    private func fetch(
        _ asset: RecordAsset, of id: RecordID, to sink: any ContentSink, replacing damaged: DocumentID?,
        _ timeout: Duration, _ onProgress: @escaping @Sendable (Int) -> Void
    ) async throws(CloudError) {
        let place = ContentPlace.records(
            database.isPublic ? "\(database.container)/\(RecordLimits.defaultZone)/\(id.name)" : database.container,
            app: database.app)
        let folder = try? ContentFolder(home: database.session.local.home)
        let bound =
            try folder.map { folder throws(CloudError) in try database.read { try ContentCache.bound($0, folder) } }
            ?? 0
        let fetched = try await database.session.fetch(
            asset, 0..<Int(asset.length), of: place, to: sink, staying: bound, timeout, onProgress)
        guard let fetched, let folder else { return }
        defer { fetched.copy.drop() }
        let now = database.session.engine.stamp.now
        do throws(CloudError) {
            try database.session.local.keepCopies(in: folder) { rows in
                _ = try database.session(in: rows)
                let unneeded = try database.copies(rows).add(
                    asset, in: fetched.copy.file, fetched.chunks, now: now, replacing: damaged)
                return [unneeded].compactMap { $0 }
            }
            fetched.copy.keep()
        } catch {
            // It is fetched again.
            return
        }
    }

    // MARK: Damage

    /// The assets of the account's own records that the server can no longer read, in zones that were downloaded here.
    /// Asks the server about all of their chunks, unless it has lost none.
    ///
    /// A device that has such an asset sends the lost chunks by itself. Otherwise save the same bytes again.
    ///
    /// - Parameter timeout: How long one answer may take, and approximately all of them; ``DamagedAssets/hasMore`` is
    ///   true if some assets were not checked in that time.
    /// - Returns: The damaged assets; none for a public database, whose damage the server does not report.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`; `.networkUnavailable` and the like.
    public func damaged(timeout: Duration = .seconds(30)) async throws(CloudError) -> DamagedAssets {
        guard !database.isPublic else { return DamagedAssets() }
        let deadline = ContinuousClock.now + timeout
        let (candidates, hasMore) = try database.read { rows in
            try ContentLoss(in: database.zones(rows).rows).lostChunks > 0 ? self.places(in: rows) : ([], false)
        }
        // An asset that many records have is asked about once.
        let assets = Array(Set(candidates.map(\.asset)))
        let (lost, looked) = try await database.session.lost(
            among: assets.map { Session.ContentRoot(root: $0.root, depth: $0.depth, length: $0.length) },
            of: .records(database.container, app: database.app), timeout, until: deadline)
        let damaged = Set(lost.map { assets[$0] })
        let places = candidates.filter { damaged.contains($0.asset) }.map(\.place)
        return DamagedAssets(
            places: Array(places.prefix(DamagedAssets.placesMax)),
            hasMore: hasMore || looked < assets.count || places.count > DamagedAssets.placesMax)
    }

    /// Places of assets that are looked at.
    private static let candidatesMax = 100_000

    private typealias Candidate = (place: DamagedAssets.Place, asset: WireRecordAsset)

    private func places(in rows: Database) throws -> ([Candidate], hasMore: Bool) {
        let zones = try database.zones(rows)
        var (found, hasMore) = ([Candidate](), false)
        for zone in try zones.all() where !hasMore {
            let records = RecordTransaction(
                ScopeTransaction(rows, RecordPlace.zone(database.container, zone.name).scope(of: database.account)),
                zone: zone.name)
            guard try records.rows.state().synced else { continue }
            try records.forEach(ofType: nil) { name, visible in
                guard let wire = visible.record else { return true }
                let record = visible.made(RecordID(name, zone: zone.name), wire, nil)
                for (field, value) in record.fields.sorted(by: { $0.key < $1.key }) {
                    for asset in value.assets where asset.length > 0 {
                        found.append((DamagedAssets.Place(record: record.id, field: field), asset.wire))
                    }
                }
                hasMore = found.count >= Self.candidatesMax
                return !hasMore
            }
        }
        return (found, hasMore)
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
