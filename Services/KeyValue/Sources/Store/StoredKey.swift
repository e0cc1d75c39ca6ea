internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// A key's row in the feed: its stamp, and its value's canonical bytes sealed.
///
/// The body's layout: 1 (the layout's number), 8 bytes of timestamp, most
/// significant first, 1 byte of length and the device id, 4 bytes of their
/// ``check(of:)``, the sealed value, which opens under this stamp alone.
///
/// The check keeps nobody out. It tells a stamp that is damaged, which nobody is told, from one of a value that is:
/// that says whose copy is new enough.
struct StoredKey {
    private static let layout: UInt8 = 1
    private static let checkBytes = 4

    var key: ItemName
    var stamp: MergeRule.Stamp
    /// Nil: the key was deleted.
    var sealed: Sealed?
    /// Bytes of the value.
    var size: Int
    var sequence: UInt64
    /// Its share in the store's digest, as it is stored.
    var digest = SetDigest.empty
    /// False: the row is damaged, and its stamp is not known.
    var isWhole = true

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
        guard let device = Self.device(in: body) else {
            stamp = MergeRule.Stamp(timestamp: HybridTimestamp(rawValue: 0), device: DeviceID(""))
            sealed = item.deleted ? nil : Sealed(bytes: [])
            isWhole = false
            return
        }
        stamp = MergeRule.Stamp(
            timestamp: HybridTimestamp(
                rawValue: body.withUnsafeBytes {
                    UInt64(bigEndian: $0.loadUnaligned(fromByteOffset: 1, as: UInt64.self))
                }
            ),
            device: DeviceID(String(decoding: body[device], as: UTF8.self)))
        sealed = item.deleted ? nil : Sealed(bytes: [UInt8](body[(device.upperBound + Self.checkBytes)...]))
    }

    /// Where the device id lies; nil: the body is damaged before what is sealed.
    private static func device(in body: [UInt8]) -> Range<Int>? {
        guard body.count >= 10, body[0] == layout else { return nil }
        let device = 10..<10 + Int(body[9])
        guard body.count >= device.upperBound + checkBytes else { return nil }
        return body.withUnsafeBytes { body in
            let check = body.loadUnaligned(fromByteOffset: device.upperBound, as: UInt32.self)
            return UInt32(bigEndian: check)
                == Self.check(of: UnsafeRawBufferPointer(rebasing: body[..<device.upperBound]))
                ? device : nil
        }
    }

    /// No single byte can change without it.
    private static func check(of bytes: UnsafeRawBufferPointer) -> UInt32 {
        UInt32(truncatingIfNeeded: FNV1a.hash(bytes))
    }

    /// The row, to be put into the feed. Device ids are at most ``NameRule/lengthMax`` bytes long.
    func feedItem(digest: SetDigest) -> FeedItem {
        let device = stamp.device.rawValue.utf8
        var body: [UInt8] = []
        body.reserveCapacity(10 + device.count + Self.checkBytes + (sealed?.bytes.count ?? 0))
        body.append(Self.layout)
        withUnsafeBytes(of: stamp.timestamp.rawValue.bigEndian) { body.append(contentsOf: $0) }
        body.append(UInt8(clamping: device.count))
        body.append(contentsOf: device)
        let check = body.withUnsafeBytes { Self.check(of: $0) }
        withUnsafeBytes(of: check.bigEndian) { body.append(contentsOf: $0) }
        if let sealed { body.append(contentsOf: sealed.bytes) }
        return FeedItem(name: key, deleted: sealed == nil, digest: digest, size: size, body: body)
    }
}
