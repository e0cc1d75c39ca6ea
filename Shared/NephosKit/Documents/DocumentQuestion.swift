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
            return self.news(.serverChange, gone, isFirst: false)
        }
    }

    /// Once all has been answered: a folder may be among the last.
    private func offerUnknown(in documents: DocumentTransaction) throws {
        let unknown = try documents.unknownItems()
        guard !unknown.isEmpty else { return }
        // What lies in the trash has a name only while it is made: by then what lives has its own.
        let byID = Dictionary(unknown.compactMap { row in row.item.map { (row.name, $0) } }) { $1 }
        let trashed = Set(unknown.map(\.name).filter { Self.liesInTrash($0, byID) })
        for isTrashed in [false, true] {
            let part = unknown.filter { trashed.contains($0.name) == isTrashed }
            try offer(Self.creations(of: part, documents), in: documents)
        }
        // Now they are read as what waits makes of them.
        for item in unknown { try documents.endDoubt(of: item.name) }
    }

    /// Whether the item, or a folder of these that it is in, lies in the trash.
    private static func liesInTrash(_ name: ItemName, _ items: [ItemName: WireDocumentItem]) -> Bool {
        var next = name
        for _ in 0..<(4 * DocumentLimits.depthMax) {
            guard let item = items[next] else { return false }
            guard !item.hasTrash else { return true }
            guard let parent = DocumentID(bytes: item.parent) else { return false }
            next = parent.name
        }
        return false
    }
}
