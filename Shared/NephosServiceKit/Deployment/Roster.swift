/// Who takes part in a deployment: what every service is handed, and nothing secret.
public struct Roster: Sendable, Hashable, Codable {
    public struct Entry: Sendable, Hashable, Codable {
        public var service: String
        /// CURVE public key, Z85.
        public var publicKey: String
        /// What its key will be after the next rotation, once that is announced.
        public var nextPublicKey: String?
        /// Where the service binds, and others reach it, such as `tcp://127.0.0.1:7411`.
        public var requests: String
        /// Its PUB.
        public var events: String
        /// Where devices subscribe (notifications only).
        public var subscriptions: String?
        /// Where content is sent and fetched (documents only).
        public var bulk: String?
        /// Where clients reach `requests`, `subscriptions` and `bulk`, if not at the same addresses.
        public var publicRequests: String?
        public var publicSubscriptions: String?
        public var publicBulk: String?

        public init(
            service: String, publicKey: String, requests: String, events: String, subscriptions: String? = nil,
            bulk: String? = nil, publicRequests: String? = nil, publicSubscriptions: String? = nil,
            publicBulk: String? = nil
        ) {
            self.service = service
            self.publicKey = publicKey
            self.requests = requests
            self.events = events
            self.subscriptions = subscriptions
            self.publicRequests = publicRequests
            self.publicSubscriptions = publicSubscriptions
            self.bulk = bulk
            self.publicBulk = publicBulk
        }
    }

    /// Random; in every token, so that one deployment's token is none in another.
    public var deployment: String
    public var services: [Entry]
    /// The operator's CURVE public key, Z85.
    public var operatorKey: String
    /// Ed25519 public keys by key id, raw bytes in base64: who may sign access tokens.
    public var tokenKeys: [String: String]
    /// When the services' next keys were announced, milliseconds since 1970.
    public var nextKeysAnnounced: UInt64?

    public init(deployment: String, services: [Entry], operatorKey: String, tokenKeys: [String: String]) {
        self.deployment = deployment
        self.services = services
        self.operatorKey = operatorKey
        self.tokenKeys = tokenKeys
    }
}

/// One service's secret file. Mode 0600; handed to that service alone.
public struct ServiceSecrets: Sendable, Codable {
    public var service: String
    /// CURVE secret key, Z85.
    public var secretKey: String
    /// What it will be after the next rotation, once that is announced.
    public var nextSecretKey: String?
    /// 32 bytes in base64: wraps the per-account keys of this service. Newest first.
    public var masterKeys: [String]
    /// 16 bytes in base64: what the service knows its change tokens by. It is
    /// never replaced: by it an old copy of the database is recognised, also an empty one.
    public var historyKey: String
    /// Identity only: the Ed25519 private key that signs tokens, raw in base64, and its key id.
    public var tokenSigningKey: String?
    public var tokenSigningKeyID: String?

    public init(
        service: String, secretKey: String, masterKeys: [String], historyKey: String, tokenSigningKey: String? = nil,
        tokenSigningKeyID: String? = nil
    ) {
        self.service = service
        self.secretKey = secretKey
        self.masterKeys = masterKeys
        self.historyKey = historyKey
        self.tokenSigningKey = tokenSigningKey
        self.tokenSigningKeyID = tokenSigningKeyID
    }
}
