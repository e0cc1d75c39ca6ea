import GRDB
import NephosCore

/// A kind of scope, as a device finds those that its home has, and opens them.
protocol ScopeKind {
    var service: ServiceName { get }
    /// What this home has of the kind, as whoever is signed in.
    func scopes(of session: SessionRecord?, in database: Database) throws -> [ScopeID]
    /// Begins to keep it in step.
    func open(_ id: ScopeID, on engine: DeviceEngine) throws(CloudError) -> ScopeDriver
}

extension DeviceEngine {
    /// The scope that is meant; begins to follow it.
    func scope(_ id: ScopeID) throws(CloudError) -> ScopeDriver {
        if let driver = scopes.first(where: { $0.key == id }) {
            home.opened(id)
            return driver
        }
        guard let kind = kinds.first(where: { $0.service == id.service }) else {
            throw CloudError(
                .unknownItem, "Devices keep nothing of this service in step.",
                details: ["service": id.service.rawValue])
        }
        return try kind.open(id, on: self)
    }

    /// Follows everything that this home has.
    func openAll() throws(CloudError) -> [ScopeID] {
        let found = try local.read { database in
            let session = try Facts(database).session
            return try kinds.flatMap { try $0.scopes(of: session, in: database) }
        }
        for id in found { _ = try scope(id) }
        return scopes.map(\.model.id).sorted()
    }
}
