import NephosCore
import NephosKit

/// What one container takes, as `nephos storage` shows it.
struct ContainerStorage: Encodable {
    var container: String
    var app: String
    /// Nil: this device has not downloaded it yet, like all that follows.
    var containerClass: String?
    var documentsBytes: UInt64?
    var hiddenBytes: UInt64?
    var trashBytes: UInt64?
    /// Of former versions, about.
    var versionBytes: UInt64?
    /// Of contents that are the same as another's, and count once.
    var sameBytes: UInt64?
    var countedBytes: UInt64?
    var countsOnPlan: Bool?
    /// Why what counts is as this device has heard last.
    var reason: String?

    /// How long a server is waited for by what this device can show without.
    private static let patience: Duration = .seconds(1)

    /// Of each container that this home uses, the largest first.
    static func all(of session: Session, within limit: Duration) async throws -> [ContainerStorage] {
        let scopes = try await session.scopes().filter { $0.id.service == .documents }
        return try await scopes.each(in: session) {
            try await report(of: $0, in: session, within: min(limit, patience))
        }
        .sorted { ($0.size, $1.container) > ($1.size, $0.container) }
    }

    private var size: UInt64 {
        max(countedBytes ?? 0, [documentsBytes, hiddenBytes, trashBytes].reduce(0) { $0.addingClamped($1 ?? 0) })
    }

    private static func report(
        of scope: Scope, in session: Session, within limit: Duration
    ) async throws -> ContainerStorage {
        var report = ContainerStorage(container: scope.id.name, app: scope.id.app.rawValue)
        let container = try await session.container(scope.id.name, app: scope.id.app)
        do {
            try await scope.waitUntilCurrent(timeout: limit, isImpatient: true)
            report.take(try await container.usage(timeout: limit))
        } catch {
            report.reason = Standing.words(CloudError(wrapping: error))
            guard try await scope.status().initialSyncFinished else { return report }
            report.take(try await container.usage())
        }
        return report
    }

    private mutating func take(_ usage: ContainerUsage) {
        containerClass = usage.containerClass.name
        documentsBytes = usage.documents.bytes
        hiddenBytes = usage.hidden.bytes
        trashBytes = usage.trash.bytes
        versionBytes = usage.versionBytes
        sameBytes = usage.sameBytes
        countedBytes = usage.countedBytes
        countsOnPlan = usage.containerClass.countsOnPlan
    }

    static func text(_ reports: [ContainerStorage]) -> String {
        func size(_ bytes: UInt64?) -> String { bytes.map { describe(bytes: $0) } ?? "?" }
        let rows = reports.map { report in
            [
                report.container, report.app, report.containerClass ?? "?",
                size(report.documentsBytes), size(report.hiddenBytes), size(report.trashBytes),
                size(report.versionBytes), size(report.sameBytes), size(report.countedBytes),
                report.countsOnPlan.map { $0 ? "yes" : "no" } ?? "?",
            ]
        }
        let heading = [
            "CONTAINER", "APP", "CLASS", "DOCUMENTS", "HIDDEN", "TRASH", "VERSIONS", "SAME", "SIZE", "COUNTS",
        ]
        let reasons = reports.compactMap { report in
            report.reason.map { "\(inLine(report.container)): as this device has heard last. \($0)" }
        }
        return ([table(heading, rows)] + reasons).joined(separator: "\n")
    }

    private enum CodingKeys: String, CodingKey {
        case container, app
        case containerClass = "class"
        case documentsBytes, hiddenBytes, trashBytes, versionBytes, sameBytes, countedBytes, countsOnPlan, reason
    }
}
