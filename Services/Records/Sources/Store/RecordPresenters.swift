internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

private import struct Foundation.Data

/// A database as devices read it: its zones opened.
struct DatabasePresenter: ScopePresenter {
    let opener: RecordOpener
    /// Empty: nothing was ever written to it.
    let digestKey: [UInt8]

    /// A `RecordZone`.
    func write(_ item: FeedItem, to body: inout FieldWriter) throws -> PresentedItem {
        guard let parts = StoredZone.parts(of: item.body) else { return PresentedItem(isDamaged: !item.deleted) }
        guard !item.deleted else { return opener.presentDeletion(item, parts.sealed, to: &body) }
        return opener.present(item, parts.sealed, digestKey, to: &body)
    }
}

/// A zone as devices read it: its records opened.
struct ZonePresenter: ScopePresenter {
    let opener: RecordOpener
    /// Empty: nothing was ever written to it.
    let digestKey: [UInt8]
    let clientToken: [UInt8]

    /// A `Record`.
    func write(_ item: FeedItem, to body: inout FieldWriter) throws -> PresentedItem {
        guard let parts = StoredRecord.parts(of: item.body) else { return PresentedItem(isDamaged: !item.deleted) }
        guard !item.deleted else { return opener.presentDeletion(item, parts.sealed, to: &body) }
        return opener.present(item, parts.sealed, digestKey, to: &body)
    }

    /// A `ZoneInfo`.
    func info(_ head: ScopeHead) throws -> [UInt8] {
        var info = WireZoneInfo()
        info.recordCount = UInt32(clamping: head.liveCount)
        info.recordCountMax = UInt32(RecordLimits.recordCountMax)
        info.countedBytes = UInt64(clamping: head.liveBytes)
        info.clientToken = Data(clientToken)
        return try info.serializedBytes()
    }
}

extension RecordOpener {
    /// That it was deleted counts; who did it, and when, is told where it can be read.
    fileprivate func presentDeletion(
        _ item: FeedItem, _ sealed: ArraySlice<UInt8>, to body: inout FieldWriter
    ) -> PresentedItem {
        if !sealed.isEmpty, let opened = try? open(sealed, as: .item(item.name)) { body.append(encoded: opened) }
        return PresentedItem()
    }

    fileprivate func present(
        _ item: FeedItem, _ sealed: ArraySlice<UInt8>, _ digestKey: [UInt8], to body: inout FieldWriter
    ) -> PresentedItem {
        guard let opened = try? open(sealed, as: .item(item.name)) else { return PresentedItem(isDamaged: true) }
        body.append(encoded: opened)
        return PresentedItem(digest: SetDigest(ofItem: item.name, body: opened, key: digestKey))
    }
}
