import ArgumentParser
import NephosCore
import NephosKit

struct VerifyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Prove that this device has the same data as the server, or list the differences.",
        discussion: """
            Exit code 6: data differs, a change is pending, a change was rejected and not dismissed (nephos \
            discard), or the server has lost content that this device could not send again.
            """)

    @Flag(
        name: .customLong("all"),
        help: ArgumentHelp(
            "Read every item instead of comparing digests. This also finds items that the server cannot read."))
    var readsAll = false
    @OptionGroup var scopes: ScopeOptions
    @OptionGroup var wait: WaitOptions
    @OptionGroup var output: OutputOptions

    private struct Compared {
        var scope: Scope
        var standing: Standing
        var status: StoreStatus
        var proof: Verification
        /// Of a records database of which the server has lost something; nil: it has not, or could not be asked.
        var assets: DamagedAssets?

        var json: PropertyValue {
            let differences = proof.differences.map { ($0.key, PropertyValue.string($0.kind.rawValue)) }
            var fields: [ItemName: PropertyValue] = [
                "state": .string(standing.state.rawValue), "in_sync": .boolean(standing.state == .inSync),
                "token": .string(proof.token.description), "local_digest": .string(proof.localDigest.description),
                "server_digest": .string(proof.serverDigest.description), "pending": .integer(Int64(proof.pending)),
                "refused": .array(status.refused.map { .string($0.key.rawValue) }),
                "differences": .dictionary(Dictionary(differences) { $1 }),
                "more_differences": .boolean(proof.hasMore),
                "paths": .dictionary(Dictionary(proof.differences.compactMap(Self.paths)) { $1 }),
                "damaged_chunks": .integer(Int64(proof.damagedChunkCount)),
            ]
            if let assets { fields["damaged_assets"] = .array(assets.places.map(Self.json)) }
            return .dictionary(scope.names.merging(fields) { $1 })
        }

        private static func json(_ place: DamagedAssets.Place) -> PropertyValue {
            .dictionary([
                "zone": .string(place.record.zone), "record": .string(place.record.name), "field": .string(place.field),
            ])
        }

        private static func line(_ place: DamagedAssets.Place) -> String {
            let zone = place.record.zone == RecordZone.defaultName ? "" : " in zone \(inLine(place.record.zone))"
            return
                "  \(inLine(place.record.name))\(zone), \(inLine(place.field)): the server cannot read the asset any more"
        }

        /// Of a container's item, where it is here and on the server.
        private static func paths(
            _ difference: Verification.Difference
        ) -> (ItemName, PropertyValue)? {
            var paths: [ItemName: PropertyValue] = [:]
            paths["here"] = difference.path.map { .string($0) }
            paths["server"] = difference.serverPath.map { .string($0) }
            return paths.isEmpty ? nil : (difference.key, .dictionary(paths))
        }

        private static func line(_ difference: Verification.Difference) -> String {
            let name = difference.path ?? difference.serverPath ?? difference.key.rawValue
            let isElsewhere = difference.serverPath.map { $0 != name } ?? false
            let other = isElsewhere ? " (on the server \(inLine(difference.serverPath ?? "")))" : ""
            return "  \(inLine(name))\(other): \(difference.kind.rawValue)"
        }

        var text: String {
            let differences = proof.differences.map(Self.line)
            let digests = ["  here    \(proof.localDigest)", "  server  \(proof.serverDigest)"]
            let more = proof.hasMore ? ["  and more"] : []
            let isNamed = assets.map { !$0.hasMore && !$0.places.isEmpty } ?? false
            let who =
                scope.id.service == .records
                ? "nephos records export --assets FOLDER names the records" : "nephos docs status"
            let damage =
                (assets?.places.map(Self.line) ?? [])
                + (proof.damagedChunkCount > 0 && !isNamed ? ["  What the server cannot read: \(who)"] : [])
            return ([standing.text] + digests + differences + more + damage).joined(separator: "\n")
        }
    }

    func run() async throws {
        try await scopes.withScopes(within: wait.duration) { scopes, session in
            let limit = wait.duration
            let readsAll = readsAll
            let compared = try await scopes.each(in: session) {
                try await Self.compare($0, within: limit, readsAll: readsAll, session)
            }
            try output.print(
                .array(compared.map(\.json)), text: sections(compared.map { ($0.scope, $0.text) }))
            try compared.map(\.standing).end()
        }
    }

    private static func compare(
        _ scope: Scope, within limit: Duration, readsAll: Bool, _ session: Session
    ) async throws -> Compared {
        let asked = try await Asked(scope, within: limit)
        // What was fetched is compared, whatever holds up what still waits.
        if asked.isInVain, !asked.isHeard, let cause = Standing(asked.status, failure: asked.failure).cause {
            var error = asked.details(for: cause)
            error.details["app"] = scope.id.app.rawValue
            throw error
        }
        let proof = try await scope.verify(timeout: limit, readsAll: readsAll)
        let status = try await scope.status()
        var compared = Compared(
            scope: scope, standing: Standing(status, proof: proof, failure: asked.failure), status: status,
            proof: proof)
        if scope.id.service == .records, proof.damagedChunkCount > 0 {
            let database = try await session.recordContainer(scope.id.name, app: scope.id.app).privateDatabase
            // Which they are is said besides.
            compared.assets = try? await database.assets.damaged(timeout: limit)
        }
        return compared
    }
}
