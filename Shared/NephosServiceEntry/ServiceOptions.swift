public import ArgumentParser
public import NephosCore
internal import NephosHTTP
public import NephosServiceKit
internal import NephosZeroMQ

/// What the program of every service takes.
public struct ServiceOptions: ParsableArguments {
    @Option(help: "The deployment's folder, with the roster and this service's secrets.", completion: .directory)
    var deployment: String

    @Option(help: "This service's own folder, for its database.", completion: .directory)
    var data: String

    @Option(help: "trace, debug, info, notice, warning or error (default: $NEPHOS_LOG_LEVEL, or info).")
    var logLevel: String?

    @Flag(help: "End when standard input does, as under nephos up, and hold a place in the deployment's folder run.")
    var supervised = false

    public init() {}

    /// Runs the service until it is told to stop.
    ///
    /// - Parameters:
    ///   - busyPollMax: How long its loop looks for news before it sleeps.
    ///   - make: Makes the service, on its loop.
    public func run(
        _ name: ServiceName, busyPollMax: Duration = serviceBusyPollMax,
        make: @escaping @Sendable (ServiceRuntimeConfig) throws -> any CloudService
    ) async throws {
        try await runService(
            name, deployment: deployment, data: data, logLevel: logLevel, isSupervised: supervised,
            transport: ZeroMQTransport(busyPollMax: busyPollMax),
            beside: { standing, reader in
                let health = try HealthFace.start(for: standing, reader)
                return { health?.stop() }
            }, make: make)
    }
}
