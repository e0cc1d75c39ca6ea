public import NephosCore
internal import NephosWire

/// Permissions for records of one type in a public database. An account with several roles has the rights of all of
/// them.
public struct RecordTypeRoles: Sendable, Hashable {
    /// The rights of a role.
    public struct Rights: OptionSet, Sendable, Hashable {
        public let rawValue: Int
        public init(rawValue: Int) { self.rawValue = rawValue }

        /// Save a new record. Only for ``RecordTypeRoles/signedIn``.
        public static let create = Rights(rawValue: 1)
        public static let read = Rights(rawValue: 2)
        /// Change and delete a record; this includes reading it. Not for ``RecordTypeRoles/everyone``.
        public static let write = Rights(rawValue: 4)
    }

    /// The record type; nil: all types without their own roles.
    public var type: String?
    /// The account that created the record.
    public var creator: Rights
    /// Every account that has the app.
    public var signedIn: Rights
    /// All readers, also without an account.
    public var everyone: Rights

    /// Creates permissions, with CloudKit's defaults.
    public init(
        type: String?, creator: Rights = [.read, .write], signedIn: Rights = .create, everyone: Rights = .read
    ) {
        self.type = type
        self.creator = creator
        self.signedIn = signedIn
        self.everyone = everyone
    }
}

/// The roles of a public database, as the server has them.
public struct RecordRoles: Sendable, Hashable {
    /// The permissions by type, those of all other types first.
    public var types: [RecordTypeRoles]
    /// Whether a change of the right to read is still being delivered to the database's followers.
    public var isChanging: Bool
    /// Whether this account is an administrator of the container. Administrators may do everything.
    public var isAdministrator: Bool
    /// The app that owns the database, and on whose plan it counts.
    public var owner: AppID
}

extension RecordDatabase {
    /// The roles of the public database, from the server.
    ///
    /// - Throws: ``CloudError`` `.networkUnavailable` and the like, `.notSignedIn`.
    public func roles(timeout: Duration? = nil) async throws(CloudError) -> RecordRoles {
        var request = WireListRecordRoles()
        request.container = container
        let reply = try await session.call(
            .records, request, as: WireListRecordRolesReply.self, app: app, timeout: timeout, account: account)
        return RecordRoles(reply.roles)
    }

    /// Changes the roles of the public database, all or none. Only for the container's administrators, whom the
    /// operator names.
    ///
    /// - Parameters:
    ///   - saving: New permissions, which replace those of their types.
    ///   - deleting: Types whose own permissions are removed; nil: the permissions of all other types.
    ///   - timeout: The time that the server has to answer.
    /// - Throws: ``CloudError`` `.permissionFailure`, `.invalidArguments` (a right that the role cannot have),
    ///   `.limitExceeded` (200 types), `.networkUnavailable` and the like, `.notSignedIn`. Nothing was done then.
    @discardableResult
    public func modifyRoles(
        saving: [RecordTypeRoles] = [], deleting: [String?] = [], timeout: Duration? = nil
    ) async throws(CloudError) -> RecordRoles {
        var request = WireModifyRecordRoles()
        request.container = container
        request.save = saving.map(\.wire)
        request.delete = deleting.map { $0 ?? "" }
        let reply = try await session.call(
            .records, request, as: WireModifyRecordRolesReply.self, app: app, timeout: timeout, account: account)
        return RecordRoles(reply.roles)
    }
}

extension RecordRoles {
    fileprivate init(_ wire: WireRecordRoles) {
        types = wire.types.map(RecordTypeRoles.init)
        isChanging = wire.changing
        isAdministrator = wire.administrator
        owner = AppID(wire.ownerApp)
    }
}

extension RecordTypeRoles {
    fileprivate init(_ wire: WireRecordTypeRoles) {
        self.init(
            type: wire.type.isEmpty ? nil : wire.type, creator: Rights(wire.creator), signedIn: Rights(wire.signedIn),
            everyone: Rights(wire.everyone))
    }

    fileprivate var wire: WireRecordTypeRoles {
        var wire = WireRecordTypeRoles()
        wire.type = type ?? ""
        (wire.creator, wire.signedIn, wire.everyone) = (creator.wire, signedIn.wire, everyone.wire)
        return wire
    }
}

extension RecordTypeRoles.Rights {
    fileprivate init(_ wire: WireRecordRights) {
        self = []
        if wire.create { insert(.create) }
        if wire.read { insert(.read) }
        if wire.write { insert(.write) }
    }

    fileprivate var wire: WireRecordRights {
        var wire = WireRecordRights()
        (wire.create, wire.read, wire.write) = (contains(.create), contains(.read), contains(.write))
        return wire
    }
}
