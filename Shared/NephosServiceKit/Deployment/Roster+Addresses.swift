public import NephosCore

extension Roster {
    /// Has clients come to this host, at the ports that the services are bound to.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a host that cannot be one.
    public mutating func advertise(_ host: String) throws(CloudError) {
        for index in services.indices {
            let key = try services[index].key
            func moved(_ endpoint: String) throws(CloudError) -> String {
                let bound = try ConnectionString(endpoint: endpoint, key: key)
                return try ConnectionString(host: host, port: bound.port, key: key).endpoint
            }
            services[index].publicRequests = try moved(services[index].requests)
            if let subscriptions = services[index].subscriptions {
                services[index].publicSubscriptions = try moved(subscriptions)
            }
            if let bulk = services[index].bulk { services[index].publicBulk = try moved(bulk) }
        }
    }

    /// What devices need to find this deployment.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` or `.invalidArguments` for a roster without a usable identity.
    public func connectionString() throws(CloudError) -> ConnectionString {
        let entry = try entry(of: .identity)
        return try ConnectionString(endpoint: entry.publicRequests ?? entry.requests, key: try entry.key)
    }

    /// Has a service bind its ports at this host, whatever host others reach it by.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for a host that cannot be one, `.configurationInvalid` for a service
    ///   that is not on the roster.
    mutating func bind(_ service: ServiceName, at host: String) throws(CloudError) {
        guard let index = services.firstIndex(where: { $0.service == service.rawValue }) else {
            _ = try entry(of: service)
            return
        }
        var bound = services[index]
        let key = try bound.key
        func moved(_ endpoint: String) throws(CloudError) -> String {
            try ConnectionString(
                host: host, port: try ConnectionString(endpoint: endpoint, key: key).port, key: key
            ).endpoint
        }
        // What clients are told stays as it is.
        bound.publicRequests = bound.publicRequests ?? bound.requests
        bound.publicSubscriptions = bound.publicSubscriptions ?? bound.subscriptions
        bound.publicBulk = bound.publicBulk ?? bound.bulk
        bound.requests = try moved(bound.requests)
        bound.events = try moved(bound.events)
        if let subscriptions = bound.subscriptions { bound.subscriptions = try moved(subscriptions) }
        if let bulk = bound.bulk { bound.bulk = try moved(bulk) }
        services[index] = bound
    }
}
