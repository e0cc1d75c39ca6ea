internal import NephosBus
public import NephosCore

/// A container of typed records, shaped like `CKContainer`. It has a private database for each account, and a public
/// one for all.
public final class RecordContainer: Sendable {
    /// The container's name, unique in the deployment.
    public let id: String
    /// The app that uses it.
    public let app: AppID
    /// The account's own records, the same on all of its devices.
    public let privateDatabase: RecordDatabase
    /// The database of all accounts of the container's apps, on the plan of the app that owns the container. Roles
    /// define permissions.
    ///
    /// It may be large, so reads ask the server, unless a copy is kept here (``RecordDatabase/keepCopy()``). A save is
    /// pending here until it is sent, as in the private database.
    public let publicDatabase: RecordDatabase

    init(id: String, app: AppID, account: AccountID, session: Session) {
        self.id = id
        self.app = app
        privateDatabase = RecordDatabase(container: id, app: app, account: account, session: session)
        publicDatabase = RecordDatabase(
            container: id, app: app, account: account, session: session, isPublic: true)
    }
}

extension Session {
    /// The records of one of the containers that an app lists (``containers(app:)``); nil: of the first. Its zones are
    /// followed from now on, and the records of each zone from when that is first used.
    ///
    /// Needs no network, unless the app was never used on this device.
    ///
    /// - Parameters:
    ///   - id: The container's identifier; nil: the app's own.
    ///   - app: Nil: the app that signed in.
    /// - Throws: ``CloudError`` `.notSignedIn`; `.missingEntitlement` when the app lists no such container, or there is
    ///   no such app; else a network error (try again).
    public func recordContainer(_ id: String? = nil, app: AppID? = nil) async throws(CloudError) -> RecordContainer {
        let (found, account): (ScopeID, AccountID) = try await engine.perform { engine, completion in
            engine.findContainer(id, of: app, service: .records, completion)
        }
        return RecordContainer(id: found.name, app: found.app, account: account, session: self)
    }
}
