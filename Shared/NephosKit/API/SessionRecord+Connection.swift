import NephosCore

extension SessionRecord.Service {
    /// The identity service that a connection string names.
    init(_ connection: ConnectionString) {
        self.init(
            service: ServiceName.identity.rawValue, publicKey: connection.key.z85, requests: [connection.endpoint],
            subscriptions: [])
    }
}
