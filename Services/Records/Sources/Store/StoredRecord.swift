internal import Foundation
internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// A record's row in the feed.
///
/// The body's layout: 1 (the layout's number; or 2 of what a restore had lost and a device has offered again), 1 byte with a
/// count, so many change tags of 16 bytes that the record had before, the newest first, and the sealed `Record`. A deleted
/// one has, sealed as well, what is told of its deletion: by the tags a save that comes late is known again.
enum StoredRecord {
    private static let layout: UInt8 = 1
    private static let offeredLayout: UInt8 = 2

    static func body(former: [[UInt8]], sealed: [UInt8], isOffered: Bool = false) -> [UInt8] {
        let former = former.prefix(RecordLimits.knownVersionsMax)
        return [isOffered ? offeredLayout : layout, UInt8(former.count)] + former.joined() + sealed
    }

    /// - Returns: Nil: it is damaged.
    static func parts(
        of body: [UInt8]
    ) -> (former: [[UInt8]], sealed: ArraySlice<UInt8>, isOffered: Bool)? {
        guard body.count >= 2, body[0] == layout || body[0] == offeredLayout else { return nil }
        let end = 2 + Int(body[1]) * versionBytes
        guard body.count >= end else { return nil }
        let former = stride(from: 2, to: end, by: versionBytes).map { Array(body[$0..<$0 + versionBytes]) }
        return (former, body[end...], body[0] == offeredLayout)
    }

    static let versionBytes = ChangeRule.versionBytes
}

extension WireRecord {
    /// What the record counts, in bytes.
    ///
    /// - Parameters:
    ///   - encoded: Bytes of the record as it is encoded.
    ///   - targets: How many records it is deleted with, where that is known.
    func countedBytes(_ name: ItemName, encoded: Int, targets: Int? = nil) -> Int {
        let references = (targets ?? cascadingTargets.count) + (parent.isEmpty ? 0 : 1)
        return name.utf8.count + encoded + RecordLimits.rowBytes + references * RecordLimits.referenceBytes
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
