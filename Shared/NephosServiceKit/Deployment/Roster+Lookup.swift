public import NephosCore

private import struct Foundation.Data

extension Roster {
    /// The entry of a service.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` if it is not on the roster.
    public func entry(of service: ServiceName) throws(CloudError) -> Entry {
        guard let entry = services.first(where: { $0.service == service.rawValue }) else {
            throw CloudError(
                .configurationInvalid, "The roster does not name this service.",
                details: ["service": service.rawValue])
        }
        return entry
    }

    /// The keys of all services, those among them that they will have after the next rotation.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` if one is not Z85.
    var serviceKeys: Set<PublicKey> {
        get throws(CloudError) { try keys(of: services) }
    }

    /// The same of one service.
    func keys(of service: ServiceName) throws(CloudError) -> Set<PublicKey> {
        try keys(of: services.filter { $0.service == service.rawValue })
    }

    private func keys(of entries: [Entry]) throws(CloudError) -> Set<PublicKey> {
        var keys: Set<PublicKey> = []
        for entry in entries {
            keys.insert(try entry.key)
            if let next = try entry.nextKey { keys.insert(next) }
        }
        return keys
    }

    /// The addresses of all instances of a service.
    public func endpoints(of service: ServiceName, _ path: KeyPath<Entry, String>) -> [String] {
        services.filter { $0.service == service.rawValue }.map { $0[keyPath: path] }
    }
}

extension Roster.Entry {
    /// The service's CURVE key.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` if it is not Z85.
    public var key: PublicKey {
        get throws(CloudError) { try key(publicKey) }
    }

    /// All that the service binds.
    public var endpoints: [String] { [requests, events] + [subscriptions, bulk].compactMap { $0 } }

    /// The key that it will have after the next rotation, if one is announced.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` if it is not Z85.
    public var nextKey: PublicKey? {
        get throws(CloudError) {
            guard let nextPublicKey else { return nil }
            return try key(nextPublicKey)
        }
    }

    private func key(_ text: String) throws(CloudError) -> PublicKey {
        guard let key = PublicKey(z85: text) else {
            throw CloudError(
                .configurationInvalid, "A public key in the roster is not one in Z85.", details: ["service": service])
        }
        return key
    }
}

extension ServiceSecrets {
    /// The service's CURVE secret key.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` if it is not Z85.
    public var key: SecretKey {
        get throws(CloudError) {
            guard let key = SecretKey(z85: secretKey) else {
                throw CloudError(
                    .configurationInvalid, "The secret key is not one in Z85.", details: ["service": service])
            }
            return key
        }
    }

    /// What the service knows its change tokens by.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` if it is not 16 bytes in base64.
    var history: SipHash {
        get throws(CloudError) {
            guard let bytes = Data(base64Encoded: historyKey), let key = SipHash(key: bytes) else {
                throw CloudError(
                    .configurationInvalid, "The history key is not 16 bytes in base64.", details: ["service": service])
            }
            return key
        }
    }
}
