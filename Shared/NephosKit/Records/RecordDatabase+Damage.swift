internal import Foundation
internal import GRDB
public import NephosCore
internal import NephosWire

/// Assets of which the server has lost some bytes.
public struct DamagedAssets: Sendable {
    /// Where one of them is. One asset may be in many places.
    public struct Place: Hashable, Sendable {
        /// The record that has it.
        public var record: RecordID
        /// In which field.
        public var field: String
    }

    /// The first ``placesMax`` of them, zone by zone, by the records' names.
    public var places: [Place] = []
    /// Whether there are more, or may be.
    public var hasMore = false

    /// How many are named at most.
    public static let placesMax = 1000
}

extension RecordDatabase {
    /// The assets of the account's own records that the server cannot read any more, as far as their zones were downloaded
    /// here. It is asked about all chunks of all of them; nothing is asked while it has lost nothing.
    ///
    /// A device that has such an asset sends what is lost by itself; whoever has its file elsewhere saves it again.
    ///
    /// - Parameter timeout: How long an answer may take, and about how long all of them: what was not looked at by then is
    ///   said by ``DamagedAssets/hasMore``.
    /// - Returns: Nothing, of a public database: of these nobody is told.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.storageFailure`; `.networkUnavailable` and the like.
    public func damagedAssets(timeout: Duration = .seconds(30)) async throws(CloudError) -> DamagedAssets {
        guard !isPublic else { return DamagedAssets() }
        let deadline = ContinuousClock.now + timeout
        let (candidates, hasMore) = try read { database in
            try ContentLoss(in: zones(database).rows).lostChunks > 0 ? assetPlaces(database) : ([], false)
        }
        // An asset that many records have is asked about once.
        let assets = Array(Set(candidates.map(\.asset)))
        let (lost, looked) = try await session.lost(
            among: assets.map { Session.ContentRoot(root: $0.root, depth: $0.depth, length: $0.length) },
            of: .records(container, app: app), timeout, until: deadline)
        let damaged = Set(lost.map { assets[$0] })
        let places = candidates.filter { damaged.contains($0.asset) }.map(\.place)
        return DamagedAssets(
            places: Array(places.prefix(DamagedAssets.placesMax)),
            hasMore: hasMore || looked < assets.count || places.count > DamagedAssets.placesMax)
    }

    /// Places of assets that are looked at.
    private static let candidatesMax = 100_000

    private typealias Candidate = (place: DamagedAssets.Place, asset: WireRecordAsset)

    private func assetPlaces(_ database: Database) throws -> ([Candidate], hasMore: Bool) {
        let zones = try zones(database)
        var (found, hasMore) = ([Candidate](), false)
        for zone in try zones.all() where !hasMore {
            let records = RecordTransaction(
                ScopeTransaction(database, RecordPlace.zone(container, zone.name).scope(of: account)), zone: zone.name)
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
