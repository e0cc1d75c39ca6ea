internal import NephosContent
internal import NephosStorage

/// Whether segments are where they were put. A folder whose disk is not mounted looks as if all of them were lost; to
/// note every chunk of it would have every device send everything again.
enum ContentDisk {
    /// Most segments are not there.
    struct Gone: Error {}

    /// Segments that are looked for.
    private static let sampleMax = 64

    /// On a work pool's thread.
    ///
    /// - Throws: ``Gone``; what the store and the database throw.
    static func check(_ store: any BlobStore, _ snapshots: any Snapshots) throws {
        let known = try snapshots.read { try ChunkIndex.segments(limit: sampleMax, in: $0) }.map(\.segment)
        var there = 0
        for (partition, segments) in Dictionary(grouping: known, by: \.partition) {
            let found = Set(try store.segments(in: partition).map(\.id))
            there += segments.count { found.contains($0) }
        }
        guard 2 * there >= known.count else { throw Gone() }
    }
}
