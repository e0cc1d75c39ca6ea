internal import NephosCore
internal import NephosWire

/// What those may do, with records of a type of a public database, who have a role. Stored as bits.
struct RecordRights: OptionSet, Hashable, Sendable {
    let rawValue: Int64

    static let everyoneReads = RecordRights(rawValue: 1)
    static let signedInCreates = RecordRights(rawValue: 2)
    static let signedInReads = RecordRights(rawValue: 4)
    static let signedInWrites = RecordRights(rawValue: 8)
    static let creatorReads = RecordRights(rawValue: 16)
    static let creatorWrites = RecordRights(rawValue: 32)

    /// CloudKit's: everyone reads, who is signed in creates, and who has made a record changes it.
    static let standard: RecordRights = [.everyoneReads, .signedInCreates, .creatorReads, .creatorWrites]
}

/// Who may do what in a public database, by types.
struct RecordRoles: Sendable {
    /// The one of no type is of all types of which nothing is said by itself.
    var byType: [ItemName: RecordRights] = [:]

    func rights(of type: String) -> RecordRights {
        byType[ItemName(type)] ?? byType[ItemName("")] ?? .standard
    }

    /// Whether records of any type may be made by who is signed in.
    var allowsCreation: Bool {
        let others = byType[ItemName("")] ?? .standard
        return others.contains(.signedInCreates) || byType.values.contains { $0.contains(.signedInCreates) }
    }

    /// Whether the zone's feed has records of the type: what fewer than everyone may read is there for who asks alone.
    func areInFeed(_ type: String) -> Bool { rights(of: type).contains(.everyoneReads) }
}

/// What a caller may do with the records of a database: a pure rule, asked at every door.
///
/// In a private database, whose scopes are its account's alone, everything. In a public one what the roles say; who may
/// change a record may read it. An administrator of the container may do everything.
struct RecordAccess: Sendable {
    /// Nil: whoever has come so far may do everything.
    private(set) var roles: RecordRoles?
    /// Nil: it has no account.
    let account: AccountID?
    let isAdministrator: Bool

    /// Of an account in its own database.
    static let ownDatabase = RecordAccess(roles: nil, account: nil, isAdministrator: false)

    /// - Parameter account: Nil: it has none.
    init(roles: RecordRoles?, account: AccountID?, isAdministrator: Bool) {
        self.roles = roles
        self.account = account
        self.isAdministrator = isAdministrator
    }

    /// Whether there are rights to be asked for.
    var isRestricted: Bool { roles != nil && !isAdministrator }

    /// Whether the zone's feed has records of the type.
    func areInFeed(_ type: String) -> Bool { roles?.areInFeed(type) ?? true }

    func mayRead(_ record: WireRecord) -> Bool {
        allows(
            record, everyone: .everyoneReads, signedIn: [.signedInReads, .signedInWrites],
            creator: [.creatorReads, .creatorWrites])
    }

    /// Saves over it, and deletes it.
    func mayWrite(_ record: WireRecord) -> Bool {
        allows(record, everyone: [], signedIn: .signedInWrites, creator: .creatorWrites)
    }

    func hasMade(_ record: WireRecord) -> Bool {
        account.map { record.created.accountID.hasSameBytes(as: $0.rawValue) } ?? false
    }

    func mayCreate(_ type: String) -> Bool {
        guard isRestricted, let roles else { return true }
        return account != nil && roles.rights(of: type).contains(.signedInCreates)
    }

    /// Whether there may be a record that the caller could make.
    var mayCreateSome: Bool {
        guard isRestricted, let roles else { return true }
        return account != nil && roles.allowsCreation
    }

    private func allows(
        _ record: WireRecord, everyone: RecordRights, signedIn: RecordRights, creator: RecordRights
    ) -> Bool {
        guard isRestricted, let roles else { return true }
        let rights = roles.rights(of: record.type)
        if !rights.isDisjoint(with: everyone) { return true }
        guard account != nil else { return false }
        if !rights.isDisjoint(with: signedIn) { return true }
        return !rights.isDisjoint(with: creator) && hasMade(record)
    }
}

// MARK: - As it is said

extension RecordRights {
    /// - Throws: ``CloudError`` `.invalidArguments`: a right that none with the role can have.
    init(_ wire: WireRecordTypeRoles) throws(CloudError) {
        guard !wire.creator.create else {
            throw CloudError(
                .invalidArguments, "Before it is made a record has no creator. Let who is signed in create it.",
                details: ["argument": "creator"])
        }
        guard !wire.everyone.create, !wire.everyone.write else {
            throw CloudError(
                .invalidArguments, "Without an account one can only read. Let who is signed in create and write.",
                details: ["argument": "everyone"])
        }
        let rights: [(Bool, RecordRights)] = [
            (wire.everyone.read, .everyoneReads), (wire.signedIn.create, .signedInCreates),
            (wire.signedIn.read, .signedInReads), (wire.signedIn.write, .signedInWrites),
            (wire.creator.read, .creatorReads), (wire.creator.write, .creatorWrites),
        ]
        self = rights.reduce(into: []) { if $1.0 { $0.insert($1.1) } }
    }

    func wire(of type: String) -> WireRecordTypeRoles {
        var wire = WireRecordTypeRoles()
        wire.type = type
        wire.everyone.read = contains(.everyoneReads)
        wire.signedIn.create = contains(.signedInCreates)
        wire.signedIn.read = contains(.signedInReads)
        wire.signedIn.write = contains(.signedInWrites)
        wire.creator.read = contains(.creatorReads)
        wire.creator.write = contains(.creatorWrites)
        return wire
    }
}
