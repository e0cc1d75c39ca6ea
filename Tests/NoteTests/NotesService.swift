import NephosBus
import NephosCore
import NephosServiceKit
import NephosStorage
import NephosWire
import SwiftProtobuf

import struct Foundation.Data

/// The smallest service there can be: notes, one text under each name; of two the one that arrives last stays.
///
/// One message, `Change`, sets a note or deletes it. It has one scope for each container that an app lists: each
/// account's own, or as a board the app's, which everybody reads but those whom a note `barred/` and their account
/// names.
final class NotesService: CloudService {
    /// Bytes of one note.
    static let bytesMax = 1000
    private static let barred = "barred/"

    // The place of records, which a test cloud has room for.
    let name = ServiceName.records

    private let isBoard: Bool

    init(isBoard: Bool = false) { self.isBoard = isBoard }

    func register(on router: inout Router) {
        router.write(WireChange.self) { [unowned self] in try change($0, $1, $2) }
    }

    private func change(
        _ request: WireChange, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireNotification {
        let caller = try context.requireCaller()
        let scope = try self.scope(of: caller)
        let note = Note(request)
        try note.name.check()
        guard note.text?.count ?? 0 <= Self.bytesMax else {
            throw CloudError(
                .quotaExceeded, "The note is too long. Shorten it.", details: ["bytes_max": "\(Self.bytesMax)"])
        }
        let stored = FeedItem(
            name: note.name, deleted: note.text == nil, digest: note.digest, size: note.body.count, body: note.body)
        let change = try transaction.put(scope, [stored])
        var notification = WireNotification(name, change)
        notification.deviceID = caller.device.rawValue
        notification.changes = [request]
        notification.changes[0].body = Data(note.body)
        notification.accessChanged = note.name.rawValue.hasPrefix(Self.barred)
        notification.operationID = Data(context.id.bytes)
        transaction.publish(OutgoingEvent(change, notification: Frame(encoding: notification)))
        return notification
    }

    func presenter(
        of scope: ScopeName, for caller: Caller, in transaction: any HandlerTransaction
    ) throws -> any ScopePresenter {
        let barred = try transaction.item(scope, ItemName(Self.barred + caller.account.rawValue))
        guard try scope == self.scope(of: caller), barred.map(\.deleted) ?? true else {
            throw CloudError(.missingEntitlement, "The app has no such notes.")
        }
        var isOpen = isBoard
        try transaction.items(scope, after: 0) { note in
            isOpen = isOpen && (note.deleted || !note.name.rawValue.hasPrefix(Self.barred))
            return isOpen
        }
        return NotesPresenter(audience: isOpen ? .app : .reader)
    }

    private func scope(of caller: Caller) throws(CloudError) -> ScopeName {
        guard let container = caller.entitlements.containers.first,
            caller.entitlements.include(container, of: name)
        else { throw CloudError(.missingEntitlement, "The app has no notes.") }
        return ScopeName(isBoard ? Owner(caller.app) : Owner(caller.account), container)
    }
}

/// Notes as devices read them: as they are stored.
private struct NotesPresenter: ScopePresenter {
    let digestKey = Note.digestKey
    let audience: ScopeAudience

    func write(_ item: FeedItem, to body: inout FieldWriter) throws -> PresentedItem {
        body.append(encoded: item.body)
        return PresentedItem(digest: item.deleted ? nil : item.digest)
    }
}

/// A note, as both sides have it.
struct Note: Hashable {
    static let digestKey: [UInt8] = [1]

    var name: ItemName
    /// Nil: it was deleted.
    var text: [UInt8]?

    init(name: ItemName, text: [UInt8]?) {
        self.name = name
        self.text = text
    }

    init(_ change: WireChange) {
        name = ItemName(change.item)
        guard !change.deleted else { return }
        let body = try? WireChange(serializedBytes: change.body)
        text = body.map { [UInt8]($0.body) } ?? []
    }

    /// The share of a live note in the digest.
    var digest: SetDigest { SetDigest(ofItem: Self.digestKey + [UInt8](name.utf8) + [0] + (text ?? [])) }

    /// What lies in the feed. Never empty: a change without a body has to be fetched.
    var body: [UInt8] { wire.body.isEmpty ? [] : [UInt8](wire.body) }

    /// The request that makes it so.
    var wire: WireChange {
        var inner = WireChange()
        inner.item = name.rawValue
        inner.body = Data(text ?? [])
        var change = WireChange()
        change.item = name.rawValue
        change.deleted = text == nil
        change.body = (try? inner.serializedBytes()) ?? Data()
        return change
    }
}
