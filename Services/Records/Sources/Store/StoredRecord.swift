internal import Foundation
internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// A record's row in the feed. What its readers see of it, the row says by itself (`ItemShowing`).
///
/// The body's layout: 1 byte, 1 (2 of what a restore had lost and a device has offered again), 1 byte with a count, so many
/// change tags of 16 bytes that the record had before, the newest first, and the sealed `Record`. A deleted one has, sealed
/// as well, what is told of its deletion: by the tags a save that comes late is known again.
enum StoredRecord {
    private enum Layout {
        static let plain: UInt8 = 1
        static let offered: UInt8 = 2
    }

    static func body(former: [[UInt8]], sealed: [UInt8], isOffered: Bool = false) -> [UInt8] {
        let former = former.prefix(RecordLimits.knownVersionsMax)
        return [isOffered ? Layout.offered : Layout.plain, UInt8(former.count)] + former.joined() + sealed
    }

    /// Notes that it is as it was before a restore.
    static func noteOffered(_ body: inout [UInt8]) { body[0] = Layout.offered }

    /// - Returns: Nil: it is damaged.
    static func parts(
        of body: [UInt8]
    ) -> (former: [[UInt8]], sealed: ArraySlice<UInt8>, isOffered: Bool)? {
        guard body.count >= 2, [Layout.plain, Layout.offered].contains(body[0]) else { return nil }
        let end = 2 + Int(body[1]) * versionBytes
        guard body.count >= end else { return nil }
        let former = stride(from: 2, to: end, by: versionBytes).map { Array(body[$0..<$0 + versionBytes]) }
        return (former, body[end...], body[0] == Layout.offered)
    }

    static let versionBytes = ChangeRule.versionBytes
}

extension ItemShowing {
    /// What readers of the zone's feed see of a record from now on, which is one that the feed has, or has not: of one that
    /// they may have that it is gone.
    func after(isInFeed: Bool) -> ItemShowing { isInFeed ? .item : self == .nothing ? .nothing : .absence }
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
/// The body's layout: the zone's id, and the sealed `RecordZone`. One that was deleted has the id, by which it is known that it was another's, and sealed what is told of its deletion.
enum StoredZone {
    static func body(id: String, sealed: [UInt8]) -> [UInt8] { [UInt8](id.utf8) + sealed }

    /// - Returns: Nil: not even the id can be read.
    static func parts(of body: [UInt8]) -> (id: String, sealed: ArraySlice<UInt8>)? {
        let id = String(decoding: body.prefix(ZoneID.byteCount), as: UTF8.self)
        guard ZoneID.isID(id) else { return nil }
        return (id, body.dropFirst(ZoneID.byteCount))
    }
}
