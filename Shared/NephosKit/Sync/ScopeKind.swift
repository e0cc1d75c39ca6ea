import GRDB
import NephosCore

/// A kind of scope, as a device finds those that its home has, and opens them.
protocol ScopeKind {
    var service: ServiceName { get }
    /// What this home has of the kind, as whoever is signed in.
    func scopes(of session: SessionRecord?, in database: Database) throws -> [ScopeID]
    /// Begins to keep it in step.
    func open(_ id: ScopeID, on engine: DeviceEngine) throws(CloudError) -> ScopeDriver
    /// Says of what waits to be sent of one of its scopes, of whichever account is or was signed in, what it is.
    ///
    /// - Parameter changes: Which scope, and how many requests; `name` is the scope's.
    func describe(
        _ changes: UnsentChanges, of session: SessionRecord, _ database: Database
    ) throws -> UnsentChanges
    /// The command of the command line that waits until it is sent.
    func command(sending changes: UnsentChanges, options: String, _ session: SessionRecord) -> String
    /// Where its tables name files of the home's contents: these are not removed.
    var fileColumns: [FileColumn] { get }
}

/// A column that names files of the home's contents, or has nothing.
struct FileColumn: Sendable {
    var table: String
    var column: String
}

extension ScopeKind {
    func describe(
        _ changes: UnsentChanges, of session: SessionRecord, _ database: Database
    ) throws -> UnsentChanges { changes }
    func command(sending changes: UnsentChanges, options: String, _ session: SessionRecord) -> String {
        "nephos why\(options) --service=\(service)"
    }
    var fileColumns: [FileColumn] { [] }
}

extension DeviceEngine {
    func kind(of service: ServiceName) -> (any ScopeKind)? { kinds.first { $0.service == service } }

    /// The scope that is meant; begins to follow it.
    func scope(_ id: ScopeID) throws(CloudError) -> ScopeDriver {
        if let driver = scopes.first(where: { $0.key == id }) {
            home.opened(id)
            return driver
        }
        guard let kind = kind(of: id.service) else {
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
        let here = Set(found)
        return scopes.filter { !$0.model.isOnlyWhatIsHere || here.contains($0.model.id) }.map(\.model.id).sorted()
    }
}
