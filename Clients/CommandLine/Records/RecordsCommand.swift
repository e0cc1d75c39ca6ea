import ArgumentParser
import NephosCore
import NephosKit

struct RecordsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "records", abstract: "Save, query and export typed records in zones.",
        discussion: """
            Records are on this device. Each command asks the server for changes first, for at most a \
            second. If the server does not answer, you see this device's copy. Changes are saved on this \
            device at once and sent as soon as possible. Concurrent changes become conflicts (nephos records \
            conflicts). Rejected changes are listed by nephos records rejected.

            With --public a command uses the container's public database, which all accounts share. The \
            server is asked, unless a copy is kept here (nephos records copy keep). nephos records roles \
            list shows the rights.
            """,
        subcommands: [
            Zones.self, List.self, Save.self, Get.self, Asset.self, Query.self, Delete.self, Changes.self,
            Conflicts.self,
            Resolve.self, Refused.self, Retry.self, Export.self, Import.self, Explain.self, Index.self, Roles.self,
            Copy.self,
        ])

    typealias NetworkOptions = KeyValueCommand.NetworkOptions

    /// Which database a command is about.
    struct DatabaseOptions: ParsableArguments {
        @OptionGroup var device: DeviceOptionGroup

        @Option(name: .long, help: "The app (default: the signed-in app).") var app: String?
        @Option(name: .long, help: "The container (default: the app's first).") var container: String?
        @Flag(name: .customLong("public"), help: "Use the container's public database (default: the account's own).")
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
        @Option(name: .long, help: "The zone (default: the default zone).")
        var zone = RecordZone.defaultName
    }
}

extension ReadOptions {
    /// Where records are read that this device may not have.
    ///
    /// - Parameter asksServer: In any case.
    func source(asksServer: Bool = false) -> RecordSource { asksServer ? .server : offline ? .localOnly : .local }
}

extension RecordDatabase {
    /// Brings the database's zones and the records of one to this device.
    ///
    /// - Parameter zone: Nil: the zones alone.
    func bring(_ zone: String?, _ refresh: CopyRefresh) async throws {
        guard try await refresh.bring(scope), let zone, try await self.zones.zone(zone) != nil else { return }
        try await refresh.bring(scope(of: zone))
    }

    func refresh(_ zone: String?, _ network: ReadOptions) async throws {
        try await bring(zone, network.refresh)
    }

    func refresh(_ zone: String?, _ network: RecordsCommand.NetworkOptions) async throws {
        try await bring(zone, network.refresh)
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
