internal import NephosBulk
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What items count besides their contents.
extension Batch {
    /// Decides what the changed items count from now on, and notes with them which batch has changed them. For whoever has
    /// made an item it counts as long as it is there.
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
            let known = try container.rows.counted(id)
            guard bytes != sizes[id, default: 0] else {
                if var known {
                    known.note(writer.operation)
                    counted.updateValue(known, forKey: id)
                }
                continue
            }
            var now = known ?? CountedItem(bytes: 0, maker: writer.maker)
            now.note(writer.operation)
            if known == nil, sizes[id] == nil, let item, item.kind != .coming {
                now.maker = item.made.maker
                let made = keptSince(item.made.made)
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

extension Batch {
    /// Whether it was carried out, as far as its items know: after whatever time, unless each of them was changed
    /// ``CountedItem/operationsMax`` times since.
    func isRepeat(_ changes: [WireDocumentChange]) throws -> Bool {
        try changes.contains { change in
            try DocumentID(bytes: change.item).flatMap { try container.rows.counted($0) }?
                .operations.contains(writer.operation) ?? false
        }
    }

    /// Nothing changes, and the device gets the items as they are.
    func mention(_ changes: [WireDocumentChange]) throws {
        for id in changes.compactMap({ DocumentID(bytes: $0.item) }) where !id.isFixed {
            _ = try stored(id)
            mention(id)
        }
    }
}

extension Batch.Writer {
    var maker: CountChanges.Maker { CountChanges.Maker(app: app, device: device) }
}
