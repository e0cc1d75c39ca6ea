internal import Foundation
internal import NephosBulk
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What the service says of who has done something in a container, and when, with a seal by which it knows its own words
/// again: after a restore devices offer what was lost, and it is as it was.
///
/// Nobody else can make the seal. It holds for what it was made for alone, an item of a container with one content or one
/// deletion; and only for what lies before the present epoch, or was in quarantine: what else was done since is not lost, and
/// no device does it again under another's name.
struct Stamp {
    /// What was done.
    enum Deed {
        /// The item was made.
        case creation(WireItemKind)
        case content(WireDocumentContent)
        case rendition(WireDocumentContent)
        /// It came into the trash, with this batch.
        case deletion(Data)
    }

    var app: String
    var device: String
    /// Nanoseconds since 1970.
    var time: Int64

    var maker: CountChanges.Maker { CountChanges.Maker(app: AppID(app), device: DeviceID(device)) }

    /// - Returns: 0: the service has no key.
    func seal(_ deed: Deed, of item: DocumentID, in container: Container) throws -> UInt64 {
        try words(deed, of: item, in: container).seal(in: container.transaction)
    }

    /// Whether the service has said this in a history that it has lost.
    func isOwn(_ seal: UInt64, _ deed: Deed, of item: DocumentID, in container: Container, at now: Timestamp) throws
        -> Bool
    {
        try words(deed, of: item, in: container).areOwn(
            seal, at: time, ofPartition: container.scope.partition, in: container.transaction, now: now)
    }

    /// Whether the service has said this, in whichever history: of what was here, and did not open.
    func isOwn(_ seal: UInt64, _ deed: Deed, of item: DocumentID, in container: Container) throws -> Bool {
        try words(deed, of: item, in: container).areOwn(seal, in: container.transaction)
    }

    private func words(_ deed: Deed, of item: DocumentID, in container: Container) -> OwnWords {
        var words = OwnWords(.documents, of: container.scope)
        words.add(item.bytes)
        words.add(deed)
        words.add(app)
        words.add(device)
        words.add(time)
        return words
    }
}

extension OwnWords {
    fileprivate mutating func add(_ deed: Stamp.Deed) {
        switch deed {
        case .creation(let kind):
            add("creation")
            add(Int64(kind.rawValue))
        case .content(let content):
            add("content")
            add(content)
        case .rendition(let content):
            add("rendition")
            add(content)
        case .deletion(let batch):
            add("deletion")
            add(batch)
        }
    }

    private mutating func add(_ content: WireDocumentContent) {
        add(content.version)
        add(content.base)
        add(Int64(bitPattern: content.length))
        add(content.inline)
        add(content.root)
        add(Int64(content.depth))
        add(content.modified)
    }
}

extension Batch {
    var stamp: Stamp {
        Stamp(app: writer.app.rawValue, device: writer.device.rawValue, time: writer.now.nanoseconds)
    }

    /// A content as it is stored: with who has committed it, and when. Of one that is offered again that is as it was.
    func signed(
        _ given: WireDocumentContent, of id: DocumentID, as deed: (WireDocumentContent) -> Stamp.Deed
    ) throws -> WireDocumentContent {
        var content = ContentRule.canonical(given)
        let former = Stamp(app: given.appID, device: given.deviceID, time: given.committed)
        let isFormer = try isOffered && isOwn(former, given.seal, deed(content), of: id)
        let stamp = isFormer ? former : stamp
        content.deviceID = stamp.device
        content.appID = stamp.app
        content.committed = stamp.time
        content.seal = isFormer ? given.seal : try stamp.seal(deed(content), of: id, in: container)
        return content
    }

    func made(_ given: WireMakerNote, _ kind: WireItemKind, _ id: DocumentID) throws -> WireMakerNote {
        let former = Stamp(app: given.appID, device: given.deviceID, time: given.made)
        let isFormer = try isOffered && isOwn(former, given.seal, .creation(kind), of: id)
        let stamp = isFormer ? former : stamp
        var note = WireMakerNote()
        note.deviceID = stamp.device
        note.appID = stamp.app
        note.made = stamp.time
        note.seal = isFormer ? given.seal : try stamp.seal(.creation(kind), of: id, in: container)
        return note
    }

    /// It came into the trash after it had come to its place, also by a clock that was set back meanwhile: by these two
    /// times it is told after a restore which was the later one.
    func trashed(
        _ given: WireTrashNote, _ batch: Data, _ id: DocumentID, placed: Int64
    ) throws -> WireTrashNote {
        let former = Stamp(app: given.appID, device: given.deviceID, time: given.trashed)
        let isFormer = try isOffered && isOwn(former, given.seal, .deletion(batch), of: id)
        var stamp = isFormer ? former : stamp
        if !isFormer { stamp.time = max(stamp.time, placed) }
        var note = WireTrashNote()
        note.batch = batch
        note.deviceID = stamp.device
        note.appID = stamp.app
        note.trashed = stamp.time
        note.seal = isFormer ? given.seal : try stamp.seal(.deletion(batch), of: id, in: container)
        return note
    }

    /// From when on what was done at that time is kept. What is done now, or was by a clock that was ahead, is as old as the
    /// service says: the one is not gone at once, and the other does not stay for years.
    func keptSince(_ time: Int64) -> Timestamp {
        time < writer.now.nanoseconds ? Timestamp(stamped: time) : writer.retentionStart
    }

    private func isOwn(_ stamp: Stamp, _ seal: UInt64, _ deed: Stamp.Deed, of id: DocumentID) throws -> Bool {
        returning.contains(id)
            ? try stamp.isOwn(seal, deed, of: id, in: container)
            : try stamp.isOwn(seal, deed, of: id, in: container, at: writer.now)
    }
}

extension Timestamp {
    /// - Parameter nanoseconds: Since 1970.
    init(stamped nanoseconds: Int64) {
        self.init(milliseconds: UInt64(clamping: nanoseconds / 1_000_000))
    }
}

extension WireMakerNote {
    var maker: CountChanges.Maker { CountChanges.Maker(app: AppID(appID), device: DeviceID(deviceID)) }
}
