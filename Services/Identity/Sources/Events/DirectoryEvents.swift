internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

private import struct Foundation.Data

/// What the other services must know: the one scope in which identity keeps it,
/// and the one way by which it gets there.
enum DirectoryEvents {
    /// The present state of one thing.
    enum State {
        /// Every device that is not active counts as revoked: its tokens are void.
        case device(DeviceRecord)
        case app(AppRecord)
        case container(ItemName, ContainerDefinition)
        case account(AccountID, WireAccountState.State, version: UInt64)
        /// Retires 0: not known yet.
        case tokenKey(id: String, publicKey: [UInt8], retires: Timestamp?)
        /// What an app ships for devices without an account.
        case appTokenRevoked(String)
        /// Room of this owner that is not used is wanted back, for this many times.
        case recall(owner: String, count: UInt64)
    }

    /// States in one change: an event has to fit a frame.
    private static let statesPerChange = 256

    /// Stores the states in the feed, and publishes them after the commit.
    static func publish(
        _ states: [State], operation: OperationID?, by device: DeviceID? = nil,
        in transaction: any HandlerTransaction
    ) throws {
        for start in stride(from: 0, to: states.count, by: statesPerChange) {
            try IdentityFeed.publish(
                states[start..<min(start + statesPerChange, states.count)].map {
                    try sealed(item($0), in: transaction)
                }, in: directoryScope, operation: operation, by: device, transaction)
        }
    }

    /// Removes ended devices from the directory, whose tokens have run out long since: nobody has to know of them.
    static func forget(_ devices: [DeviceID], in transaction: any HandlerTransaction) throws {
        let items = devices.map {
            FeedItem(name: ItemName("device/" + $0.rawValue), deleted: true, digest: .empty, size: 0, body: [])
        }
        guard !items.isEmpty else { return }
        try IdentityFeed.publish(items, in: directoryScope, transaction)
    }

    /// The field that ends each body: its number is 15, and it has 8 bytes.
    private static let sealTag: [UInt8] = [15 << 3 | 2, 8]

    private static func sealed(_ item: FeedItem, in transaction: any HandlerTransaction) throws -> FeedItem {
        guard let seal = try transaction.seal(Array(item.name.utf8) + [0] + item.body) else { return item }
        return IdentityFeed.item(
            item.name.rawValue, body: item.body + sealTag + withUnsafeBytes(of: seal.littleEndian, Array.init))
    }

    /// Whether identity itself has said this once.
    static func isOwn(_ name: String, _ body: [UInt8], in transaction: any HandlerTransaction) throws -> Bool {
        let words = body.dropLast(10)
        guard body.count >= 10, Array(body[words.count..<words.count + 2]) == sealTag,
            let seal = try transaction.seal(Array(name.utf8) + [0] + words)
        else { return false }
        return withUnsafeBytes(of: seal.littleEndian, Array.init) == Array(body.suffix(8))
    }

    private static func item(_ state: State) -> FeedItem {
        switch state {
        case .device(let device):
            var wire = WireDeviceState()
            wire.deviceID = device.id.rawValue
            wire.accountID = device.account.rawValue
            wire.publicKey = device.key.z85
            wire.revoked = device.state != .active
            wire.signedOut = device.state == .signedOut
            wire.copied = device.state == .copied
            wire.endedAt = device.ended?.milliseconds ?? 0
            wire.endedBy = device.endedBy
            return IdentityFeed.item("device/" + device.id.rawValue, wire)
        case .app(let app):
            var wire = WireAppState()
            wire.app = WireApp(app)
            wire.removed = app.isRemoved
            return IdentityFeed.item("app/" + app.id.rawValue, wire)
        case .container(let container, let definition):
            var wire = WireContainerState()
            wire.definition = WireContainerDefinition(definition, of: container)
            return IdentityFeed.item("container/" + container.rawValue, wire)
        case .account(let account, let state, let version):
            var wire = WireAccountState()
            wire.accountID = account.rawValue
            wire.state = state
            wire.version = version
            return IdentityFeed.item("account/" + account.rawValue, wire)
        case .tokenKey(let id, let publicKey, let retires):
            var wire = WireTokenKeyState()
            wire.keyID = id
            wire.publicKey = Data(publicKey)
            wire.retiresAt = retires?.milliseconds ?? 0
            return IdentityFeed.item("token-key/" + id, wire)
        case .appTokenRevoked(let id):
            var wire = WireAppTokenState()
            wire.tokenID = id
            wire.revoked = true
            return IdentityFeed.item("app-token/" + id, wire)
        case .recall(let owner, let count):
            var wire = WireRecallState()
            wire.ownerID = owner
            wire.count = count
            return IdentityFeed.item("recall/" + owner, wire)
        }
    }
}
