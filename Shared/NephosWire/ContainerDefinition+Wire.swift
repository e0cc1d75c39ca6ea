public import NephosCore
private import SwiftProtobuf

/// The classes as they travel: numbers of the wire are those of ``ContainerClass`` and one.
extension ContainerClass {
    /// - Returns: Nil: it is one that this version does not know. One that is not said is documents.
    public init?(_ wire: WireContainerClass) {
        guard wire != .unspecified else {
            self = .documents
            return
        }
        guard let number = UInt8(exactly: wire.rawValue - 1) else { return nil }
        self.init(number: number)
    }

    public var wire: WireContainerClass { WireContainerClass(rawValue: Int(number) + 1) ?? .unspecified }
}

extension WireDocumentItem {
    /// What the item counts besides its contents and its versions, in bytes: further contents and announcements are in it.
    public func countedBytes() throws -> UInt64 {
        let attributes = hasAttributes ? try attributes.serializedBytes() as [UInt8] : []
        let names = renditions.reduce(0) { $0 + $1.name.count } + announcements.reduce(0) { $0 + $1.name.count }
        let rows = DocumentLimits.rowBytes * (renditions.count + announcements.count)
        return UInt64(DocumentLimits.itemBytes + name.count + attributes.count + names + rows)
    }
}
