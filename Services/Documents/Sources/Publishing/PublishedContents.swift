internal import Foundation
internal import NephosBulk
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// Reads published contents by the secrets of their links, piece by piece, for `nephos-web`.
///
/// Links are looked up and contents are read off the loop, two contents at a time. Each chunk is read only while its link is
/// good. Secrets are not logged.
///
/// On the service's loop only.
final class PublishedContents {
    /// Bytes of one piece.
    static let pieceBytes: UInt64 = 2 << 20
    /// Pieces that are read at one time, so that devices come to theirs.
    private static let readsMax = 2
    /// Pieces that wait to be read. Further ones are refused.
    private static let waitingMax = 256

    private let host: any ServiceRuntime
    private let keys: OwnerKeys
    private let transfers: Transfers
    private var reading = 0
    private var waiting: [Piece] = []

    init(_ host: any ServiceRuntime, _ transfers: Transfers) {
        self.host = host
        self.transfers = transfers
        keys = host.ownerKeys
    }

    typealias Answer = (Result<WireReadLinkReply, CloudError>) -> Void

    /// The same for an unknown link and one that has ended.
    private static let unknown = CloudError(.unknownItem, "There is no such link, or it has ended.")
    private static let busy = CloudError(
        .serviceBusy, "Too many read published files at this moment. Try again later.", retryAfter: .seconds(1))
    private static let stopping = CloudError(.serviceUnavailable, "The service is stopping.")
    private static let damaged = CloudError(
        .storageFailure, "The content cannot be read any more.", details: ["reason": "damaged"])

    func read(_ request: WireReadLink, then answer: @escaping Answer) {
        guard let secret = LinkSecret(request.secret) else { return answer(.failure(Self.unknown)) }
        lookUp(secret) { [weak self] found in
            guard let self else { return answer(.failure(Self.stopping)) }
            switch found {
            case .failure: answer(.failure(Self.busy))
            case .success(nil):
                host.count("links.unknown", by: 1)
                answer(.failure(Self.unknown))
            case .success(let found?): read(request, of: found, then: answer)
            }
        }
    }

    private func read(_ request: WireReadLink, of found: Found, then answer: @escaping Answer) {
        let content = found.record.content
        var reply = WireReadLinkReply()
        (reply.version, reply.name, reply.length) = (content.version, found.record.link.name, content.length)
        if request.length == 0 { host.count("links.opened", by: 1) }
        let start = min(request.offset, content.length)
        let range = start..<(start + min(request.length, Self.pieceBytes, content.length - start))
        guard !range.isEmpty else { return answer(.success(reply)) }
        guard !found.record.used().isInline else {
            guard UInt64(content.inline.count) == content.length else { return answer(.failure(Self.damaged)) }
            reply.content = Data([UInt8](content.inline)[Int(range.lowerBound)..<Int(range.upperBound)])
            return answer(.success(reply))
        }
        guard waiting.count < Self.waitingMax,
            let reader = try? transfers.reader(
                of: found.record.used(), in: found.link.scope, range: range, key: found.key)
        else { return answer(.failure(Self.busy)) }
        waiting.append(Piece(link: found.link, reader: reader, reply: reply, answer: answer))
        readNext()
    }

    // MARK: Links

    /// A link that is good at this moment.
    private struct Found {
        var link: LinkRows.Link
        var record: WireLinkRecord
        var key: OwnerKey
    }

    private typealias LookedUp = (Result<Found?, CloudError>) -> Void

    /// Finds the link, and what it is of.
    ///
    /// - Parameter completion: Gets nil for one that there is not, or that has ended.
    private func lookUp(_ secret: LinkSecret, then completion: @escaping LookedUp) {
        let (hash, now, snapshots) = (secret.hash, host.loop.wallClock.now, host.snapshots)
        host.loop.offload(to: .reading) {
            try snapshots.read { try LinkRows.open(hash, at: now, in: $0) }
        } then: { [weak self] result in
            guard let self else { return completion(.failure(Self.stopping)) }
            guard case .success(let link) = result else {
                return completion(.failure(CloudError(.serviceBusy, "The database could not be read.")))
            }
            guard let link, host.serves(link.scope, to: link.app) else { return completion(.success(nil)) }
            open(link, then: completion)
        }
    }

    private func open(_ link: LinkRows.Link, then completion: @escaping LookedUp) {
        // Without a group, so that whoever has a link costs the loop no more than whoever has none.
        if let key = keys.cachedKey(of: link.scope.owner) { return completion(.success(found(link, key))) }
        var key: OwnerKey?
        host.submit { [keys, host] in
            key = nil
            guard try LinkRows.isOpen(link, at: host.loop.wallClock.now, in: $0) else { return }
            key = try keys.existingKey(of: link.scope.owner, in: $0)
        } then: { [weak self] failure in
            guard let self else { return completion(.failure(Self.stopping)) }
            if let failure { return completion(.failure(failure)) }
            guard let key, host.serves(link.scope, to: link.app) else { return completion(.success(nil)) }
            completion(.success(found(link, key)))
        }
    }

    private func found(_ link: LinkRows.Link, _ key: OwnerKey) -> Found? {
        ContainerOpener(scope: link.scope, key: key).open(link).map { Found(link: link, record: $0, key: key) }
    }

    // MARK: Contents

    /// A part of a content that somebody waits for.
    private struct Piece {
        var link: LinkRows.Link
        var reader: ContentReader
        var reply: WireReadLinkReply
        var answer: Answer
    }

    private func readNext() {
        while reading < Self.readsMax, !waiting.isEmpty {
            let piece = waiting.removeFirst()
            guard host.serves(piece.link.scope, to: piece.link.app) else {
                piece.answer(.failure(Self.unknown))
                continue
            }
            reading += 1
            host.loop.offload(to: .content) {
                [reader = piece.reader, link = piece.link, now = host.loop.wallClock.now] in
                try Self.bytes(of: reader, through: link, at: now)
            } then: { [weak self] result in
                piece.answer(
                    result.map { bytes in
                        var reply = piece.reply
                        reply.content = bytes
                        return reply
                    }.mapError { $0 is DamagedContent ? Self.damaged : CloudError(wrapping: $0) })
                guard let self else { return }
                if case .failure(let error) = result { transfers.note(error) }
                reading -= 1
                readNext()
            }
        }
    }

    /// Reads it, on a work pool's thread.
    private static func bytes(of reader: ContentReader, through link: LinkRows.Link, at now: Timestamp) throws -> Data {
        var (reader, bytes) = (reader, Data())
        while let next = try reader.next(checking: {
            guard try LinkRows.isOpen(link, at: now, in: $0) else { throw unknown }
        }) {
            bytes += next
        }
        return bytes
    }
}
