internal import NephosBulk
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What follows when an item is removed for good: its versions go, and what lay in it, folder by folder.
extension DocumentsService {
    /// Items of one step.
    private static let step = 64

    /// - Returns: Whether there may be more.
    func removeSome(in transaction: any HandlerTransaction) throws -> Bool {
        if try emptyTrash(in: transaction) { return true }
        guard let (scope, folder) = try ContainerRows.nextRemoval(in: transaction) else { return false }
        let container = try container(scope, transaction)
        try removeVersions(of: folder, in: container)
        let children = try container.rows.children(of: folder, limit: Self.step)
        if children.isEmpty {
            try container.rows.setCount(0, of: folder)
            try container.rows.endRemoval(of: folder)
        } else {
            try remove(children, of: folder, in: container)
        }
        transaction.afterCommit { [transfers] in transfers.removeSoon() }
        return true
    }

    /// What has lain in the trash for its time is removed for good.
    ///
    /// - Returns: Whether there was any.
    private func emptyTrash(in transaction: any HandlerTransaction) throws -> Bool {
        guard let now = runtime?.loop.wallClock.now else { return false }
        let old = try ContainerRows.trashed(
            before: now.advanced(by: .zero - DocumentLimits.trashRetention), limit: Self.step, in: transaction)
        for (scope, items) in Dictionary(grouping: old, by: \.scope) {
            let container = try container(scope, transaction)
            var gone: [ChangedItem] = []
            for id in items.map(\.item) {
                try container.rows.setTrashed(id, at: nil)
                guard let item = try container.item(id), item.hasTrash else { continue }
                if let folder = ItemID(bytes: item.parent) { try container.rows.removeChild(id, of: folder) }
                try container.rows.addRemoval(of: id)
                gone.append(ChangedItem(name: id.name, body: nil))
            }
            try publish(gone, in: container)
        }
        return !old.isEmpty
    }

    private func removeVersions(of id: ItemID, in container: Container) throws {
        let scope = container.scope
        for version in try container.versions(of: id) {
            let content = UsedContent(version)
            try transfers.uses(
                of: scope, app: content.app, device: content.device, now: Timestamp(milliseconds: 0),
                in: container.transaction
            ).giveBack([content])
            try container.rows.removeVersion([UInt8](version.version), of: id)
        }
    }

    private func remove(_ children: [ItemID], of folder: ItemID, in container: Container) throws {
        let rule = try container.madeSetting().rule
        var gone: [ChangedItem] = []
        for id in children {
            try container.rows.removeChild(id, of: folder)
            try container.rows.addRemoval(of: id)
            try container.rows.setTrashed(id, at: nil)
            guard let item = try container.item(id) else { continue }
            if !item.hasTrash {
                try container.rows.set(nil, in: folder, called: container.key(of: [UInt8](item.name), by: rule))
            }
            gone.append(ChangedItem(name: id.name, body: nil))
        }
        try publish(gone, in: container)
    }

    /// Tells devices of items that are removed.
    private func publish(_ gone: [ChangedItem], in container: Container) throws {
        guard !gone.isEmpty else { return }
        let change = try container.transaction.put(
            container.scope, gone.map { try $0.stored(in: container, digestKey: []) })
        container.transaction.publish(DocumentEvents.changed(gone, by: change, device: nil, nil))
    }
}
