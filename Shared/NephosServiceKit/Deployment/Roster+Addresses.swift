public import NephosCore

extension Roster {
    /// Where a service that listens at this host tells its events: at all addresses of a machine nobody else follows
    /// them, so that is the machine itself.
    static func eventsHost(_ host: String) -> String {
        guard LocalPorts.isWildcard(host) else { return host }
        return host.contains(":") ? "::1" : "127.0.0.1"
    }

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

    /// The same with the address at which services reach each other.
    public func innerConnectionString() throws(CloudError) -> ConnectionString {
        let entry = try entry(of: .identity)
        return try ConnectionString(endpoint: entry.requests, key: try entry.key)
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

    /// Has the services bind, and reach each other, elsewhere, as after a move to another machine.
    ///
    /// - Parameters:
    ///   - host: At this host; nil: at the hosts that it has.
    ///   - isPerService: Each at a host that is named like it, instead.
    ///   - basePort: From this port on, as a new deployment; nil: at the ports that it has.
    /// - Throws: ``CloudError`` `.invalidArguments` for a host or port that cannot be one.
    public mutating func move(to host: String?, isPerService: Bool = false, basePort: Int?) throws(CloudError) {
        for index in services.indices {
            var entry = services[index]
            let key = try entry.key
            let host = isPerService ? entry.service : host
            func moved(_ endpoint: String, _ host: String?, _ offset: Int) throws(CloudError) -> String {
                let old = try ConnectionString(endpoint: endpoint, key: key)
                return try ConnectionString(
                    host: host ?? old.host, port: basePort.map { $0 + offset } ?? old.port, key: key
                ).endpoint
            }
            entry.requests = try moved(entry.requests, host, index * 2)
            entry.events = try moved(entry.events, host.map(Self.eventsHost), index * 2 + 1)
            let (subscriptions, bulk) = (index * 2 + 2, Deployment.bulkPort(of: entry.service) ?? 0)
            if let endpoint = entry.subscriptions { entry.subscriptions = try moved(endpoint, host, subscriptions) }
            if let endpoint = entry.bulk { entry.bulk = try moved(endpoint, host, bulk) }
            // What devices are told keeps its host, until another one is advertised.
            if let endpoint = entry.publicRequests { entry.publicRequests = try moved(endpoint, nil, index * 2) }
            if let endpoint = entry.publicSubscriptions {
                entry.publicSubscriptions = try moved(endpoint, nil, subscriptions)
            }
            if let endpoint = entry.publicBulk { entry.publicBulk = try moved(endpoint, nil, bulk) }
            services[index] = entry
        }
    }
}
