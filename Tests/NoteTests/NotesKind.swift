import GRDB
import NephosCore
import SwiftProtobuf

@testable import NephosKit

/// Everybody who is signed in has notes.
struct NotesKind: ScopeKind {
    static let app = AppID("T.notes")
    let service = ServiceName.records

    func scopes(of session: SessionRecord?, in database: Database) throws -> [ScopeID] {
        session?.signedIn == true ? [ScopeID(app: Self.app, service: service)] : []
    }

    func open(_ id: ScopeID, on engine: DeviceEngine) throws(CloudError) -> ScopeDriver {
        try engine.open(NotesModel(engine))
    }
}

extension NotesModel {
    /// Accepts what the app writes.
    func append(_ note: Note, in rows: ScopeTransaction) throws {
        try append(note.wire.serializedData(), in: rows)
    }
}
