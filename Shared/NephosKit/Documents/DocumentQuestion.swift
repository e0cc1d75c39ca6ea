import Foundation
import NephosBus
import NephosCore
import NephosWire
import SwiftProtobuf

/// What became of items that a listing lacks: asked of the service in its turn, as a change is sent.
///
/// So it outlives its process, is tried again after growing pauses, and is told of where something waits. In the outbox it
/// begins with a byte that no message begins with.
struct DocumentQuestion {
    private static let mark: UInt8 = 0

    var request: WireFindItems

    init(_ items: [DocumentID], container: String) {
        request = WireFindItems()
        request.container = container
        request.items = items.map(\.wire)
    }

    /// - Returns: Nil: the payload is of a change.
    init?(_ payload: Data) throws {
        guard payload.first == Self.mark else { return nil }
        request = try WireFindItems(serializedBytes: payload.dropFirst())
    }

    var payload: Data { get throws { Data([Self.mark]) + (try request.serializedData()) } }

    var items: [DocumentID] { request.items.compactMap { DocumentID(bytes: $0) } }
}

extension DocumentsModel {
    /// Asks what became of the items of which nobody was asked yet, if there are any.
    func ask(in documents: DocumentTransaction) throws {
        while case let items = try documents.unasked(limit: DocumentLimits.askedMax), !items.isEmpty {
            let question = DocumentQuestion(items, container: name)
            let position = try documents.rows.append(
                question.payload, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
            try documents.setAsked(items, at: position)
        }
    }

    /// - Returns: Nil: the reply does not fit.
    func receipt(
        _ reply: Frame, to question: DocumentQuestion, in rows: ScopeTransaction
    ) throws -> PushReceipt? {
        let items = question.items
        guard let reply = try? reply.decode(WireFindItemsReply.self),
            (reply.removed + reply.unknown).allSatisfy({ Int($0) < items.count })
        else { return nil }
        let token = ChangeToken(reply.token)
        let documents = DocumentTransaction(rows)
        return PushReceipt(token: token, previousSequence: token.sequence) { isCurrent, state in
            // What another history knows of them says nothing.
            guard isCurrent else {
                try documents.askAnew()
                try self.ask(in: documents)
                return nil
            }
            // Of some of them the server may have told meanwhile: that counts.
            let gone = try reply.removed.map { items[Int($0)].name }.filter { try documents.doubt(of: $0) != nil }
            for name in gone { try documents.endDoubt(of: name) }
            for index in reply.unknown { try documents.setUnknown(items[Int(index)]) }
            if try !documents.hasQuestions() { try self.offerUnknown(in: documents) }
            var told = ToldNames()
            for name in gone { told.add(name) }
            return told.news()
        }
    }

    /// Once all has been answered: a folder may be among the last.
    private func offerUnknown(in documents: DocumentTransaction) throws {
        // What lies in the trash has a name only while it is made: by then what lives has its own.
        for isTrashed in [false, true] {
            let offers = StagedOffers(in: documents.rows)
            var creations = LostCreations(documents) { id in
                guard let item = try documents.unknownItem(id), try Self.liesInTrash(item, documents) == isTrashed
                else { return nil }
                return item
            }
            try documents.forEachUnknown { item in
                guard let id = DocumentID(item.name) else { return }
                for change in try creations.creations(from: id) { try offers.add(change) }
            }
            try offer(offers, in: documents)
        }
        // Now they are read as what waits makes of them.
        try documents.endUnknown()
    }

    /// Whether the item, or a folder that the service knows nothing of either and that it is in, lies in the trash.
    private static func liesInTrash(
        _ item: DocumentTransaction.Synced, _ documents: DocumentTransaction
    ) throws -> Bool {
        var next = item.item
        for _ in 0..<(4 * DocumentLimits.depthMax) {
            guard let item = next else { return false }
            guard !item.hasTrash else { return true }
            guard let parent = DocumentID(bytes: item.parent) else { return false }
            next = try documents.unknownItem(parent)?.item
        }
        return false
    }
}
