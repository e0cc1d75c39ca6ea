internal import NephosCore
internal import NephosRecordRules
internal import NephosWire

/// What one request may still touch, in all of its zones together: so that none holds up the loop, or fills the memory,
/// however small it is itself.
final class RequestRoom {
    /// Bytes of records as they are stored.
    private var bytes = 0
    /// Records that may go with others.
    private(set) var cascades = RecordLimits.cascadeMax
    /// Rows of references that may be made and removed.
    private(set) var references = RecordLimits.referencesMax
    /// Assets that records may have from now on, or have no more.
    private(set) var assets = RecordLimits.assetsOfRequestMax
    /// Rows of indexes that may be made and removed.
    private(set) var indexRows = RecordLimits.indexRowsMax
    /// Those of the database, once they were asked for.
    private var indexes: [RecordIndex]?

    /// What a value of a list takes besides its bytes, opened.
    static let bytesPerListed = 4

    /// Notes a record that was read, before others are. One always can be.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`.
    func take(_ record: WireRecord?, bytes encoded: Int) throws(CloudError) {
        let more = encoded + Self.bytesPerListed * (record?.listedCount ?? 0)
        guard bytes == 0 || bytes + more <= RecordLimits.touchedBytesMax else {
            throw CloudError(
                .limitExceeded, "The request concerns too much of what is stored. Divide it.",
                details: ["bytes_max": "\(RecordLimits.touchedBytesMax)"])
        }
        bytes += more
    }

    /// Notes what a zone does that will be written.
    func take(_ batch: ZoneBatch) {
        cascades -= batch.cascaded.count
        references -= batch.referencesChanged
        assets -= batch.assetsChanged
        indexRows -= batch.indexChanges.reduce(0) { $0 + $1.removed.count + $1.added.count }
    }

    /// The indexes of the zone's database. All of a request's zones are of one.
    func indexes(of zone: RecordScope) throws -> [RecordIndex] {
        if let indexes { return indexes }
        let known = try IndexRows.indexes(of: zone.database, in: zone.transaction).filter(\.isKept)
        indexes = known
        return known
    }

    static let tooManyAssets = CloudError(
        .limitExceeded, "The request changes too many assets. Divide it.",
        details: ["maximum": "\(RecordLimits.assetsOfRequestMax)"])
    static let tooManyReferences = CloudError(
        .limitExceeded, "The request changes too many references. Divide it.",
        details: ["maximum": "\(RecordLimits.referencesMax)"])
}
