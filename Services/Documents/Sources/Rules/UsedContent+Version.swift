internal import NephosBulk
internal import NephosCore
internal import NephosWire

extension UsedContent {
    /// - Parameter version: As it was committed.
    init(_ version: WireDocumentContent) {
        self.init(
            length: version.length, isInline: version.root.isEmpty,
            root: ChunkID(bytes: [UInt8](version.root)) ?? .none, depth: Int(version.depth),
            app: AppID(version.appID), device: DeviceID(version.deviceID))
    }
}
