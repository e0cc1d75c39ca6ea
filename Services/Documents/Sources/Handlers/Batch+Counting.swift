internal import NephosBulk
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What items count besides their contents.
extension Batch {
    /// Decides what the changed items count from now on. For whoever has made an item it counts as long as it is there.
    ///
    /// - Returns: How much more or less that is.
    func recount() throws -> CountChanges {
        var changes = handedOn
        // What is offered again counts for whoever has committed it first.
        for (id, content) in versions { move(counted(content.version, of: id), of: content, in: &changes) }
        for (_, content) in renditions { move(0, of: content, in: &changes) }
        for id in changed {
            let item = try stored(id)
            let bytes = try item?.countedBytes() ?? 0
            guard bytes != sizes[id, default: 0] else { continue }
            let known = try container.rows.counted(id)
            var now = known ?? CountedItem(bytes: 0, maker: writer.maker, ends: nil)
            if known == nil, sizes[id] == nil, let item, item.kind != .coming {
                now.maker = item.made.maker
                let made = Timestamp(stamped: item.made.made)
                if item.kind != .folder { now.ends = containerClass.itemLifetime.map { made.advanced(by: $0) } }
            }
            changes.add(Int64(clamping: bytes) - Int64(clamping: now.bytes), by: now.maker)
            now.bytes = bytes
            counted.updateValue(item == nil ? nil : now, forKey: id)
        }
        return changes
    }
}

extension Batch {
    /// - Parameter rowBytes: What it counts besides its bytes.
    private func move(_ rowBytes: UInt64, of content: WireDocumentContent, in changes: inout CountChanges) {
        let maker = CountChanges.Maker(app: AppID(content.appID), device: DeviceID(content.deviceID))
        guard maker != writer.maker else { return }
        let bytes = Int64(clamping: rowBytes + (content.root.isEmpty ? content.length : 0))
        changes.add(bytes, by: maker)
        changes.add(-bytes, by: writer.maker)
    }
}

extension Batch.Writer {
    var maker: CountChanges.Maker { CountChanges.Maker(app: app, device: device) }
}
