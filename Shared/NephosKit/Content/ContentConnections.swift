import NephosBus
import NephosCore

/// The connections that contents are fetched over: one for each of what a ticket is for, kept for a moment after it was used last, since to
/// make one costs a hundred times what a small file does. On the loop only.
final class ContentConnections {
    private static let patience: Duration = .seconds(5)

    private final class Connection {
        let client: BulkClient
        var users = 0
        var closing: (any LoopTimer)?

        init(_ client: BulkClient) { self.client = client }
    }

    /// Bytes of chunks that have come and are being written beside the loop, and how many may be.
    var writingBytes = 0
    static let writingBytesMax = 8 << 20

    private unowned let engine: DeviceEngine
    private var connections: [ContentPlace: Connection] = [:]
    /// What somebody waits for, who may give up.
    private var fetches: [DocumentID: ContentDownload] = [:]

    init(_ engine: DeviceEngine) { self.engine = engine }

    /// A connection, until ``leave(_:of:)``.
    ///
    /// - Throws: ``CloudError`` as ``DeviceEngine/makeBulkClient(of:app:_:)`` does.
    func join(_ place: ContentPlace) throws -> BulkClient {
        let ticket = place.ofTicket
        let connection: Connection
        if let known = connections[ticket], known.client.ended == nil {
            connection = known
        } else {
            connections.removeValue(forKey: ticket)?.client.close()
            let purpose = BulkClient.Purpose(container: ticket.container)
            connection =
                try takeUnused(for: purpose, of: ticket)
                ?? Connection(engine.makeBulkClient(of: place.service, app: place.app, purpose))
            connections[ticket] = connection
        }
        connection.users += 1
        connection.closing?.cancel()
        connection.closing = nil
        return connection.client
    }

    /// One that nobody uses in this moment, which goes on for another container of the same service; nil: there is none.
    private func takeUnused(for purpose: BulkClient.Purpose, of ticket: ContentPlace) -> Connection? {
        for (other, connection) in connections
        where connection.users == 0 && other.service == ticket.service && other.app == ticket.app {
            guard connection.client.rest() else { continue }
            connections[other] = nil
            if connection.client.resume(for: purpose) { return connection }
            connection.closing?.cancel()
            connection.client.close()
        }
        return nil
    }

    /// Whoever has it does not need it any more.
    func leave(_ client: BulkClient, of place: ContentPlace) {
        let ticket = place.ofTicket
        // One that has ended is in nobody's place here.
        guard let connection = connections[ticket], connection.client === client else { return }
        connection.users -= 1
        guard connection.users == 0 else { return }
        connection.closing = engine.loop.schedule(after: Self.patience) { [weak self, weak connection] in
            guard let self, let connection, connection.users == 0 else { return }
            connection.client.close()
            if connections[ticket] === connection { connections[ticket] = nil }
        }
    }

    /// Somebody waits for this download, until ``forget(_:)`` or ``cancel(_:)``.
    func begin(_ fetch: DocumentID, _ download: ContentDownload) {
        // One that could not even begin has told its end already.
        guard !download.isOver else { return }
        fetches[fetch] = download
    }

    /// It is over.
    func forget(_ fetch: DocumentID) { fetches[fetch] = nil }

    /// They do not wait any more.
    func cancel(_ fetch: DocumentID) { fetches.removeValue(forKey: fetch)?.cancel() }

    /// Nobody listens where the service should be; nil: where tokens for all of them come from.
    func refused(_ service: ServiceName?, _ error: CloudError) {
        for download in fetches.values where service == nil || download.service == service { download.fail(error) }
    }

    private static let accountChanged = CloudError(
        .notSignedIn, "The account that this was read for has signed out here. Sign in, and read it again.")

    /// Closes all of them: another account has signed in, or none.
    func end() {
        for connection in connections.values {
            connection.closing?.cancel()
            connection.client.close(because: Self.accountChanged)
        }
        connections = [:]
    }
}
