public import NephosCore
public import NephosServiceKit

/// Typed records in zones and databases. Not built yet: it answers what every service
/// answers (health, and where its empty feed stands), so that a deployment and
/// its directory are complete.
public final class RecordsService: CloudService {
    public let name = ServiceName.records

    public init() {}

    public func register(on router: inout Router) {}
}
