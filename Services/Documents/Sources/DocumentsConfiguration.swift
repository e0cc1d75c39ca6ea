internal import Foundation
public import NephosCore
public import NephosServiceKit

/// Every key of the documents service: type, default, unit.
public struct DocumentsConfiguration: Sendable {
    /// How contents are published by links; nil: they are not.
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

    /// The settings of links.
    public struct Publishing: Sendable {
        /// `documents.publish_url`. The beginning of each link: the address of the web. Default: its address on this
        /// machine.
        public var url: String
        /// `documents.publish_links_max`. Links of an account; 0: nothing is published.
        public var linksMax = 1000
        /// `documents.publish_days_max`. How long a link may be good.
        public var lifetimeMax: Duration = .seconds(30 * 86_400)

        /// How long a link is good for which nobody says it.
        static let lifetime: Duration = .seconds(7 * 86_400)

        public init(url: String) { self.url = url }
    }

    /// The defaults: nothing is published.
    public init() {}

    /// The defaults, with what the configuration says instead.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for a value that cannot be; `details` name the key.
    public init(_ settings: Settings) throws(CloudError) {
        streamBytesMax = try settings.integer("stream_bytes_max", default: streamBytesMax, in: 0...(1 << 60))
        libraryBytesMax = try settings.integer("library_bytes_max", default: libraryBytesMax, in: 0...(1 << 60))
        publishing = try Publishing(settings)
    }
}

extension DocumentsConfiguration.Publishing {
    /// - Returns: Nil: the deployment has no web, or no links.
    /// - Throws: ``CloudError`` `.configurationInvalid`, also where nothing is published.
    init?(_ settings: Settings) throws(CloudError) {
        let links = try settings.integer("publish_links_max", default: 1000, in: 0...2000)
        let days = try settings.integer("publish_days_max", default: 30, in: 1...3650)
        var given = settings.text("publish_url")
        if given == nil { given = try settings.webAddress() }
        guard var url = given, links > 0 else { return nil }
        while url.hasSuffix("/") { url.removeLast() }
        guard let parts = URL(string: url), ["http", "https"].contains(parts.scheme), parts.host != nil,
            parts.query == nil, parts.fragment == nil, url.utf8.count <= 1024
        else { throw settings.invalid("publish_url", "It is like https://files.example.org.") }
        self.init(url: url)
        linksMax = links
        lifetimeMax = .seconds(days * 86_400)
    }
}
