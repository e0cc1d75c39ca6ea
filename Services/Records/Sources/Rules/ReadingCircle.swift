internal import NephosCore
internal import NephosWire

/// Those who may read a record of a public database, besides its administrators, as the roles of its type say.
///
/// By circles records are found without meeting one that is not for the reader: so nothing that a reply costs, or where a
/// page ends, tells of those.
enum ReadingCircle: Hashable {
    case everyone
    case signedIn
    /// The record's creator alone.
    case creator(AccountID)

    var width: ReadingWidth {
        switch self {
        case .everyone: .everyone
        case .signedIn: .signedIn
        case .creator: .creator
        }
    }

    /// Nil: it is of more than one account.
    var creator: AccountID? {
        if case .creator(let account) = self { account } else { nil }
    }

    private static let digestBytes = 16

    /// What its rows begin with. Of no account anything can be read from it.
    var key: [UInt8] {
        switch self {
        case .everyone: [1]
        case .signedIn: [2]
        case .creator(let account):
            [3] + Array(account.rawValue.utf8).withUnsafeBytes { ChunkID(hashing: $0) }.bytes.prefix(Self.digestBytes)
        }
    }
}

/// How wide the circle is of those who may read records of a type.
enum ReadingWidth: Hashable {
    case everyone
    case signedIn
    case creator
    /// Administrators alone.
    case nobody
}

extension RecordRights {
    var readingWidth: ReadingWidth {
        if contains(.everyoneReads) { return .everyone }
        if !isDisjoint(with: [.signedInReads, .signedInWrites]) { return .signedIn }
        return isDisjoint(with: [.creatorReads, .creatorWrites]) ? .nobody : .creator
    }
}

extension RecordRoles {
    /// - Returns: Nil: administrators alone may read it.
    func circle(of record: WireRecord) -> ReadingCircle? {
        switch rights(of: record.type).readingWidth {
        case .everyone: .everyone
        case .signedIn: .signedIn
        case .creator: .creator(AccountID(record.created.accountID))
        case .nobody: nil
        }
    }
}

extension RecordAccess {
    /// Circles that the caller is in; nil: it may read whatever there is.
    private var circles: [ReadingCircle]? {
        guard isRestricted else { return nil }
        return account.map { [.everyone, .signedIn, .creator($0)] } ?? [.everyone]
    }

    /// Which of these records of the type are in, as long as those are not being gone through.
    func circles(of type: String, among circles: [ReadingCircle]) -> [ReadingCircle] {
        guard let roles, !type.isEmpty else { return circles }
        let width = roles.rights(of: type).readingWidth
        return circles.filter { $0.width == width }
    }

    /// Circles that the caller is in, if by them all is found that it may read: nil: it may look at everything, or the
    /// zone's records are being gone through, since their roles have changed.
    func circles(in zone: RecordScope) throws -> [ReadingCircle]? {
        guard let circles, try !RoleRows.isChanging(zone.scope, in: zone.transaction) else { return nil }
        return circles
    }

    /// The circle of the record's readers, in a public database.
    func circle(of record: WireRecord) -> ReadingCircle? { roles.flatMap { $0.circle(of: record) } }
}
