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

    /// - Parameter name: As a ``ScopeID`` has it: containers have no slash in their names.
    init(_ name: String) {
        let parts = name.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        self =
            parts.count == 2 ? .zone(String(parts[0]), String(parts[1])) : .database(String(parts.first ?? ""))
    }

    var container: String {
        switch self {
        case .database(let container), .zone(let container, _): container
        }
    }

    var name: String {
        switch self {
        case .database(let container): container
        case .zone(let container, let zone): "\(container)/\(zone)"
        }
    }

    /// - Parameter zoneID: Nil: it is not known, or does not matter.
    func scope(of account: AccountID?, zoneID: String? = nil) -> LocalScope {
        var scope = LocalScope(account: account, service: .records, path: container, key: name)
        if case .zone(_, let zone) = self {
            let id = zone == RecordLimits.defaultZone ? zone : zoneID
            scope.path = id.map { "\(container)/\($0)" } ?? ""
        }
        return scope
    }
}
