internal import Foundation
package import NephosCore
package import NephosWire

/// What a field of a record may be. The same for devices and the service.
package enum FieldRule {
    /// - Throws: ``CloudError`` `.invalidArguments`: a name that no field can have, one that is there twice, a place that
    ///   is none, a reference to what no record can be called, something sealed in a way that is not known, an asset that
    ///   no content can be; `.limitExceeded`: an asset that is too long.
    package static func check(_ fields: [WireRecordField]) throws(CloudError) {
        guard fields.count <= RecordLimits.fieldsMax else { throw tooMany }
        var names: Set<ItemName> = []
        for field in fields {
            guard RecordLimits.isKey(field.name) else {
                throw invalid(
                    "A field is called by a letter, then letters, digits and underscores; 255 at most.", field)
            }
            guard names.insert(ItemName(field.name)).inserted else {
                throw invalid("A field is there twice. Name it once.", field)
            }
            if let value = field.value { try check(value, of: field) }
        }
    }

    package static let tooMany = CloudError(
        .limitExceeded, "A record has too many fields.", details: ["maximum": "\(RecordLimits.fieldsMax)"])

    private static func check(
        _ value: WireRecordField.OneOf_Value, of field: WireRecordField
    ) throws(CloudError) {
        switch value {
        case .location(let place): try check([place], field)
        case .locations(let list): try check(list.values, field)
        case .reference(let reference): try check([reference], field)
        case .references(let list): try check(list.values, field)
        case .encrypted(let encrypted):
            guard encrypted.suite == 1 else {
                throw invalid("The value is sealed in a way that this version does not know. Upgrade.", field)
            }
            guard (1...64).contains(encrypted.keyID.count), !encrypted.sealed.isEmpty else {
                throw invalid("A sealed value names its key in 1 to 64 bytes, and is not empty.", field)
            }
        case .asset(let asset): try check([asset], field)
        case .assets(let list): try check(list.values, field)
        case .string, .integer, .real, .date, .data, .strings, .integers, .reals, .dates, .datas: break
        }
    }

    private static func check(_ places: [WireRecordLocation], _ field: WireRecordField) throws(CloudError) {
        for place in places {
            guard (-90...90).contains(place.latitude), (-180...180).contains(place.longitude), place.altitude.isFinite
            else { throw invalid("A place lies within 90 degrees of latitude and 180 of longitude.", field) }
        }
    }

    private static func check(_ references: [WireRecordReference], _ field: WireRecordField) throws(CloudError) {
        for reference in references {
            guard RecordLimits.isName(reference.record) else {
                throw invalid("A reference names a record of the zone.", field)
            }
        }
    }

    private static func check(_ assets: [WireRecordAsset], _ field: WireRecordField) throws(CloudError) {
        for asset in assets {
            guard asset.length <= RecordLimits.assetBytesMax else {
                throw CloudError(
                    .limitExceeded, "An asset is too long. Divide it, or keep it as a document.",
                    details: ["bytes_max": "\(RecordLimits.assetBytesMax)"])
            }
            // What is one chunk is no longer than one.
            let isOneChunk = asset.depth == 0
            guard asset.root.count == (asset.length > 0 ? WireRecordAsset.rootBytes : 0),
                isOneChunk ? asset.length <= BulkLimits.chunkBytesMax : asset.length > 0,
                asset.depth <= WireRecordAsset.depthMax
            else {
                throw invalid("An asset is named by its length, root and depth. Cut it as the protocol says.", field)
            }
        }
    }

    private static func invalid(_ message: String, _ field: WireRecordField) -> CloudError {
        // A name that is none may be anything, and is not repeated.
        CloudError(
            .invalidArguments, message, details: RecordLimits.isKey(field.name) ? ["field": field.name] : [:])
    }
}

extension WireRecord {
    /// Records that this one is deleted with, each once.
    package var cascadingTargets: Set<ItemName> {
        var targets: Set<ItemName> = []
        for field in fields {
            switch field.value {
            case .reference(let reference) where reference.deletesSelf: targets.insert(ItemName(reference.record))
            case .references(let list):
                for reference in list.values where reference.deletesSelf { targets.insert(ItemName(reference.record)) }
            default: break
            }
        }
        return targets
    }
}

extension WireRecordAsset {
    /// Bytes of a root: a SHA-256.
    package static let rootBytes = 32
    /// Levels of nodes above the chunks, at most.
    fileprivate static let depthMax = 7
}

extension WireRecord {
    /// What its assets rest on, each once. One without bytes rests on nothing.
    package var assets: Set<WireRecordAsset> {
        var assets: Set<WireRecordAsset> = []
        for field in fields { assets.formUnion(field.assets.filter { $0.length > 0 }) }
        return assets
    }
}

extension WireRecordField {
    /// Its assets, in their order.
    package var assets: [WireRecordAsset] {
        switch value {
        case .asset(let asset): [asset]
        case .assets(let list): list.values
        default: []
        }
    }
}
