internal import Configuration
internal import NephosCore
internal import NephosHTTP
internal import NephosServiceKit

/// What a service says of itself over HTTP, to whoever starts it again or sends it requests: `/live` and `/ready`.
///
/// Off unless `SERVICE.health_port` is set (as environment: `NEPHOS_KEYVALUE_HEALTH_PORT` and the like); at `127.0.0.1`
/// unless `SERVICE.health_host` says otherwise. Tells no names and no numbers.
enum HealthFace {
    /// Longer than any group of requests takes, and the end of patience of what asks.
    private static let answerTime: Duration = .seconds(5)

    /// - Returns: Nil: no port is set.
    /// - Throws: ``CloudError`` `.configurationInvalid` for a port that there is not, or where it cannot listen.
    static func start(for standing: ServiceStanding, _ reader: ConfigReader) throws(CloudError) -> HTTPServer? {
        let own = reader.scoped(to: ConfigKey(standing.name.rawValue))
        let port = own.int(forKey: "health_port", default: 0)
        guard port != 0 else { return nil }
        guard (1...65_535).contains(port) else {
            throw CloudError(
                .configurationInvalid, "A configuration value is out of range.",
                details: ["key": "\(standing.name).health_port"])
        }
        var limits = HTTPLimits()
        limits.connectionsMax = 64
        limits.answerTime = answerTime
        limits.graceTime = .zero
        return try HTTPServer(
            host: own.string(forKey: "health_host", default: "127.0.0.1"), port: port, limits: limits
        ) { request, answer in
            switch request.path {
            case "/live": standing.isAlive { answer(HTTPResponse(200, text: "alive")) }
            case "/ready":
                standing.isReady { isReady in
                    answer(isReady ? HTTPResponse(200, text: "ready") : HTTPResponse(503, text: "not ready"))
                }
            default: answer(HTTPResponse(404, text: "Ask for /live or /ready."))
            }
        }
    }
}
