internal import Foundation
internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// A record's row in the feed.
///
/// The body's layout: 1 byte with the ``Standing`` (and 1 more of what a restore had lost and a device has offered again), 1
/// byte with a count, so many change tags of 16 bytes that the record had before, the newest first, and the sealed
/// `Record`. A deleted one has, sealed as well, what is told of its deletion: by the tags a save that comes late is known
/// again.
enum StoredRecord {
    /// Whether readers of the zone's feed see the record; also of one that was deleted.
    enum Standing: UInt8 {
        case shown = 1
        /// They never saw anything of the name.
        case hidden = 3
        /// They may have it, and are told that it is gone.
        case withdrawn = 5

        /// How it stands when the record is one that the feed has, or has not.
        func after(isInFeed: Bool) -> Standing {
            isInFeed ? .shown : self == .hidden ? .hidden : .withdrawn
        }
    }

    static func body(
        _ standing: Standing, former: [[UInt8]], sealed: [UInt8], isOffered: Bool = false
    ) -> [UInt8] {
        let former = former.prefix(RecordLimits.knownVersionsMax)
        return [layout(standing, isOffered), UInt8(former.count)] + former.joined() + sealed
    }

    static func layout(_ standing: Standing, _ isOffered: Bool) -> UInt8 { standing.rawValue + (isOffered ? 1 : 0) }

    /// - Returns: Nil: it is damaged.
    static func parts(
        of body: [UInt8]
    ) -> (standing: Standing, former: [[UInt8]], sealed: ArraySlice<UInt8>, isOffered: Bool)? {
        guard body.count >= 2, let standing = known(body[0]) else { return nil }
        let end = 2 + Int(body[1]) * versionBytes
        guard body.count >= end else { return nil }
        let former = stride(from: 2, to: end, by: versionBytes).map { Array(body[$0..<$0 + versionBytes]) }
        return (standing, former, body[end...], body[0] != standing.rawValue)
    }

    private static func known(_ layout: UInt8) -> Standing? {
        layout == 0 ? nil : Standing(rawValue: layout % 2 == 0 ? layout - 1 : layout)
    }

    /// Whether readers of the feed see it; of one that is damaged too, as far as that can be read.
    static func standing(of body: [UInt8]) -> Standing { body.first.flatMap(known) ?? .shown }

    static let versionBytes = ChangeRule.versionBytes
}

extension WireRecord {
    /// What the record counts, in bytes.
    ///
    /// - Parameters:
    ///   - encoded: Bytes of the record as it is encoded.
    ///   - targets: How many records it is deleted with, where that is known.
    ///   - assets: How many different assets it has, where that is known. Their bytes count by themselves.
    func countedBytes(_ name: ItemName, encoded: Int, targets: Int? = nil, assets: Int? = nil) -> Int {
        let references = (targets ?? cascadingTargets.count) + (parent.isEmpty ? 0 : 1)
        return name.utf8.count + encoded + RecordLimits.rowBytes + references * RecordLimits.referenceBytes
            + (assets ?? storedAssets.count) * RecordLimits.assetRowBytes
    }
}

/// A zone's row in its database's feed.
///
/// The body's layout: the zone's id, and the sealed `RecordZone`. So one that is damaged can be deleted. One that was
/// deleted has the id, by which it is known that it was another's, and sealed what is told of its deletion.
enum StoredZone {
    static func body(id: String, sealed: [UInt8]) -> [UInt8] { [UInt8](id.utf8) + sealed }

    /// - Returns: Nil: not even the id can be read.
    static func parts(of body: [UInt8]) -> (id: String, sealed: ArraySlice<UInt8>)? {
        let id = String(decoding: body.prefix(ZoneID.byteCount), as: UTF8.self)
        guard ZoneID.isID(id) else { return nil }
        return (id, body.dropFirst(ZoneID.byteCount))
    }
}
