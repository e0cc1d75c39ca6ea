internal import NephosCore
internal import NephosPredicates
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

private import struct Foundation.Data

/// A container as devices read it: its items opened.
struct ContainerPresenter: ScopePresenter {
    let opener: ContainerOpener
    /// Empty: nothing was ever written to it.
    let digestKey: [UInt8]
    let rules: Container.Rules
    /// Another app alone changes it.
    let isReadOnly: Bool
    let countedBytes: UInt64
    let trashRetention: Duration
    let versionRetention: Duration
    /// 0: it counts on the plan.
    let classBytesMax: UInt64
    /// Chunks that contents rest on and that were found damaged.
    let lostChunks: Int
    /// No content can be fetched at all.
    let isContentMissing: Bool

    /// A `DocumentItem`.
    func write(_ item: FeedItem, to body: inout FieldWriter) throws -> PresentedItem {
        guard !item.deleted else { return PresentedItem() }
        guard let opened = try opener.body(of: item) else { return PresentedItem(isUnreadable: true) }
        body.append(encoded: opened)
        return PresentedItem(digest: SetDigest(ofItem: item.name, body: opened, key: digestKey))
    }

    /// A `ContainerInfo`.
    func info(_ head: ScopeHead) throws -> [UInt8] {
        var info = WireContainerInfo()
        info.nameRule = UInt32(rules.names.rawValue)
        info.containerClass = rules.containerClass.wire
        info.readOnly = isReadOnly
        info.countedBytes = countedBytes
        info.trashDays = UInt32(clamping: trashRetention.components.seconds / 86_400)
        info.versionDays = UInt32(clamping: versionRetention.components.seconds / 86_400)
        info.classBytesMax = classBytesMax
        info.itemCount = UInt32(clamping: head.liveCount)
        info.itemCountMax = UInt32(DocumentLimits.itemCountMax)
        info.folderCountMax = UInt32(DocumentLimits.folderCountMax)
        info.lostChunks = UInt32(clamping: lostChunks)
        info.contentMissing = isContentMissing
        return try info.serializedBytes()
    }
}
