import ArgumentParser
import Foundation
import Logging
import NephosCore
import NephosKit
import NephosWire
import NephosZeroMQ

/// Which device a command speaks for, and as which app.
struct DeviceOptionGroup: ParsableArguments {
    @Option(name: .long, help: "The device's home (default: $NEPHOS_HOME, or ~/.nephos).", completion: .directory)
    var home: String?

    private var place: String { home ?? Session.defaultHome.path }

    /// Whether a device has its home here.
    ///
    /// - Throws: ``CloudError`` `.permissionFailure` when this user may not know.
    var hasHome: Bool {
        get throws(CloudError) {
            // What is no folder has another mode, and the session says so.
            guard access(place + "/.", R_OK | W_OK | X_OK) == 0 || errno != EACCES else {
                throw CloudError(
                    .permissionFailure, "This user may not use the device's home. Run this as its owner.",
                    details: ["home": place])
            }
            return access(place + "/device.sqlite", F_OK) == 0 || errno != ENOENT && errno != ENOTDIR
        }
    }

    /// Checks that no other program uses the home.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation`.
    func requireUnused() throws(CloudError) { if try hasHome { try Session.requireUnused(place) } }

    /// Opens the home for the length of a command.
    ///
    /// - Parameter makesHome: Whether one that is not there is made. What only reads makes nothing: a home that is
    ///   mistyped would be there from then on.
    /// - Throws: ``CloudError`` `.notSignedIn` when there is no home, and none is made.
    func withSession<Result: Sendable>(
        makesHome: Bool = false, isOffline: Bool = false, _ body: (Session) async throws -> Result
    ) async throws -> Result {
        var logger = Logger(label: "nephos.device") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel =
            ProcessInfo.processInfo.environment["NEPHOS_LOG_LEVEL"].flatMap { Logger.Level(rawValue: $0) } ?? .error
        let home = place
        let isThere = try hasHome
        guard makesHome || isThere else {
            throw CloudError(
                .notSignedIn,
                "No device has its home here: no account has signed in. Use: nephos sign-in CONNECTION --account NAME",
                details: ["home": home])
        }
        var options = DeviceOptions()
        (options.isOffline, options.isImpatient) = (isOffline, true)
        let session = try await Session.open(
            home: URL(fileURLWithPath: home, isDirectory: true), options: options, logger: logger)
        defer { session.close() }
        return try await body(session)
    }
}

extension Session {
    /// - Throws: ``CloudError`` `.notSignedIn`, with the way to cure it.
    func requireAccount() throws(CloudError) -> SessionRecord {
        guard let account = try account else {
            throw CloudError(
                .notSignedIn, "No account is signed in on this device. Use: nephos sign-in CONNECTION --account NAME",
                details: ["home": home.path])
        }
        return account
    }

    /// What the account that was signed in last has left here unsent; nil: nothing, or one is signed in.
    var leftUnsent: LeftUnsent? {
        get async throws(CloudError) {
            guard try account == nil, let name = try lastAccountName else { return nil }
            let count = try await unsentChanges().reduce(0) { $0 + $1.requestCount }
            let undecided = try await undecidedCount()
            return count + undecided > 0 ? LeftUnsent(account: name, count: count, undecidedCount: undecided) : nil
        }
    }
}

/// What waits in a home for its account to sign in again.
struct LeftUnsent {
    var account: String
    /// Requests that were never sent.
    var count: Int
    /// What was refused, or conflicts with others.
    var undecidedCount: Int

    var text: String {
        func these(_ count: Int, _ what: String) -> String {
            "\(count) \(count == 1 ? "change" : "changes") of \(inLine(account)) \(count == 1 ? "was" : "were") \(what), "
                + "and \(count == 1 ? "waits" : "wait") here until this account signs in again."
        }
        return [
            count > 0 ? these(count, "never sent") : nil,
            undecidedCount > 0 ? these(undecidedCount, "rejected or in conflict") : nil,
        ].compactMap { $0 }.joined(separator: "\n")
    }
}

extension Session {
    /// Asks the server whether this device may still ask it anything, before a person is asked.
    func requireAnswer(within limit: Duration) async throws(CloudError) {
        _ = try await call(.identity, WireWhoAmI(), as: WireWhoAmIReply.self, timeout: limit)
    }
}

/// Which app's store a command is about.
struct StoreOptions: ParsableArguments {
    @OptionGroup var device: DeviceOptionGroup

    @Option(name: .long, help: "The app (default: the signed-in app).")
    var app: String?

    /// - Parameters:
    ///   - limit: How long to wait for the server, where it has to be asked about the app.
    ///   - makesHome: Whether the home may be made: for what is kept before anybody signs in. That needs the
    ///     app's name.
    func withStore<Result: Sendable>(
        within limit: Duration?, makesHome: Bool = false, _ body: (KeyValueStore, Session) async throws -> Result
    ) async throws -> Result {
        try await device.withSession(makesHome: makesHome && app != nil, isOffline: limit == nil) { session in
            let store = try session.keyValueStore(app: app.map { AppID($0) })
            if let app, let account = try session.account, account.storeIDs[app] == nil {
                try await store.scope.requireKnown(to: account, within: limit ?? .zero)
            }
            return try await body(store, session)
        }
    }
}
