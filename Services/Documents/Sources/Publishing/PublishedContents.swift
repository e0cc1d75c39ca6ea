internal import NephosBulk
internal import NephosBus
internal import NephosCore
internal import NephosHTTP
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import Synchronization

/// Gives published contents to whoever has their links, over HTTP.
///
/// A link is looked up beside the loop, so that whoever guesses costs a look at an index and makes nobody wait; its
/// content is read there too, a chunk at a time for each connection, two at a time in all. Each chunk is given only if
/// the link is still good then. Nothing is logged: an address is a secret.
///
/// On the service's loop only.
final class PublishedContents {
    /// What the paths of links begin with; the secret follows, and after another `/` a name for people.
    static let path = "/p/"
    /// Chunks that are read at one time, so that devices come to theirs.
    private static let readsMax = 2
    /// Links that are looked up at one time, whoever asks.
    private static let lookupsMax = 64
    /// How often a link is looked up again because others ended meanwhile.
    private static let attemptsMax = 4

    private let host: any ServiceRuntime
    private let keys: OwnerKeys
    private let transfers: Transfers
    /// As many bodies as there are connections; more are refused.
    private let waitingMax: Int
    private var server: HTTPServer?
    private var isEnding = false
    private var lookups = 0
    /// Links that were ended while the service runs.
    private var endings: UInt64 = 0
    private var reading = 0
    private var waiting: [(body: PublishedBody, completion: PublishedBody.Completion)] = []

    /// As other threads know it, which may be the last to let go.
    private struct Own {
        weak var contents: PublishedContents?
    }
    private lazy var own = LoopBound(Own(contents: self), to: host.loop)

    init(_ host: any ServiceRuntime, _ transfers: Transfers, waitingMax: Int) {
        self.waitingMax = waitingMax
        self.host = host
        self.transfers = transfers
        keys = host.ownerKeys
    }

    /// - Throws: ``CloudError`` `.configurationInvalid` where it cannot listen there, or its certificate cannot be used.
    func listen(_ publishing: DocumentsConfiguration.Publishing) throws {
        let certificate = try publishing.certificate.map { [loop = host.loop.handle, own] files in
            try HTTPCertificate(chainFile: files.chainFile, keyFile: files.keyFile) { problem in
                loop.execute { loop in own.withValue(on: loop) { $0.contents?.report(problem) } }
            }
        }
        server = try HTTPServer(
            host: publishing.host, port: publishing.port, limits: publishing.limits, certificate: certificate,
            handler: handler)
    }

    private func report(_ problem: CloudError) {
        host.report(
            "The certificate of published links was replaced, and the new one cannot be used. The one before stays: "
                + "put it right", details: ["reason": problem.message].merging(problem.details) { $1 })
    }

    /// Answers on any thread.
    var handler: HTTPHandler {
        { [loop = host.loop.handle, own] request, answer in
            loop.execute { loop in own.withValue(on: loop) { $0.contents?.answer(request, answer) } }
        }
    }

    /// Takes no further requests; what is being answered goes on.
    func stopsSoon() {
        guard let server else { return }
        self.server = nil
        isEnding = true
        server.stop { [loop = host.loop.handle, own] in
            loop.execute { loop in own.withValue(on: loop) { $0.contents?.isEnding = false } }
        }
    }

    /// Whether all is answered since.
    var isSettled: Bool { !isEnding }

    func stop() {
        server?.stop()
        server = nil
    }

    // MARK: Answering

    /// There is no such link, there never was, or it has ended: nobody can tell which.
    private static let unknown = HTTPResponse(404, text: "There is nothing here.")
    private static let busy = HTTPResponse(
        503, text: "The server is busy. Try again later.", headers: [(name: "Retry-After", value: "10")])

    private typealias Answer = @Sendable (HTTPResponse) -> Void

    private func answer(_ request: HTTPRequest, _ answer: @escaping Answer) {
        guard let secret = Self.secret(in: request.path) else { return answer(Self.unknown) }
        guard lookups < Self.lookupsMax else { return answer(Self.busy) }
        lookups += 1
        lookUp(secret, Self.attemptsMax) { [weak self] found in
            guard let self else { return answer(Self.busy) }
            lookups -= 1
            switch found {
            case .failure: answer(Self.busy)
            case .success(nil):
                host.count("links.unknown", by: 1)
                answer(Self.unknown)
            case .success(let found?):
                host.count("links.opened", by: 1)
                answer((try? response(to: request, found)) ?? Self.busy)
            }
        }
    }

    /// A link that is good at this moment.
    private struct Found {
        var link: LinkRows.Link
        var record: WireLinkRecord
        var key: OwnerKey
    }

    private static let stopping = CloudError(.serviceUnavailable, "The service is stopping.")

    private typealias LookedUp = (Result<Found?, CloudError>) -> Void

