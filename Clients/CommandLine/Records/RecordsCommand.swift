import ArgumentParser
import NephosCore
import NephosKit

struct RecordsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "records", abstract: "Typed records in the zones of an app's containers.",
        discussion: """
            Records are on this device: the server is asked for changes first, for a second at most, and what this device \
            has is shown if it does not answer. What is saved and deleted is kept on this device at once, and sent when it \
            can be. What others have saved meanwhile is a conflict until it is resolved: nephos records conflicts. What \
            the server refuses is listed: nephos records refused.

            With --public it is about the container's public database, which all accounts have in common: there the server \
            is asked, unless a copy is kept here (nephos records copy keep). Who may do what: nephos records roles list.
            """,
        subcommands: [
            Zones.self, List.self, Save.self, Get.self, Asset.self, Query.self, Delete.self, Changes.self,
            Conflicts.self,
            Resolve.self, Refused.self, Retry.self, Export.self, Import.self, Explain.self, Index.self, Roles.self,
            Copy.self,
        ])

    typealias NetworkOptions = KeyValueCommand.NetworkOptions
    typealias ReadOptions = KeyValueCommand.ReadOptions

    /// Which database a command is about.
    struct DatabaseOptions: ParsableArguments {
        @OptionGroup var device: DeviceOptionGroup

        @Option(name: .long, help: "The app (default: the one that signed in).") var app: String?
        @Option(name: .long, help: "The container (default: the first that the app lists).") var container: String?
        @Flag(name: .customLong("public"), help: "The container's public database (default: the account's own).")
        var isPublic = false

        func withDatabase<Result: Sendable>(
            isOffline: Bool = false, _ body: (RecordDatabase, Session) async throws -> Result
        ) async throws -> Result {
            try await device.withSession(isOffline: isOffline) { session in
                _ = try session.requireAccount()
                let container = try await session.recordContainer(container, app: app.map { AppID($0) })
                return try await body(isPublic ? container.publicDatabase : container.privateDatabase, session)
            }
        }
    }

    /// Which zone a command is about.
    struct ZoneOptions: ParsableArguments {
        @Option(name: .long, help: "The zone (default: the one that is always there).")
        var zone = RecordZone.defaultName
    }
}

extension RecordsCommand.ReadOptions {
    /// Where records are read that this device may not have.
    ///
    /// - Parameter asksServer: In any case.
    func source(asksServer: Bool = false) -> RecordSource { asksServer ? .server : offline ? .localOnly : .local }
}

extension RecordsCommand {
    static func damaged(_ name: String, in zone: String) -> CloudError {
        CloudError(
            .storageFailure,
            "The server cannot read the record any more, and this device does not have it. Another that does may bring it back.",
            details: ["record": name, "zone": zone, "reason": "damaged"])
    }
}

extension RecordDatabase {
    /// How long a server is waited for of which nothing has to be known.
    private static let patience: Duration = .seconds(1)

    /// Brings the zones and one's records to this device, as new as the server says within a moment.
    ///
    /// - Parameters:
    ///   - zone: Nil: the zones alone.
    ///   - limit: How long to wait for the first download; nil: the server is not asked.
    ///   - isWriting: What is written need not be downloaded first: if the server is silent it is kept.
    ///   - isFresh: It has to be what the server has now.
    func refresh(
        _ zone: String?, within limit: Duration?, isWriting: Bool = false, isFresh: Bool = false
    ) async throws {
        guard let limit else { return }
        var isHere = true
        do {
            for scope in [scope] + (zone.map { [self.scope(of: $0)] } ?? []) {
                isHere = try await scope.status().initialSyncFinished
                if scope.id.name != container, let zone, try await self.zone(zone) == nil { return }
                if isFresh || !isHere {
                    try await scope.waitUntilCurrent(timeout: limit, isImpatient: true)
                } else {
                    try await scope.waitUntilCurrent(within: min(limit, Self.patience), isImpatient: true)
                }
            }
        } catch {
            let error = CloudError(wrapping: error)
            guard !isFresh, isHere || isWriting else { throw error }
            // What this device has is used. That the server is silent, or not there, is everyday.
            if !isWriting, let reason = error.reasonInWords {
                Standard.error("nephos: this is what this device has: \(reason)")
            }
        }
    }

    func refresh(_ zone: String?, _ network: RecordsCommand.ReadOptions, isFresh: Bool = false) async throws {
        try await refresh(zone, within: network.limit, isFresh: isFresh)
    }

    func refresh(_ zone: String?, _ network: RecordsCommand.NetworkOptions) async throws {
        try await refresh(zone, within: network.limit, isWriting: true)
    }

    /// Those of the records that this device has, or the server tells where no copy is kept; none, where this device has
    /// not downloaded their zone, and the server cannot be asked.
    ///
    /// - Parameter limit: Nil: it is not asked.
    func known(
        _ ids: [RecordID], within limit: Duration?
    ) async throws -> (records: [RecordID: Record], isDownloaded: Bool) {
        do { return (try await records(ids, from: limit == nil ? .localOnly : .local, timeout: limit), true) } catch {
            guard error.code == .storeOutOfStep || ExitStatus.of(error) == .unreachable else { throw error }
            return ([:], false)
        }
    }
}
