public import ArgumentParser
internal import Foundation
public import NephosCore
internal import NephosHTTP
public import NephosServiceKit
internal import NephosZeroMQ

/// What the program of every service takes.
public struct ServiceOptions: ParsableArguments {
    @Option(
        help: "The deployment's folder, with the roster and this service's secrets (default: $NEPHOS_DEPLOYMENT).",
        completion: .directory)
    var deployment: String?

    @Option(help: "This service's own folder, for its database (default: $NEPHOS_DATA).", completion: .directory)
    var data: String?

    @Option(help: "trace, debug, info, notice, warning or error (default: $NEPHOS_LOG_LEVEL, or info).")
    var logLevel: String?

    @Flag(help: "End when standard input does, as under nephos up, and hold a place in the deployment's folder run.")
    var supervised = false

    @Flag(help: "Start nothing; ask the one that runs here whether it is ready, at its health port.")
    var isReady = false

    public init() {}

    /// A folder that the command line or else the environment names.
    private func folder(_ given: String?, _ variable: String) throws -> String {
        guard let folder = given ?? ProcessInfo.processInfo.environment[variable], !folder.isEmpty else {
            throw CloudError(
                .configurationInvalid, "A folder has to be named.",
                details: ["key": variable, "option": variable == "NEPHOS_DATA" ? "--data" : "--deployment"])
        }
        return folder
    }

    /// Runs the service until it is told to stop.
    ///
    /// - Parameters:
    ///   - busyPollMax: How long its loop looks for news before it sleeps.
    ///   - make: Makes the service, on its loop.
    public func run(
        _ name: ServiceName, busyPollMax: Duration = serviceBusyPollMax,
        make: @escaping @Sendable (ServiceRuntimeConfig) throws -> any CloudService
    ) async throws {
        guard !isReady else {
            let deployment = try? folder(deployment, "NEPHOS_DEPLOYMENT")
            return try HealthFace.requireReady(
                try deployment.map { try .of(name, deployment: $0) } ?? .ofEnvironment(name))
        }
        do {
            try await runService(
                name, deployment: try folder(deployment, "NEPHOS_DEPLOYMENT"), data: try folder(data, "NEPHOS_DATA"),
                logLevel: logLevel, isSupervised: supervised, transport: ZeroMQTransport(busyPollMax: busyPollMax),
                beside: { standing, settings in
                    let health = try HealthFace.start(for: standing, settings)
                    return { health?.stop() }
                }, make: make)
        } catch is LoggedFailure { throw ExitCode.failure }
    }
}
