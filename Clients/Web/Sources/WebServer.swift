internal import Foundation
package import Logging
package import NephosCore
package import NephosHTTP
internal import NephosKit

/// Where the web's program listens, and what it may take.
package struct WebConfiguration: Sendable {
    package var host = "127.0.0.1"
    package var port = 7480
    /// Nil: plain HTTP, for this machine or behind a proxy.
    package var certificate: HTTPCertificate?
    /// Whether only a proxy reaches it, wherever that is. Then `X-Forwarded-For` says whose each request is; else it does so
    /// for connections of this machine.
    package var isBehindProxy = false
    package var limits = WebConfiguration.standardLimits

    package init() {}

    /// Whether only this machine reaches it.
    package var isLocal: Bool { host.hasPrefix("127.") || host == "::1" }

    static let standardLimits = {
        var limits = HTTPLimits()
        limits.connectionsMax = 1024
        limits.connectionsOfAddressMax = 256
        limits.requestsOfAddressMax = 20_000
        limits.requestsOfAddressPerSecond = 2000
        limits.requestsMax = 100_000
        limits.bodyBytesMax = 1 << 40
        // A long content has to get to the documents service before its request is answered.
        limits.answerTime = .seconds(600)
        limits.idleTime = .seconds(60)
        // Pages that are open have a live stream, which does not end by itself.
        limits.graceTime = .seconds(2)
        return limits
    }()
}

/// The web's door: the console for browsers, and WebDAV for programs that know nothing of Nephos. It is a client of the
/// services as any device is, and has no power of its own.
package final class WebDoor: Sendable {
    let sessions: WebSessions
    private let locks: DavLocks
    private let console: ConsoleAccess
    private let sweeping: Task<Void, Never>
    private let isBehindProxy: Bool
    private let links: LinkClient?

    /// - Parameters:
    ///   - folder: The data folder, which is this program's alone.
    ///   - connection: The deployment's.
    ///   - hasCertificate: Whether browsers reach it by HTTPS, without a proxy.
    ///   - isBehindProxy: See ``WebConfiguration/isBehindProxy``.
    ///   - links: Answers links to published files; nil: there are none.
    ///   - open: Opens a device's home.
    /// - Throws: ``CloudError`` `.storageFailure`.
    package init(
        folder: String, connection: ConnectionString, hasCertificate: Bool = false, isBehindProxy: Bool = false,
        links: LinkClient? = nil, logger: Logger,
        open: @escaping OpenSession
    ) throws(CloudError) {
        let sessions = try WebSessions(folder: folder, connection: connection, logger: logger, open: open)
        locks = try DavLocks(path: folder + "/locks.sqlite")
        self.sessions = sessions
        self.links = links
        self.isBehindProxy = isBehindProxy
        console = .sessions(sessions, hasCertificate: hasCertificate)
        sweeping = Task {
            while !Task.isCancelled {
                try? await Task.sleep(for: .seconds(300))
                await sessions.sweep()
            }
        }
    }

    /// Answers a request, whatever it is.
    package func answer(_ request: HTTPRequest) async -> HTTPResponse {
        var request = request
        if isBehindProxy || ["127.0.0.1", "::1"].contains(request.address),
            let client = request.list("X-Forwarded-For")?.split(separator: ",").last
        {
            request.address = client.trimmingCharacters(in: .whitespaces)
        }
        if request.path == "/live" { return HTTPResponse(200, text: "Nephos") }
        if let links, let answer = await LinkHandler(links: links, request: request).answer() { return answer }
        if let answer = await ConsoleHandler(access: console, request: request).answer() { return answer }
        guard let path = DavPath(request.path) else { return HTTPResponse(404, text: "There is nothing here.") }
        do {
            let (account, password) = try Self.credentials(request)
            let user = try await sessions.user(
                account: account, password: password, from: request.network)
            return await DavHandler(user: user, locks: locks, request: request, path: path).answer()
        } catch { return CloudError(wrapping: error).response }
    }

    /// Closes all sessions; the next requests open them again.
    func closeSessions() async { await sessions.close() }

    /// Closes all sessions.
    package func close() async {
        sweeping.cancel()
        await sessions.close()
        links?.close()
    }

    /// The name and the password of HTTP's basic authentication.
    private static func credentials(_ request: HTTPRequest) throws(CloudError) -> (account: String, password: String) {
        guard let header = request.header("Authorization"), header.lowercased().hasPrefix("basic "),
            let data = Data(base64Encoded: header.dropFirst(6).trimmingCharacters(in: .whitespaces)),
            let text = String(validating: data, as: UTF8.self), let colon = text.firstIndex(of: ":")
        else {
            throw CloudError(.notAuthenticated, "Sign in with the account's name and an app password.")
        }
        return (String(text[..<colon]), String(text[text.index(after: colon)...]))
    }
}

/// A ``WebDoor`` that can be reached by HTTP.
package final class WebServer: Sendable {
    private let door: WebDoor
    private let server: HTTPServer

    /// Where it listens.
    package var port: Int { server.port }

    /// Begins to answer.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` where it cannot listen there.
    package init(_ configuration: WebConfiguration, _ door: WebDoor) throws(CloudError) {
        self.door = door
        var limits = configuration.limits
        // Behind a proxy everybody comes from its address.
        if configuration.isBehindProxy || configuration.isLocal {
            limits.connectionsOfAddressMax = limits.connectionsMax
        }
        server = try HTTPServer(
            host: configuration.host, port: configuration.port, limits: limits,
            certificate: configuration.certificate, methods: DavHandler.methods.union([.post])
        ) { request, answer in
            Task { answer(await door.answer(request)) }
        }
    }

    /// Answers what it has, closes all sessions and ends.
    package func stop() async {
        await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
        await door.close()
    }
}
