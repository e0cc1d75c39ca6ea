package import NephosCore
package import NephosWire
private import SwiftProtobuf

/// What can be refused of a change by its shape alone, and of the record that it makes. The same for devices and the
/// service: a device refuses before it queues anything.
package enum ChangeRule {
    /// Bytes of a change tag.
    package static let versionBytes = 16

    /// - Throws: ``CloudError`` `.invalidArguments`, `.limitExceeded` (too many fields).
    package static func check(_ change: WireRecordChange) throws(CloudError) {
        guard RecordLimits.isName(change.record) else {
            throw CloudError(
                .invalidArguments,
                "A record is called by 1 to 255 printable ASCII characters, the first no underscore.",
                details: ["argument": "record"])
        }
        guard case .save(let save) = change.kind else { return }
        guard save.version.count == versionBytes, save.base.isEmpty || save.base.count == versionBytes else {
            throw CloudError(.invalidArguments, "A change tag has 16 bytes.", details: ["argument": "version"])
        }
        guard RecordLimits.isKey(save.type) else {
            throw CloudError(
                .invalidArguments, "A type is called by a letter, then letters, digits and underscores; 255 at most.",
                details: ["argument": "type"])
        }
        if case .UNRECOGNIZED = save.policy {
            throw CloudError(.invalidArguments, "There is no such save policy.", details: ["argument": "policy"])
        }
        guard !save.hasParent || save.parent.isEmpty || RecordLimits.isName(save.parent) else {
            throw CloudError(.invalidArguments, "A parent is a record of the zone.", details: ["argument": "parent"])
        }
        try FieldRule.check(save.fields)
    }

    /// The record as it is stored.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`: the record would be too large.
    package static func encoded(_ record: WireRecord) throws(CloudError) -> [UInt8] {
        guard let body: [UInt8] = try? record.serializedBytes() else {
            throw CloudError(.invalidArguments, "The record cannot be encoded.")
        }
        guard body.count <= RecordLimits.recordBytesMax else {
            throw CloudError(
                .limitExceeded, "The record is too large. Put what is large into an asset.",
                details: ["bytes_max": "\(RecordLimits.recordBytesMax)", "bytes": "\(body.count)"])
        }
        guard record.fields.count <= RecordLimits.fieldsMax else { throw FieldRule.tooMany }
        guard record.listedCount <= RecordLimits.listedMax else {
            throw CloudError(
                .limitExceeded, "The record's lists have too many values.",
                details: ["maximum": "\(RecordLimits.listedMax)"])
        }
        guard record.cascadingTargets.count <= RecordLimits.cascadingReferencesMax else {
            throw CloudError(
                .limitExceeded, "The record refers to too many others as one that is deleted with them.",
                details: ["maximum": "\(RecordLimits.cascadingReferencesMax)"])
        }
        // They are found by their roots.
        guard Set(record.assets.map(\.root)).count == record.assets.count else {
            throw CloudError(
                .invalidArguments, "One asset is named in two ways. Name it by the length and depth that it has.")
        }
        guard record.assets.count <= RecordLimits.assetsMax else {
            throw CloudError(
                .limitExceeded, "The record has too many assets.", details: ["maximum": "\(RecordLimits.assetsMax)"])
        }
        return body
    }
}

extension WireRecord {
    /// Values in its lists.
    package var listedCount: Int { fields.reduce(0) { $0 + $1.listedCount } }
}

extension WireRecordField {
    /// Values of the list that it is.
    var listedCount: Int {
        switch value {
        case .strings(let list): list.values.count
        case .integers(let list): list.values.count
        case .reals(let list): list.values.count
        case .dates(let list): list.values.count
        case .datas(let list): list.values.count
        case .locations(let list): list.values.count
        case .references(let list): list.values.count
        case .assets(let list): list.values.count
        default: 0
        }
    }
}
