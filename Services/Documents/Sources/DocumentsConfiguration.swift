public import Configuration
internal import Foundation
public import NephosCore
public import NephosHTTP
internal import NephosServiceKit

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
        /// `documents.publish_url`. What people reach it by, `http://HOST:PORT` unless it is said. Links are made with it.
        public var url = ""
        /// `documents.publish_links_max`. Links of an account.
        public var linksMax = 1000
        /// `documents.publish_days_max`. How long a link may be good.
        public var lifetimeMax: Duration = .seconds(30 * 86_400)
        /// `documents.publish_connections_max`; each may take 2 MiB. And `documents.publish_connections_of_address_max`:
        /// behind a proxy as many. And `documents.publish_requests_of_address_per_second`, and ten times as many at
        /// once: behind a proxy as many as of all.
        public var limits = HTTPLimits()

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
    /// - Throws: ``CloudError`` `.configurationInvalid` for a value out of range; `details` name the key.
    public init(_ reader: ConfigReader) throws(CloudError) {
        streamBytesMax = try Self.integer(
            reader, "documents.stream_bytes_max", default: streamBytesMax, in: 0...(1 << 60))
        libraryBytesMax = try Self.integer(
            reader, "documents.library_bytes_max", default: libraryBytesMax, in: 0...(1 << 60))
        let port = try Self.integer(reader, "documents.publish_port", default: 0, in: 0...65_535)
        guard port > 0 else { return }
        var publishing = Publishing(port: port)
        publishing.host = reader.string(forKey: "documents.publish_host", default: publishing.host)
        let host = publishing.host.contains(":") ? "[\(publishing.host)]" : publishing.host
        publishing.url = reader.string(forKey: "documents.publish_url", default: "http://\(host):\(port)")
        while publishing.url.hasSuffix("/") { publishing.url.removeLast() }
        guard let url = URL(string: publishing.url), ["http", "https"].contains(url.scheme), url.host != nil,
            url.query == nil, url.fragment == nil, publishing.url.utf8.count <= 1024
        else { throw Self.invalid("documents.publish_url") }
        publishing.linksMax = try Self.integer(
            reader, "documents.publish_links_max", default: publishing.linksMax, in: 1...2000)
        publishing.lifetimeMax = .seconds(
            try Self.integer(reader, "documents.publish_days_max", default: 30, in: 1...3650) * 86_400)
        publishing.limits.connectionsMax = try Self.integer(
            reader, "documents.publish_connections_max", default: publishing.limits.connectionsMax, in: 1...4096)
        publishing.limits.connectionsOfAddressMax = try Self.integer(
            reader, "documents.publish_connections_of_address_max",
            default: publishing.limits.connectionsOfAddressMax, in: 1...4096)
        publishing.limits.requestsOfAddressPerSecond = try Self.integer(
            reader, "documents.publish_requests_of_address_per_second",
            default: publishing.limits.requestsOfAddressPerSecond, in: 1...100_000)
        publishing.limits.requestsOfAddressMax = 10 * publishing.limits.requestsOfAddressPerSecond
        self.publishing = publishing
    }

    private static func integer(
        _ reader: ConfigReader, _ key: String, default value: Int, in range: ClosedRange<Int>
    ) throws(CloudError) -> Int {
        let value = reader.int(forKey: ConfigKey(key), default: value)
        guard range.contains(value) else { throw invalid(key) }
        return value
    }

    private static func invalid(_ key: String) -> CloudError {
        CloudError(.configurationInvalid, "A configuration value is out of range.", details: ["key": key])
    }
}
