internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What became of items: a device asks when a listing lacks some of those that it has.
///
/// Off the loop: a thousand rows are looked up. What is in the items is not read.
extension DocumentsService {
    /// What a question may cost, in calls.
    static let findReserves = 190

    struct AskedItems: Sendable {
        var scope: ScopeName
        var items: [DocumentID]
    }

    /// - Throws: ``CloudError`` `.missingEntitlement`, `.invalidArguments`, `.limitExceeded`.
    func beginFindItems(
        _ request: WireFindItems, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<AskedItems> {
        let container = try openContainer(request.container, context.requireCaller(), transaction)
        guard request.items.count <= DocumentLimits.askedMax else {
            throw CloudError(
                .limitExceeded, "Too many items at once. Divide them.",
                details: ["maximum": "\(DocumentLimits.askedMax)"])
        }
        let items = try request.items.map { try Self.item($0, "items") }
        // Looking for what is not there is work too.
        transaction.charge(rows: items.count)
        return .read(AskedItems(scope: container.scope, items: items))
    }

    @Sendable static func readItems(_ asked: AskedItems, _ feed: any FeedReader) throws -> Frame {
        var reply = WireFindItemsReply()
        for (index, id) in asked.items.enumerated() where !id.isFixed {
            if let share = try feed.share(asked.scope, id.name) {
                if !share.isLive { reply.removed.append(UInt32(index)) }
            } else if try EndedRows.has(id, in: asked.scope, feed) {
                reply.removed.append(UInt32(index))
            } else {
                reply.unknown.append(UInt32(index))
            }
        }
        reply.token = WireChangeToken(try feed.head(asked.scope).token)
        return Frame(encoding: reply)
    }
}
