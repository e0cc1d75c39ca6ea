import GRDB
import NephosCore

/// Ubiquity containers: those that an app lists and that this home has used.
struct DocumentsKind: ScopeKind {
    let service = ServiceName.documents

    func scopes(of session: SessionRecord?, in database: Database) throws -> [ScopeID] {
        guard let session, session.signedIn else { return [] }
        let used = Set(
            try String.fetchAll(
                database,
                sql: """
                    SELECT scope FROM scopes WHERE service = 'documents' AND account = ?1
                    UNION SELECT scope FROM outbox WHERE service = 'documents' AND account = ?1
                    """,
                arguments: [session.accountID.rawValue]))
        // Apps may list one container: the first of them speaks for it.
        var named: Set<String> = []
        return (session.containerIDs ?? [:]).sorted { $0.key < $1.key }.flatMap { app, containers in
            containers.filter { used.contains($0) && named.insert($0).inserted }
                .map { ScopeID(app: AppID(app), service: service, name: $0) }
        }
    }

    func open(_ id: ScopeID, on engine: DeviceEngine) throws(CloudError) -> ScopeDriver {
        guard !id.name.isEmpty else {
            throw CloudError(.unknownItem, "Documents are kept in containers. Name one.")
        }
        let model = DocumentsModel(app: id.app, container: id.name, engine: engine)
        let driver = try engine.open(model)
        engine.sweepContents()
        engine.sweepBegunParts()
        return driver
    }

    func describe(
        _ changes: UnsentChanges, of session: SessionRecord, _ database: Database
    ) throws -> UnsentChanges {
        var changes = changes
        changes.app = UnsentChanges.app(listing: changes.name, session)
        let documents = DocumentTransaction(
            ScopeTransaction(
                database, LocalScope(account: session.accountID, service: service, path: changes.name)))
        let pending = try documents.pendingItems()
        try changes.set(pending) {
            UnsentChanges.Item(name: try documents.pathText(of: $0.id) ?? "\($0.id)", bytes: $0.bytes)
        }
        changes.bytes = pending.reduce(0) { $0.addingClamped($1.bytes) }
        return changes
    }

    func command(sending changes: UnsentChanges, options: String, _ session: SessionRecord) -> String {
        let isFirst = changes.app.flatMap { session.containerIDs?[$0.rawValue]?.first } == changes.name
        let container = isFirst ? "" : " --container=\(ShellCommand.word(changes.name))"
        return "nephos docs status\(options)\(container)"
    }

    let fileColumns = [
        FileColumn(table: "document_contents", column: "version"),
        FileColumn(table: "document_downloads", column: "file"),
    ]
}
