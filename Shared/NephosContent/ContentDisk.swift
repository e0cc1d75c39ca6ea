public import NephosCore
public import NephosStorage

/// Whether segments are where they were put. A folder whose disk is not mounted looks as if all of them were lost: to
/// note every chunk of it would have every device send everything again, and what is put there is hidden once the disk
/// is mounted.
public enum ContentDisk {
    /// The folder of content is not what it was.
    public enum Gone: Error {
        /// Most segments are not there.
        case missing
        /// Nobody can say what is there.
        case unreadable(CloudError)
    }

    /// Segments that are looked for.
    private static let sampleMax = 64

    /// On a work pool's thread. Where whoever runs the service has accepted the loss, what is not there counts as
    /// damaged: so devices bring back what they have.
    ///
    /// - Throws: ``Gone``; what the database throws.
    public static func check(_ store: any BlobStore, _ snapshots: any Snapshots) throws {
        let known = try snapshots.read { try ChunkIndex.segments(limit: sampleMax, in: $0) }.map(\.segment)
        var there = 0
        for (partition, segments) in Dictionary(grouping: known, by: \.partition) {
            let found: Set<SegmentID>
            do { found = Set(try store.segments(in: partition).map(\.id)) } catch {
                throw Gone.unreadable(CloudError(wrapping: error))
            }
            there += segments.count { found.contains($0) }
        }
        guard 2 * there >= known.count || store.isLossAccepted else { throw Gone.missing }
    }
}

extension BlobStore {
    /// Stores a group as ``put(_:in:)`` does, and begins a segment only where the others are: else the new ones would
    /// soon be most of what is known.
    ///
    /// - Parameter isDoubted: Whether to look for the others in any case.
    /// - Throws: ``ContentDisk/Gone``: nothing was stored; what ``put(_:in:)`` and the database throw.
    public func put(
        _ group: inout ChunkGroup, in partition: Int, isDoubted: Bool = false, through snapshots: any Snapshots
    ) throws -> StoredGroup {
        if !isDoubted, let stored = try append(&group, in: partition) { return stored }
        try ContentDisk.check(self, snapshots)
        return try put(&group, in: partition)
    }
}