    /// Finds the link, and what it is of.
    ///
    /// - Parameters:
    ///   - completion: Gets nil for one that there is not, or that has ended by the time it is called.
    private func lookUp(_ secret: LinkSecret, _ attempts: Int, then completion: @escaping LookedUp) {
        guard attempts > 0 else {
            return completion(.failure(CloudError(.serviceBusy, "Too many links end at this moment.")))
        }
        let (hash, now, snapshots, before) = (secret.hash, host.loop.wallClock.now, host.snapshots, endings)
        host.loop.offload(to: .reading) {
            try snapshots.read { try LinkRows.open(hash, at: now, in: $0) }
        } then: { [weak self] result in
            guard let self else { return completion(.failure(Self.stopping)) }
            guard case .success(let link) = result else {
                return completion(.failure(CloudError(.serviceBusy, "The database could not be read.")))
            }
            // It may be among those that were ended while it was read.
            guard endings == before else { return lookUp(secret, attempts - 1, then: completion) }
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

    /// A link was ended: it opens nothing from now on, whoever has asked before.
    func noteEnded() { endings += 1 }

    private static func secret(in path: String) -> LinkSecret? {
        guard path.hasPrefix(Self.path) else { return nil }
        let parts = path.dropFirst(Self.path.count).split(
            separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        return parts.first.flatMap { LinkSecret($0) }
    }

    private func response(to request: HTTPRequest, _ found: Found) throws -> HTTPResponse {
        let (link, record) = (found.link, found.record)
        let name = [UInt8](record.link.name)
        let length = record.content.length
        let tag = "\"\(DocumentID(bytes: record.content.version)?.description ?? "")\""
        let type = LinkRule.type(of: name)
        var headers: [(name: String, value: String)] = [
            (name: "ETag", value: tag), (name: "Accept-Ranges", value: "bytes"),
            (name: "Content-Type", value: type.type),
            (name: "Content-Disposition", value: LinkRule.disposition(of: name, isShown: type.isShown)),
        ]
        let range: Range<UInt64>
        var status = 200
        switch request.range(of: tag, length: length) {
        case nil: return HTTPResponse(304, headers: headers)
        case .unsatisfiable?:
            return HTTPResponse(
                416, text: "There are no such bytes.", headers: [(name: "Content-Range", value: "bytes */\(length)")])
        case .whole?: range = 0..<length
        case .part(let part)?:
            range = part
            status = 206
            headers.append((name: "Content-Range", value: "bytes \(part.lowerBound)-\(part.upperBound - 1)/\(length)"))
        }
        guard !record.used().isInline else {
            let bytes = [UInt8](record.content.inline)
            guard UInt64(bytes.count) == length else { throw CloudError(.internalError, "The link is damaged.") }
            return HTTPResponse(
                status, headers: headers, .bytes(Array(bytes[Int(range.lowerBound)..<Int(range.upperBound)])))
        }
        let reader = try transfers.reader(of: record.used(), in: link.scope, range: range, key: found.key)
        let body = PublishedBody(link, reader, on: host.loop.handle) { [own] loop, body, completion in
            own.withValue(on: loop) { own in
                if let completion {
                    own.contents?.read(body, completion)
                } else {
                    own.contents?.forget(body)
                }
            }
        }
        return HTTPResponse(status, headers: headers, .source(body, length: range.upperBound - range.lowerBound))
    }

    // MARK: Bodies

    private func read(_ body: PublishedBody, _ completion: @escaping PublishedBody.Completion) {
        guard waiting.count < waitingMax else { return completion(.failure(PublishedBody.ended)) }
        waiting.append((body, completion))
        readNext()
    }

    /// Nobody waits for it any more.
    private func forget(_ body: PublishedBody) { waiting.removeAll { $0.body === body } }

    private func readNext() {
        while reading < Self.readsMax, !waiting.isEmpty {
            let (body, completion) = waiting.removeFirst()
            guard host.serves(body.link.scope, to: body.link.app) else {
                completion(.failure(PublishedBody.ended))
                continue
            }
            reading += 1
            let now = host.loop.wallClock.now
            host.loop.offload(to: .content) {
                try body.next(at: now)
            } then: { [weak self] result in
                completion(result)
                guard let self else { return }
                if case .failure(let error) = result { transfers.note(error) }
                reading -= 1
                readNext()
            }
        }
    }
}

/// A published content on its way, one chunk after another.
final class PublishedBody: HTTPBodySource {
    typealias Completion = @Sendable (Result<[UInt8], any Error>) -> Void

    static let ended = CloudError(.unknownItem, "The link has ended.")

    let link: LinkRows.Link
    /// One thread at a time has it: the next piece is asked for when the last was given.
    private let reader: Mutex<ContentReader>
    private let loop: any LoopHandle
    private let ask: Ask

    /// Asks for its next piece; nil: nobody waits for it any more.
    typealias Ask = @Sendable (any BusLoop, PublishedBody, Completion?) -> Void

    init(
        _ link: LinkRows.Link, _ reader: ContentReader, on loop: any LoopHandle, _ ask: @escaping Ask
    ) {
        self.link = link
        self.reader = Mutex(reader)
        self.loop = loop
        self.ask = ask
    }

    func next(_ completion: @escaping Completion) { loop.execute { self.ask($0, self, completion) } }

    func cancel() { loop.execute { self.ask($0, self, nil) } }

    /// Reads it, on a work pool's thread.
    func next(at now: Timestamp) throws -> [UInt8] {
        try reader.withLock { reader in
            try reader.next { snapshot in
                guard try LinkRows.isOpen(self.link, at: now, in: snapshot) else { throw Self.ended }
            } ?? []
        }
    }
}
