public import Core
public import ServiceKit

/// Files and folders of ubiquity containers. Not built yet: it answers what every service
/// answers (health, and where its empty feed stands), so that a deployment and
/// its directory are complete.
public final class DocumentsService: CloudService {
    public let name = ServiceName.documents

    public init() {}

    public func register(on router: inout Router) {}
}
