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
}
