internal import Foundation
public import NephosCore
internal import NephosHTTP
internal import NephosServiceKit

/// A service's health over HTTP: `/live` and `/ready` for a supervisor or a proxy, and `/metrics` for Prometheus.
///
/// Off unless a port is set (`NEPHOS_HEALTH_PORT`, or `NEPHOS_KEYVALUE_HEALTH_PORT` and the like); at `127.0.0.1` unless
/// `NEPHOS_HEALTH_HOST` is set. It shows no names and nothing of an account, only numbers, without a password.
public enum HealthFace {
    /// Longer than any group of requests takes, and the end of patience of what asks.
    private static let answerTime: Duration = .seconds(5)

    /// - Returns: Nil: no port is set.
    /// - Throws: ``CloudError`` `.configurationInvalid` for a port that there is not, or where it cannot listen.
    static func start(for standing: ServiceStanding, _ settings: Settings) throws(CloudError) -> HTTPServer? {
        let host = settings.text("health_host", for: .all) ?? "127.0.0.1"
        guard let port = try port(settings) else { return nil }
        var limits = HTTPLimits()
        limits.connectionsMax = 64
        // All of them come from this machine, as a rule, or from one that watches. Who holds connections and asks nothing
        // keeps from its answer nobody who would start the service again without it.
        limits.connectionsOfAddressMax = limits.connectionsMax
        limits.headerTime = answerTime
        limits.idleTime = .seconds(10)
        limits.stallTime = answerTime
        limits.answerTime = answerTime
        limits.graceTime = .zero
        return try HTTPServer(
            host: host, port: port, limits: limits
        ) { request, answer in
            switch request.path {
            case "/live": standing.isAlive { answer(HTTPResponse(200, text: "alive")) }
            case "/ready":
                standing.findImpediment { impediment in
                    answer(
                        impediment.map { HTTPResponse(503, text: "not ready: \($0)") }
                            ?? HTTPResponse(200, text: "ready"))
                }
            case "/metrics":
                let format = MetricsFormat(accept: request.values(of: "Accept"))
                standing.metrics(as: format) { text in
                    answer(
                        HTTPResponse(
                            200, headers: [(name: "Content-Type", value: format.contentType)],
                            .bytes(Array(text.utf8))))
                }
            default: answer(HTTPResponse(404, text: "Ask for /live, /ready or /metrics."))
            }
        }
    }

    /// Nil: none is set.
    private static func port(_ settings: Settings) throws(CloudError) -> Int? {
        let port = try settings.integer("health_port", default: 0, in: 0...65_535, for: .all)
        return port == 0 ? nil : port
    }

    /// Asks the service of this machine, or this container, whether it is ready. Blocks for five seconds at most: for a
    /// program that does nothing else.
    ///
    /// - Throws: ``CloudError`` `.serviceUnavailable` when it is not.
    static func requireReady(_ settings: Settings) throws(CloudError) {
        guard let port = try port(settings) else {
            throw settings.invalid(
                "health_port", "It is the port that is asked whether the service is ready.", for: .all)
        }
        try requireAnswer(settings.text("health_host", for: .all) ?? "127.0.0.1", port, "/ready")
    }

    /// - Parameter given: Where it listens, which may be all addresses.
    /// - Throws: ``CloudError`` `.serviceUnavailable` unless an HTTP server of this machine answers there with 200.
    public static func requireAnswer(_ given: String, _ port: Int, _ path: String) throws(CloudError) {
        let host = LocalPorts.isWildcard(given) ? (given.contains(":") ? "::1" : "127.0.0.1") : given
        let answer = ask(host, port, path)
        guard answer?.hasPrefix("HTTP/1.1 200") == true else {
            throw CloudError(
                .serviceUnavailable, answer == nil ? "The service does not answer." : "The service is not ready.",
                details: ["address": "\(host):\(port)"])
        }
    }

    /// The first bytes of what an HTTP server answers; nil: none, or not in time.
    private static func ask(_ host: String, _ port: Int, _ path: String) -> String? {
        var hints = addrinfo()
        hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, String(port), &hints, &found) == 0, let address = found else { return nil }
        defer { freeaddrinfo(found) }
        let descriptor = socket(address.pointee.ai_family, Int32(SOCK_STREAM.rawValue), 0)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var patience = timeval(tv_sec: Int(answerTime.components.seconds), tv_usec: 0)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &patience, socklen_t(MemoryLayout<timeval>.size))
        }
        guard connect(descriptor, address.pointee.ai_addr, address.pointee.ai_addrlen) == 0 else { return nil }
        let request = Array("GET \(path) HTTP/1.1\r\nHost: \(host)\r\nConnection: close\r\n\r\n".utf8)
        guard send(descriptor, request, request.count, Int32(MSG_NOSIGNAL)) == request.count else { return nil }
        var answer = [UInt8](repeating: 0, count: 64)
        let count = recv(descriptor, &answer, answer.count, Int32(MSG_WAITALL))
        return count > 0 ? String(decoding: answer[..<count], as: UTF8.self) : nil
    }
}
