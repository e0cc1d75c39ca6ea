internal import Foundation
internal import NephosBulk
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// Links to contents, as devices make, list and end them.
extension DocumentsService {
    /// Makes a link to a content of a file. It uses the content as a version does: what becomes of the file, the content
    /// stays for the link, and counts on the plan.
    ///
    /// - Throws: ``CloudError`` `.permissionFailure`: the deployment publishes nothing; `.missingEntitlement`,
    ///   `.invalidArguments`, `.unknownItem`, `.alreadyExists` (the id is another link's), `.limitExceeded`,
    ///   `.quotaExceeded`.
    func publishItem(
        _ request: WirePublishItem, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WirePublishItemReply {
        let caller = try context.requireCaller()
        let container = try openContainer(request.container, caller, transaction)
        try container.requireChanged(by: caller.app)
        guard let publishing = configuration.publishing else { throw CloudError.nothingPublished }
        guard let id = DocumentID(bytes: request.link), request.secretHash.count == LinkSecret.hashBytes else {
            throw CloudError(
                .invalidArguments, "A link has an id of 16 bytes, and a secret's hash of 32.",
                details: ["argument": "link"])
        }
        let hash = [UInt8](request.secretHash)
        var reply = WirePublishItemReply()
        reply.urlPrefix = publishing.url + LinkSecret.path
        if let known = try LinkRows.find(id, of: container.scope, in: transaction) {
            guard try LinkRows.isSecret(hash, of: known, in: transaction), known.expires > context.now,
                let record = try container.open(known)
            else { throw Self.taken }
            reply.link = record.link
            return reply
        }
        guard try !LinkRows.isTaken(hash, in: transaction) else { throw Self.taken }
        let lifetime = try Self.lifetime(request.lifetimeSeconds, publishing)
        guard try LinkRows.count(of: container.scope.owner, in: transaction) < publishing.linksMax else {
            throw CloudError(
                .limitExceeded, "The account has too many links. Revoke some of them.",
                details: ["maximum": "\(publishing.linksMax)"])
        }
        var record = try record(of: request, in: container, by: caller)
        record.link.link = request.link
        record.link.created = context.now.milliseconds
        record.link.expires = context.now.advanced(by: lifetime).milliseconds
        try contentUses(container, caller).take(
            [record.used(rowBytes: UInt64(DocumentLimits.rowBytes))], nodes: [], from: nil)
        try LinkRows.add(
            LinkRows.Link(
                scope: container.scope, id: id, app: caller.app,
                expires: Timestamp(milliseconds: record.link.expires), counted: UInt64(DocumentLimits.rowBytes),
                sealed: try container.seal([UInt8](record.serializedData()), as: .link(id))),
            secretHash: hash, in: transaction)
        reply.link = record.link
        return reply
    }

    private static let taken = CloudError(
        .alreadyExists, "The link's id or its secret is another link's. Choose others at random.")

    private static func lifetime(
        _ seconds: UInt64, _ publishing: DocumentsConfiguration.Publishing
    ) throws(CloudError) -> Duration {
        guard seconds > 0 else { return min(DocumentsConfiguration.Publishing.lifetime, publishing.lifetimeMax) }
        let lifetime = Duration.seconds(Int64(clamping: min(seconds, 1 << 40)))
        guard lifetime <= publishing.lifetimeMax else {
            throw CloudError(
                .limitExceeded, "No link of this deployment is good for so long. Choose a shorter time.",
                details: ["seconds_max": "\(publishing.lifetimeMax.milliseconds / 1000)"])
        }
        return lifetime
    }

    /// What the link is of.
    private func record(
        of request: WirePublishItem, in container: Container, by caller: Caller
    ) throws -> WireLinkRecord {
        guard let id = DocumentID(bytes: request.item), let item = try container.item(id), !item.hasTrash else {
            throw CloudError(.unknownItem, "The container has no such item.", details: ["item": request.item.hex])
        }
        guard item.kind == .file else {
            throw CloudError(
                .invalidArguments, "Only a file can be published.", details: ["argument": "item"])
        }
        var record = WireLinkRecord()
        record.content = item.content
        if !request.version.isEmpty, request.version != item.content.version {
            guard let version = try container.rows.version([UInt8](request.version), of: id),
                let content = try container.open(version, of: id)
            else {
                throw CloudError(
                    .unknownItem, "The item has no such version, or it is not kept any more.",
                    details: ["item": request.item.hex])
            }
            record.content = content
        }
        record.link.item = request.item
        record.link.version = record.content.version
        record.link.name = item.name
        record.link.length = record.content.length
        record.link.deviceID = caller.device.rawValue
        record.link.appID = caller.app.rawValue
        return record
    }

    /// What the list may cost, in calls: of a thousand links, each with the 4 KiB of a small file's content.
    static let linksReserve = 1000

    func listLinks(
        _ request: WireListLinks, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListLinksReply {
        let caller = try context.requireCaller()
        let container = try openContainer(request.container, caller, transaction)
        var reply = WireListLinksReply()
        let links = try LinkRows.all(of: container.scope, at: context.now, in: transaction)
        // What is opened for it, and not sent: a link has the content of a small file.
        transaction.charge(rows: links.reduce(0) { $0 + $1.sealed.count } / RequestCost.bytesPerRow)
        reply.links = try links.compactMap { try container.open($0)?.link }
            .sorted { ($0.created, $0.link.hex) > ($1.created, $1.link.hex) }
        return reply
    }

    /// Ends a link now: it opens nothing from the moment of the reply.
    func revokeLink(
        _ request: WireRevokeLink, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRevokeLinkReply {
        let caller = try context.requireCaller()
        let container = try openContainer(request.container, caller, transaction)
        guard let id = DocumentID(bytes: request.link) else {
            throw CloudError(.invalidArguments, "A link is named by 16 bytes.", details: ["argument": "link"])
        }
        var reply = WireRevokeLinkReply()
        guard let link = try LinkRows.find(id, of: container.scope, in: transaction) else { return reply }
        reply.wasThere = link.expires > context.now
        if try !remove(link, in: container) { try LinkRows.end(link, in: transaction) }
        transaction.afterCommit { [weak self] in self?.transfers.removeSoon() }
        return reply
    }

    /// Removes a link, and gives back what it used.
    ///
    /// - Returns: False: nobody can say at this moment what it uses, since the account's key does not open, though it is
    ///   there, or what is stored of the container is damaged. Nothing was changed.
    func remove(_ link: LinkRows.Link, in container: Container) throws -> Bool {
        guard container.isReadable, let opener = try? container.opener() else { return false }
        // Of a damaged one nobody knows what it used; nor where the account's key was destroyed. It keeps nobody's
        // waiting.
        if let record = opener.open(link) {
            let used = record.used(rowBytes: link.counted)
            try contentUses(container, by: CountChanges.Maker(app: used.app, device: used.device)).giveBack([used])
        }
        try LinkRows.remove(link, in: container.transaction)
        return true
    }
}

extension Container {
    /// - Returns: Nil: it is damaged.
    func open(_ link: LinkRows.Link) throws -> WireLinkRecord? { try opener().open(link) }
}

extension ContainerOpener {
    /// - Returns: Nil: it is damaged, or the account's key is gone.
    func open(_ link: LinkRows.Link) -> WireLinkRecord? {
        try? WireLinkRecord(serializedBytes: open(link.sealed, as: .link(link.id)))
    }
}

extension WireLinkRecord {
    /// As the link uses it: on whose account in the ledger it counts.
    func used(rowBytes: UInt64 = 0) -> UsedContent {
        var used = UsedContent(content, rowBytes: rowBytes)
        (used.app, used.device) = (AppID(link.appID), DeviceID(link.deviceID))
        return used
    }
}

extension Data {
    fileprivate var hex: String { DocumentID(bytes: self)?.description ?? "" }
}

extension CloudError {
    static let nothingPublished = CloudError(
        .permissionFailure,
        "This deployment has no links to files. Its operator can switch them on: they need the web (NEPHOS_WEB_PORT), and NEPHOS_DOCUMENTS_PUBLISH_LINKS_MAX above 0.",
        details: ["key": "NEPHOS_WEB_PORT"])
}
