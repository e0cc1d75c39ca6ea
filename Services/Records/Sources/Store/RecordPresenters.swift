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
    var isPublic = false
    /// Chunks that assets rest on and that were found damaged.
    var lostChunks = 0
    /// No asset can be fetched at all.
    var isContentMissing = false

    var audience: ScopeAudience { isPublic ? .app : .reader }

    /// A `DatabaseInfo`.
    func info(_ head: ScopeHead) throws -> [UInt8] {
        var info = WireDatabaseInfo()
        info.lostChunks = UInt32(clamping: lostChunks)
        info.contentMissing = isContentMissing
        return try info.serializedBytes()
    }

    /// A `RecordZone`.
    func write(_ item: FeedItem, to body: inout FieldWriter) throws -> PresentedItem {
        guard let parts = StoredZone.parts(of: item.body) else { return PresentedItem(isUnreadable: !item.deleted) }
        guard !item.deleted else { return opener.presentDeletion(item, parts.sealed, to: &body) }
        return try opener.present(item, parts.sealed, digestKey, to: &body)
    }
}

/// A zone as devices read it: its records opened.
struct ZonePresenter: ScopePresenter {
    let opener: RecordOpener
    /// Empty: nothing was ever written to it.
    let digestKey: [UInt8]
    let clientToken: [UInt8]
    /// Of a public database, all accounts of the app read it alike; how much there is besides what they read is nobody's
    /// business.
    var isPublic = false

    var audience: ScopeAudience { isPublic ? .app : .reader }

    var placeSeal: PlaceSeal? { isPublic ? PlaceSeal(opener.scope, opener.key) : nil }

    /// A `Record`.
    func write(_ item: FeedItem, to body: inout FieldWriter) throws -> PresentedItem {
        guard let parts = StoredRecord.parts(of: item.body) else { return PresentedItem(isUnreadable: !item.deleted) }
        guard !item.deleted else { return opener.presentDeletion(item, parts.sealed, to: &body) }
        return try opener.present(item, parts.sealed, digestKey, to: &body)
    }

    /// A `ZoneInfo`.
    func info(_ head: ScopeHead) throws -> [UInt8] {
        var info = WireZoneInfo()
        info.recordCountMax = UInt32(RecordLimits.recordCountMax)
        if !isPublic {
            info.recordCount = UInt32(clamping: head.liveCount)
            info.countedBytes = UInt64(clamping: head.liveBytes)
        }
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
    ) throws -> PresentedItem {
        guard let opened = try self.body(of: item.name, sealed) else { return PresentedItem(isUnreadable: true) }
        body.append(encoded: opened)
        return PresentedItem(digest: SetDigest(ofItem: item.name, body: opened, key: digestKey))
    }
}
