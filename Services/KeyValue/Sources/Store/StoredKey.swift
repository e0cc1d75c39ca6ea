internal import Core
internal import ServiceKit
internal import Storage

/// A key's row in the feed: its stamp, and its value's canonical bytes sealed.
///
/// The body's layout: 1 (the layout's number), 8 bytes of timestamp, most
/// significant first, 1 byte of length and the device id, the sealed value.
struct StoredKey {
    private static let layout: UInt8 = 1

    var key: ItemName
    var stamp: MergeRule.Stamp
    /// Nil: the key was deleted.
    var sealed: Sealed?
    /// Bytes of the value.
    var size: Int
    var sequence: UInt64
    /// Its share in the store's digest, as it is stored.
    var digest = SetDigest.empty

    init(key: ItemName, stamp: MergeRule.Stamp, sealed: Sealed?, size: Int, sequence: UInt64 = 0) {
        self.key = key
        self.stamp = stamp
        self.sealed = sealed
        self.size = size
        self.sequence = sequence
    }

    /// A row that is damaged was never written, as far as anyone can tell: it
    /// loses to every write, and its value does not open.
    init(_ item: FeedItem) {
        let body = item.body
        key = item.name
        size = item.size
        sequence = item.sequence
        digest = item.digest
        guard body.count >= 10, body[0] == Self.layout, body.count >= 10 + Int(body[9]) else {
            stamp = MergeRule.Stamp(timestamp: HybridTimestamp(rawValue: 0), device: DeviceID(""))
            sealed = item.deleted ? nil : Sealed(bytes: [])
            return
        }
        let device = 10..<10 + Int(body[9])
        stamp = MergeRule.Stamp(
            timestamp: HybridTimestamp(
                rawValue: body.withUnsafeBytes {
                    UInt64(bigEndian: $0.loadUnaligned(fromByteOffset: 1, as: UInt64.self))
                }
            ),
            device: DeviceID(String(decoding: body[device], as: UTF8.self)))
        sealed = item.deleted ? nil : Sealed(bytes: [UInt8](body[device.upperBound...]))
    }

    /// The row, to be put into the feed. Device ids are at most ``NameRule/lengthMax`` bytes long.
    func feedItem(digest: SetDigest) -> FeedItem {
        let device = stamp.device.rawValue.utf8
        var body: [UInt8] = []
        body.reserveCapacity(10 + device.count + (sealed?.bytes.count ?? 0))
        body.append(Self.layout)
        withUnsafeBytes(of: stamp.timestamp.rawValue.bigEndian) { body.append(contentsOf: $0) }
        body.append(UInt8(clamping: device.count))
        body.append(contentsOf: device)
        if let sealed { body.append(contentsOf: sealed.bytes) }
        return FeedItem(name: key, deleted: sealed == nil, digest: digest, size: size, body: body)
    }
}
