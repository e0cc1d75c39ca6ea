public import NephosCore
internal import NephosWire

/// Who may do what with records of a type of a public database. Whoever has several roles may do what any of them may.
public struct RecordTypeRoles: Sendable, Hashable {
    /// What those may do who have a role.
    public struct Rights: OptionSet, Sendable, Hashable {
        public let rawValue: Int
        public init(rawValue: Int) { self.rawValue = rawValue }

        /// Save one that is not there. For ``RecordTypeRoles/signedIn`` alone.
        public static let create = Rights(rawValue: 1)
        public static let read = Rights(rawValue: 2)
        /// Save over it, and delete it; who may do that may read it too. Not for ``RecordTypeRoles/everyone``.
        public static let write = Rights(rawValue: 4)
    }

    /// Nil: of every type of which nothing is said by itself.
    public var type: String?
    /// The account that has saved the record first.
    public var creator: Rights
    /// Every account that has the app.
    public var signedIn: Rights
    /// Also who has no account.
    public var everyone: Rights

    /// Who may do what; where nothing else is said, as CloudKit has it.
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
    /// By their types, the one of all others first.
    public var types: [RecordTypeRoles]
    /// What has become of who may read is being told to those who follow the database.
    public var isChanging: Bool
    /// Whether this account is one of the container's administrators, who may do everything.
    public var isAdministrator: Bool
    /// The app whose the database is, and on whose plan it counts.
    public var owner: AppID
}

extension RecordDatabase {
    /// Who may do what in the public database, as the server has it now.
    ///
    /// - Throws: ``CloudError`` `.networkUnavailable` and the like, `.notSignedIn`.
    public func roles(timeout: Duration? = nil) async throws(CloudError) -> RecordRoles {
        var request = WireListRecordRoles()
        request.container = container
        let reply = try await session.call(
            .records, request, as: WireListRecordRolesReply.self, app: app, timeout: timeout, account: account)
        return RecordRoles(reply.roles)
    }

    /// Says who may do what in the public database: all of it or nothing. For the container's administrators, whom the
    /// operator names.
    ///
    /// - Parameters:
    ///   - saving: In place of what was said of these types.
    ///   - deleting: Types of which nothing is to be said by itself any more; nil: of all others.
    /// - Throws: ``CloudError`` `.permissionFailure`, `.invalidArguments` (a right that none with the role can have),
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
