internal import Foundation
public import NephosCore
public import NephosHTTP
public import NephosServiceKit

/// Every key of the documents service: type, default, unit.
public struct DocumentsConfiguration: Sendable {
    /// How contents are published over HTTP; nil: they are not.
    public var publishing: Publishing?
    /// `documents.stream_bytes_max` and `documents.library_bytes_max`: what an account may have in containers of these
    /// classes, which do not count on its plan. 5 GiB and 50 GiB.
    public var streamBytesMax = 5 << 30
    public var libraryBytesMax = 50 << 30

    /// On what containers of a class count.
    func room(of containerClass: ContainerClass) -> StorageRoom {
        guard !containerClass.countsOnPlan else { return .plan }
        let bytes = containerClass == .stream ? streamBytesMax : libraryBytesMax
        return StorageRoom(name: containerClass.name, bytesMax: UInt64(clamping: bytes))
    }

    /// What is published, and where.
    public struct Publishing: Sendable {
        /// `documents.publish_port`. 0, the default: nothing is published.
        public var port: Int
        /// `documents.publish_host`. Which of this machine's addresses it listens at: `127.0.0.1`, for a proxy on this
        /// machine, unless it is said.
        public var host = "127.0.0.1"
        /// `documents.publish_certificate` and `documents.publish_key`. PEM files: the chain of certificates, the server's
        /// own first, and its key. Nil, the default: it answers without TLS.
        public var certificate: Certificate?
        /// `documents.publish_url`. What people reach it by, `http://HOST:PORT` unless it is said, or `https://HOST:PORT`
        /// with a certificate. Links are made with it.
        public var url = ""
        /// `documents.publish_links_max`. Links of an account.
        public var linksMax = 1000
        /// `documents.publish_days_max`. How long a link may be good.
        public var lifetimeMax: Duration = .seconds(30 * 86_400)
        /// `documents.publish_connections_max`; each may take 2 MiB. And `documents.publish_connections_of_address_max`:
        /// behind a proxy as many. And `documents.publish_requests_of_address_per_second`, and ten times as many at
        /// once: behind a proxy as many as of all.
        public var limits = HTTPLimits()

        /// Where a certificate and its key are.
        public struct Certificate: Hashable, Sendable {
            public var chainFile: String
            public var keyFile: String
        }

        /// How long a link is good for which nobody says it.
        static let lifetime: Duration = .seconds(7 * 86_400)

        public init(port: Int) {
            self.port = port
            limits.connectionsMax = 128
        }
    }

    /// The defaults: nothing is published.
    public init() {}

    /// The defaults, with what the configuration says instead.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for a value that cannot be; `details` name the key.
    public init(_ settings: Settings) throws(CloudError) {
        streamBytesMax = try settings.integer("stream_bytes_max", default: streamBytesMax, in: 0...(1 << 60))
        libraryBytesMax = try settings.integer("library_bytes_max", default: libraryBytesMax, in: 0...(1 << 60))
        let publishing = try Publishing(settings)
        if publishing.port > 0 { self.publishing = publishing }
    }
}

extension DocumentsConfiguration.Publishing {
    /// - Throws: ``CloudError`` `.configurationInvalid`, also where nothing is published.
    init(_ settings: Settings) throws(CloudError) {
        self.init(port: try settings.integer("publish_port", default: 0, in: 0...65_535))
        host = settings.text("publish_host") ?? host
        switch (settings.text("publish_certificate"), settings.text("publish_key")) {
        case (let chain?, let key?): certificate = Certificate(chainFile: chain, keyFile: key)
        case (nil, nil): break
        case (_?, nil): throw settings.invalid("publish_key", "It names the file of the certificate's key.")
        case (nil, _?): throw settings.invalid("publish_certificate", "It names the file of the certificates.")
        }
        let scheme = certificate == nil ? "http" : "https"
        url = settings.text("publish_url") ?? "\(scheme)://\(host.contains(":") ? "[\(host)]" : host):\(port)"
        while url.hasSuffix("/") { url.removeLast() }
        guard let parts = URL(string: url), ["http", "https"].contains(parts.scheme), parts.host != nil,
            parts.query == nil, parts.fragment == nil, url.utf8.count <= 1024
        else { throw settings.invalid("publish_url", "It is like https://files.example.org.") }
        linksMax = try settings.integer("publish_links_max", default: linksMax, in: 1...2000)
        lifetimeMax = .seconds(try settings.integer("publish_days_max", default: 30, in: 1...3650) * 86_400)
        limits.connectionsMax = try settings.integer(
            "publish_connections_max", default: limits.connectionsMax, in: 1...4096)
        limits.connectionsOfAddressMax = try settings.integer(
            "publish_connections_of_address_max", default: limits.connectionsOfAddressMax, in: 1...4096)
        limits.requestsOfAddressPerSecond = try settings.integer(
            "publish_requests_of_address_per_second", default: limits.requestsOfAddressPerSecond, in: 1...100_000)
        limits.requestsOfAddressMax = 10 * limits.requestsOfAddressPerSecond
    }
}
