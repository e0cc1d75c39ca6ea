internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// What lies in a folder, by digests: a device goes down to where it has something else, and reads nothing besides.
///
/// Off the loop: a page has thousands of rows.
extension DocumentsService {
    /// What a page may cost, in calls: of 2048 folders, each with three rows and about a hundred bytes, or 1 MiB of items.
    static let digestsReserve = 450

    struct AskedDigests: Sendable {
        var scope: ScopeName
        var opener: ContainerOpener
        var folder: DocumentID
        var after: DocumentID?
        var limit: Int
        /// Empty: what is in the folder.
        var items: [DocumentID]
    }

    /// - Throws: ``CloudError`` `.missingEntitlement`, `.invalidArguments`, `.limitExceeded`.
    func beginListItemDigests(
        _ request: WireListItemDigests, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<AskedDigests> {
        let container = try openContainer(request.container, context.requireCaller(), transaction)
        guard request.items.count <= DocumentLimits.digestsAskedMax else {
            throw CloudError(
                .limitExceeded, "Too many items at once. Divide them.",
                details: ["maximum": "\(DocumentLimits.digestsAskedMax)"])
        }
        let items = try request.items.map { try Self.item($0, "items") }
        guard Set(items).count == items.count else {
            throw CloudError(
                .invalidArguments, "Ask for each item once.", details: ["argument": "items"])
        }
        // Looking for what is not there is work too.
        transaction.charge(rows: items.count)
        let limit = request.itemsMax == 0 ? Int.max : Int(request.itemsMax)
        return .read(
            AskedDigests(
                scope: container.scope, opener: try container.opener(),
                folder: request.items.isEmpty ? try Self.item(request.folder, "folder") : .top,
                after: request.after.isEmpty ? nil : try Self.item(request.after, "after"),
                limit: min(limit, DocumentLimits.digestsMax),
                items: items)
        )
    }

    @Sendable static func readDigests(
        _ asked: AskedDigests, _ feed: any FeedReader
    ) throws -> SnapshotReply {
        var unreadable: [FeedItem] = []
        var reply = WireListItemDigestsReply()
        let place = ContainerRows.place(of: asked.scope)
        let head = try feed.head(asked.scope)
        reply.token = WireChangeToken(head.token)
        reply.digest = Data(head.digest.bytes)
        var ids = asked.items
        if ids.isEmpty {
            let folder = try ContainerRows.tree(of: asked.folder, at: place, in: feed)
            reply.folderDigest = Data((folder?.digest ?? .empty).bytes)
            ids = try children(in: asked, at: place, feed, &reply)
        }
        var bytesLeft = DocumentLimits.replyBytesMax
        for id in ids {
            var entry = WireListItemDigestsReply.Entry()
            entry.item = Data(id.bytes)
            if let tree = try ContainerRows.tree(of: id, at: place, in: feed), tree.digest != .empty {
                entry.folderDigest = Data(tree.digest.bytes)
            }
            if id != .documents {
                guard let share = try feed.share(asked.scope, id.name), share.isLive else { continue }
                entry.digest = Data(share.digest.bytes)
                if !asked.items.isEmpty, let item = try feed.item(asked.scope, id.name) {
                    // One is always told, or whoever asks for the rest would ask for ever.
                    guard item.body.count <= bytesLeft || reply.entries.isEmpty else {
                        reply.more = true
                        break
                    }
                    bytesLeft -= item.body.count
                    guard let body = try asked.opener.body(of: item) else {
                        unreadable.append(item)
                        continue
                    }
                    entry.body = Data(body)
                }
            }
            reply.entries.append(entry)
        }
        return SnapshotReply(Frame(encoding: reply), of: asked.scope, unreadable: unreadable)
    }

    /// The ids of a page of the folder's items; of the container's top `Documents` is one, which has no row.
    private static func children(
        in asked: AskedDigests, at place: [SQLValue], _ feed: any FeedReader, _ reply: inout WireListItemDigestsReply
    ) throws -> [DocumentID] {
        var ids = try ContainerRows.children(
            of: asked.folder, after: asked.after, limit: asked.limit + 1, at: place, in: feed)
        if asked.folder == .top, asked.after.map({ $0 < .documents }) ?? true { ids.insert(.documents, at: 0) }
        reply.more = ids.count > asked.limit
        return Array(ids.prefix(asked.limit))
    }
}
