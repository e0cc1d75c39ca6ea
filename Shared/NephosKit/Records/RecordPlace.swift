import NephosCore

/// Which of a container's scopes it is.
///
/// A zone is called by its name here, and by its id on the server: so what waits for a zone that is yet to be made goes
/// on in the one that another device has made under that name first.
enum RecordPlace: Hashable {
    /// The container's zones.
    case database(String)
    /// A zone's records: the container, and the zone's name.
    case zone(String, String)
    /// The records of the container's public database, where this device keeps a copy of them.
    case publicZone(String)
    /// Where it keeps none, what waits to be sent there. What is followed is a scope in which there never is anything.
    case publicOutbox(String)

    /// No zone is called so.
    private static let nameOfPublicZone = "_publicZone"
    private static let nameOfOutbox = "_public"

    /// - Parameter name: As a ``ScopeID`` has it, or a home's tables: containers have no slash in their names.
    init(_ name: String) {
        // Of a public database the tables name the owner: `@app/`, its id, a slash.
        let own = name.hasPrefix("@") ? name.split(separator: "/", maxSplits: 2).last.map(String.init) ?? name : name
        let parts = own.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        let container = String(parts.first ?? "")
        switch parts.count == 2 ? String(parts[1]) : nil {
        case nil: self = .database(container)
        case Self.nameOfPublicZone?: self = .publicZone(container)
        case Self.nameOfOutbox?: self = .publicOutbox(container)
        case let zone?: self = .zone(container, zone)
        }
    }

    var container: String {
        switch self {
        case .database(let container), .zone(let container, _), .publicZone(let container),
            .publicOutbox(let container):
            container
        }
    }

    var name: String {
        switch self {
        case .database(let container): container
        case .zone(let container, let zone): "\(container)/\(zone)"
        case .publicZone(let container): "\(container)/\(Self.nameOfPublicZone)"
        case .publicOutbox(let container): "\(container)/\(Self.nameOfOutbox)"
        }
    }

    /// As a person reads it.
    var title: String {
        switch self {
        case .database(let container): "\(container), its zones"
        case .zone: name
        case .publicZone(let container): "\(container), its public database's copy"
        case .publicOutbox(let container): "\(container), its public database"
        }
    }

    /// What the app calls the zone; nil: it is none.
    var zone: String? {
        switch self {
        case .database: nil
        case .zone(_, let zone): zone
        case .publicZone, .publicOutbox: RecordLimits.defaultZone
        }
    }

    var isPublic: Bool {
        switch self {
        case .database, .zone: false
        case .publicZone, .publicOutbox: true
        }
    }

    /// Whether what is there is kept here too.
    var hasCopy: Bool { if case .publicOutbox = self { false } else { true } }

    /// - Parameters:
    ///   - zoneID: Nil: it is not known, or does not matter.
    ///   - owner: Of a public database.
    func scope(of account: AccountID?, zoneID: String? = nil, owner: Owner? = nil) -> LocalScope {
        var scope = LocalScope(account: account, service: .records, owner: owner, path: container, key: name)
        switch self {
        case .database, .publicOutbox: break
        case .zone(_, let zone):
            let id = zone == RecordLimits.defaultZone ? zone : zoneID
            scope.path = id.map { "\(container)/\($0)" } ?? ""
        case .publicZone: scope.path = "\(container)/\(RecordLimits.defaultZone)"
        }
        return scope
    }
}
