internal import Foundation
public import NephosCore
internal import NephosWire

/// Published links to files, for people who have no account, as ``UbiquityContainer/links`` has them. Each call asks the
/// server.
public struct DocumentLinks: Sendable {
    let handle: ContainerHandle

    /// Publishes a file's content as it is now, as `FileManager.url(forPublishingUbiquitousItemAt:expiration:)` does:
    /// whoever has the address gets these bytes, until the link expires or is revoked, whatever becomes of the file.
    /// They count on the plan for as long.
    ///
    /// Waits until the server has the content, for as long as it is on its way.
    ///
    /// - Parameters:
    ///   - path: A file.
    ///   - lifetime: How long the link is good; nil: for 7 days.
    ///   - timeout: How long nothing may move, or the server may take to answer.
    /// - Returns: The link, with its address: it is told now and never again.
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does; `.unknownItem` when there is no such file; `.invalidArguments`
    ///   for what is no file, and a lifetime below a second; `.constraintViolation` when the server has refused its last
    ///   change; `.storageFailure` when the server has lost some of the content; `.permissionFailure` where the
    ///   deployment publishes nothing; `.limitExceeded`: the time is longer than the deployment allows, or the account has
    ///   too many links; else what keeps the server from answering.
    public func publish(
        _ path: some DocumentAddressing, expiresAfter lifetime: Duration? = nil, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> PublishedLink {
        guard lifetime.map({ $0 >= .seconds(1) }) ?? true else {
            throw CloudError(
                .invalidArguments, "A link is good for a second or longer.", details: ["argument": "expiresAfter"])
        }
        let item = try handle.item(at: path)
        guard item.wire.kind == .file else {
            throw CloudError(.invalidArguments, "Only a file can be published.", details: ["item": "\(item.id)"])
        }
        let version = try await versionOnServer(of: item, timeout)
        guard try await !handle.lostContents.isDamaged(item.wire.content, timeout) else {
            throw CloudError(
                .storageFailure,
                "The server has lost some of the file's content, and nobody would get it. Put the file again, and publish it then.",
                details: ["item": "\(item.id)", "reason": "damaged"])
        }
        let secret = LinkSecret.random()
        var request = WirePublishItem()
        request.container = handle.id
        request.link = handle.makeID().wire
        request.secretHash = Data(secret.hash)
        request.item = item.id.wire
        request.version = version
        request.lifetimeSeconds = UInt64(clamping: lifetime.map { $0.milliseconds / 1000 } ?? 0)
        let reply = try await handle.call(request, as: WirePublishItemReply.self, timeout: timeout)
        // Any byte but what an address may have as it is.
        let allowed = CharacterSet(
            charactersIn: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
        let name = String(decoding: reply.link.name, as: UTF8.self)
        guard let encoded = name.addingPercentEncoding(withAllowedCharacters: allowed),
            let url = URL(string: "\(reply.urlPrefix)\(secret.text)/\(encoded)"),
            let link = PublishedLink(reply.link, url: url)
        else {
            throw CloudError(.internalError, "What the server says of the link cannot be true.")
        }
        return link
    }

    /// The links to contents of this container that are good, the newest first, without their addresses. Asks the
    /// server.
    ///
    /// - Throws: ``CloudError``: what keeps the server from answering.
    public func list(timeout: Duration = .seconds(30)) async throws(CloudError) -> [PublishedLink] {
        var request = WireListLinks()
        request.container = handle.id
        let reply = try await handle.call(request, as: WireListLinksReply.self, timeout: timeout)
        var links: [PublishedLink] = []
        for wire in reply.links {
            guard var link = PublishedLink(wire) else { continue }
            let item = try handle.read { try $0.document(link.item) }?.wire
            let contents = item.map { [$0.content] + $0.conflicts } ?? []
            if let content = contents.first(where: { $0.version == wire.version }) {
                link.isDamaged = try await handle.lostContents.isDamaged(content, timeout)
            }
            links.append(link)
        }
        return links
    }

    /// Ends a link: from then on it opens nothing, what is being fetched through it included.
    ///
    /// - Returns: Whether it was good until now.
    /// - Throws: ``CloudError``: what keeps the server from answering.
    @discardableResult
    public func unpublish(_ link: DocumentID, timeout: Duration = .seconds(30)) async throws(CloudError) -> Bool {
        var request = WireRevokeLink()
        request.container = handle.id
        request.link = link.wire
        return try await handle.call(request, as: WireRevokeLinkReply.self, timeout: timeout).wasThere
    }

    /// Waits until the server has the file's content of now.
    ///
    /// - Returns: Its version there.
    private func versionOnServer(of held: HeldDocument, _ patience: Duration) async throws(CloudError) -> Data {
        let wanted = held.wire.content.version
        var pacings = 0
        try await waitWhileItMoves(within: patience) {
            () async throws(CloudError) -> (mark: ContainerOutbox.Mark, failure: CloudError)? in
            guard let item = try handle.entry(held.id) else {
                throw CloudError(.unknownItem, "The item was removed meanwhile.", details: ["item": "\(held.id)"])
            }
            guard item.state != .refused else {
                throw CloudError(
                    .constraintViolation,
                    "The server has refused this device's last change of the file. Say what becomes of that first.",
                    details: ["path": item.path])
            }
            if item.pending == .none { return nil }
            // Whoever waits for what is sent does not wait for that.
            guard !item.isPaused else {
                throw CloudError(
                    .constraintViolation,
                    "The file's sync is paused, and the server does not have its content. Resume it, and publish it then.",
                    details: ["path": item.path])
            }
            // Others may wait for longer than this one.
            var failure = try await handle.outbox.failureToSend(within: min(patience, .milliseconds(200)))
            if failure == nil {
                // It was sent just now, or what keeps it here is none of what was waited for.
                failure = CloudError(
                    .deadlineExceeded, "The server does not have the file's content yet.",
                    details: ["path": item.path])
                do { try await Task.sleep(for: .milliseconds(20)) } catch {
                    throw CloudError(.operationCancelled, "The task that published the file was cancelled.")
                }
            }
            let mark = try await handle.outbox.mark(&pacings).mark
            return failure.map { (mark, $0) }
        }
        let now = try handle.read { try $0.document(held.id) }?.wire
        let contents = now.map { [$0.content] + $0.conflicts } ?? []
        guard !contents.contains(where: { $0.version == wanted }) else { return wanted }
        // Where the server had its bytes already it is theirs. Other bytes than were asked for are not published: the
        // server knows what became of the version.
        return contents.first { $0.hasBytes(of: held.wire.content) }?.version ?? wanted
    }
}
