public import Foundation
public import NephosCore
internal import NephosWire

/// A link to a content: whoever has its address gets the bytes that the file had when it was published.
public struct PublishedLink: Hashable, Sendable {
    /// Names it. It is no secret, and opens nothing.
    public var id: DocumentID
    /// What to give away. Nil of a link that is listed: the secret in it is told once, to who publishes, and nobody
    /// keeps it.
    public var url: URL?
    /// Until when it is good.
    public var expires: Timestamp
    /// When it was made, by the server's clock.
    public var created: Timestamp
    /// The file.
    public var item: DocumentID
    /// What the file was called then.
    public var name: String
    /// Which of its contents it is.
    public var version: DocumentID
    /// Bytes of it.
    public var size: UInt64
    /// The device that has published it.
    public var device: DeviceID
    /// The server has lost some of the content, so whoever opens the link gets no whole file. Known of a link to a content
    /// that the file still has, and not of one to a former version.
    public var isDamaged = false

    /// - Returns: Nil: the server's message has no such ids.
    init?(_ link: WirePublishedLink, url: URL? = nil) {
        guard let id = DocumentID(bytes: link.link), let item = DocumentID(bytes: link.item),
            let version = DocumentID(bytes: link.version)
        else { return nil }
        self.id = id
        self.url = url
        expires = Timestamp(milliseconds: link.expires)
        created = Timestamp(milliseconds: link.created)
        self.item = item
        name = String(decoding: link.name, as: UTF8.self)
        self.version = version
        size = link.length
        device = DeviceID(link.deviceID)
    }
}
