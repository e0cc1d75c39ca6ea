public import Foundation
public import NephosCore
public import NephosPredicates
internal import NephosWire

/// A further content of an item, under a name of its own: a small picture of a large one, say.
public struct DocumentRendition: Hashable, Sendable {
    /// What it is called. Bytes that are no text are shown as U+FFFD.
    public var name: String
    /// The name's bytes.
    public var nameBytes: Data
    /// Bytes.
    public var size: UInt64
    /// When it was made, as the device that made it says.
    public var modified: DocumentDate
    /// Who set it; nil: it waits here.
    public var device: DeviceID?
    /// The version of the item's content that it was made from.
    public var madeFrom: DocumentID?
    /// Whether that is the item's content as it is now.
    public var isCurrent: Bool
    /// Names it among all contents.
    public var version: DocumentID?

    init(_ wire: WireRendition, of item: WireDocumentItem) {
        name = String(decoding: wire.name, as: UTF8.self)
        nameBytes = wire.name
        size = wire.content.length
        modified = DocumentDate(nanoseconds: wire.content.modified)
        device = wire.content.deviceID.isEmpty ? nil : DeviceID(wire.content.deviceID)
        madeFrom = DocumentID(bytes: wire.ofVersion)
        isCurrent = wire.ofVersion == item.content.version
        version = DocumentID(bytes: wire.content.version)
    }
}
