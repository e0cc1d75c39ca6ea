import ArgumentParser
import Core
import Foundation
import Logging
import NephosKit
import ZeroMQBus

/// Which device a command speaks for, and as which app.
struct DeviceOptionGroup: ParsableArguments {
    @Option(name: .long, help: "The device's home (default: $NEPHOS_HOME, or ~/.nephos).", completion: .directory)
    var home: String?

    /// Opens the home for the length of a command.
    func withSession<Result: Sendable>(_ body: (Session) async throws -> Result) async throws -> Result {
        var logger = Logger(label: "nephos.device") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel =
            ProcessInfo.processInfo.environment["NEPHOS_LOG_LEVEL"].flatMap { Logger.Level(rawValue: $0) } ?? .error
        let session = try await Session.open(
            home: home ?? Session.defaultHome, transport: ZeroMQTransport(), logger: logger)
        defer { session.close() }
        return try await body(session)
    }
}

extension Session {
    /// - Throws: ``CloudError`` `.notSignedIn`, with the way to cure it.
    func requireAccount() throws(CloudError) -> SessionRecord {
        guard let account = try account else {
            throw CloudError(
                .notSignedIn, "Nobody is signed in on this device. Use: nephos sign-in CONNECTION --account NAME",
                details: ["home": home])
        }
        return account
    }
}

/// Which app's store a command is about.
struct StoreOptions: ParsableArguments {
    @OptionGroup var device: DeviceOptionGroup

    @Option(name: .long, help: "The app (default: the one that signed in).")
    var app: String?

    func withStore<Result: Sendable>(_ body: (KeyValueStore, Session) async throws -> Result) async throws -> Result {
        try await device.withSession { session in
            try await body(try session.keyValueStore(app: app.map { AppID($0) }), session)
        }
    }
}
