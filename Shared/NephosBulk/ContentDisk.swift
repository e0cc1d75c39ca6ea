internal import NephosContent
internal import NephosCore
internal import NephosStorage

/// Whether segments are where they were put. A folder whose disk is not mounted looks as if all of them were lost; to
/// note every chunk of it would have every device send everything again.
enum ContentDisk {
    /// The folder of content is not what it was.
    enum Gone: Error {
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
    static func check(_ store: any BlobStore, _ snapshots: any Snapshots) throws {
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
