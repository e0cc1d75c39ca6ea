package import NephosBus
internal import NephosCore
package import NephosKit
internal import NephosWire
internal import Synchronization

/// Reads published contents from the documents service. Each visitor's address has a key of its own, and so a budget of its
/// own.
package final class LinkClient: Sendable {
    private let loop: any LoopHandle
    private let visitors: LoopBound<Visitors>

    /// - Parameter documents: The service's address.
    /// - Throws: ``CloudError`` `.configurationInvalid` for an address that cannot be one.
    package init(documents: SessionRecord.Service, transport: any Transport) throws {
        let made = Mutex<LoopBound<Visitors>?>(nil)
        loop = try transport.startLoop(named: "links") { loop in
            let visitors = LoopBound(try Visitors(documents, transport, loop), to: loop)
            made.withLock { $0 = visitors }
        }
        guard let visitors = made.withLock({ $0 }) else {
            throw CloudError(.internalError, "The loop has started, and nothing has run on it.")
        }
        self.visitors = visitors
    }

    /// Reads a part of a published content, or the beginning of the part where it is long.
    ///
    /// - Parameters:
    ///   - range: Empty: what the link is of, and no content.
    ///   - address: The visitor's.
    /// - Throws: ``CloudError`` `.unknownItem`: there is no such link, or it has ended; `.permissionFailure`: the deployment
    ///   has no links; what keeps the service from answering.
    func read(
        _ secret: String, _ range: Range<UInt64>, for address: String
    ) async throws(CloudError) -> WireReadLinkReply {
        var request = WireReadLink()
        (request.secret, request.offset) = (secret, range.lowerBound)
        request.length = range.upperBound - range.lowerBound
        let body = Frame(encoding: request)
        let reply = await withCheckedContinuation { continuation in
            loop.execute { [visitors] loop in
                visitors.withValue(on: loop) { visitors in
                    visitors.read(body, for: address) { continuation.resume(returning: $0) }
                }
            }
        }
        do { return try reply.get().decode(WireReadLinkReply.self) } catch { throw CloudError(wrapping: error) }
    }

    /// To be called when the last read has returned.
    package func close() {
        loop.execute { [visitors] loop in visitors.withValue(on: loop) { $0.close() } }
        loop.stop()
    }

    /// A connection for each visitor's address. On the loop only.
    private final class Visitors {
        private let service: SessionRecord.Service
        private let key: PublicKey
        private let transport: any Transport
        private let loop: any BusLoop
        private var clients: [String: (client: RequestClient, used: Duration)] = [:]
        private static let clientsMax = 64
        /// How long a piece may take.
        private static let timeout: Duration = .seconds(30)

        init(_ service: SessionRecord.Service, _ transport: any Transport, _ loop: any BusLoop) throws {
            guard let key = PublicKey(z85: service.publicKey), !service.requests.isEmpty else {
                throw CloudError(.configurationInvalid, "The address of documents is not valid.")
            }
            (self.service, self.key, self.transport, self.loop) = (service, key, transport, loop)
        }

        /// - Parameter body: A ``WireReadLink``.
        func read(
            _ body: Frame, for address: String, _ completion: @escaping (Result<Frame, CloudError>) -> Void
        ) {
            do {
                try client(of: address).call("ReadLink", body: body, timeout: Self.timeout, endsWhenRefused: true) {
                    completion($0.result)
                }
            } catch { completion(.failure(CloudError(wrapping: error))) }
        }

        private func client(of address: String) throws -> RequestClient {
            let client = try clients[address]?.client ?? makeClient()
            clients[address] = (client, loop.monotonicNow)
            return client
        }

        private func makeClient() throws -> RequestClient {
            try makeRoom()
            return try RequestClient(
                loop: loop,
                socket: RequestSocketOptions(
                    endpoints: service.requests, serverKey: key, keys: try transport.makeKeyPair()),
                nextServerKey: service.nextPublicKey.flatMap { PublicKey(z85: $0) })
        }

        /// Closes the connection that was used longest ago, if there are many.
        private func makeRoom() throws {
            guard clients.count >= Self.clientsMax else { return }
            let idle = clients.filter { $0.value.client.pendingCount == 0 }
            guard let oldest = idle.min(by: { $0.value.used < $1.value.used }) else { throw Self.busy }
            clients.removeValue(forKey: oldest.key)?.client.close()
        }

        func close() {
            for (client, _) in clients.values { client.close() }
            clients = [:]
        }

        private static let busy = CloudError(
            .serviceBusy, "Too many read published files at this moment. Try again later.", retryAfter: .seconds(10))
    }
}
