internal import NephosBulk
internal import NephosCore
internal import NephosWire

extension UsedContent {
    /// - Parameters:
    ///   - version: As it was committed.
    ///   - rowBytes: What its row counts; of a further content the item does.
    init(_ version: WireDocumentContent, rowBytes: UInt64 = 0) {
        self.init(
            length: version.length, isInline: version.root.isEmpty,
            root: ChunkID(bytes: [UInt8](version.root)) ?? .none, depth: Int(version.depth),
            app: AppID(version.appID), device: DeviceID(version.deviceID), rowBytes: rowBytes)
    }

    /// What is known of a version that cannot be read any more: what its row counts. Its bytes are nobody's to give back.
    init(rowOf version: ContainerRows.Version) {
        self.init(
            length: 0, isInline: true, root: .none, depth: 0, app: version.maker.app, device: version.maker.device,
            rowBytes: version.counted)
    }
}
