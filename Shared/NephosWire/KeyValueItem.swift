public import NephosCore
private import SwiftProtobuf

/// The state of one key of a key-value store, as service and device both hold it.
public struct KeyValueItem: Hashable, Sendable {
    public var key: ItemName
    /// Nil: the key was deleted.
    public var value: PropertyValue?
    public var timestamp: HybridTimestamp
    public var deviceID: DeviceID
    public var sequence: UInt64

    public init(
        key: ItemName, value: PropertyValue?, timestamp: HybridTimestamp, deviceID: DeviceID, sequence: UInt64 = 0
    ) {
        self.key = key
        self.value = value
        self.timestamp = timestamp
        self.deviceID = deviceID
        self.sequence = sequence
    }
}

extension KeyValueItem {
    /// Whether this write wins over the other: the later hybrid timestamp; on a
    /// tie the greater device id, which every side compares alike.
    public func wins(over other: KeyValueItem) -> Bool {
        (timestamp, deviceID) > (other.timestamp, other.deviceID)
    }

    /// The item's share in the store's digest: of key, write and value, salted
    /// with the store's digest key. The sequence is left out, so that a device
    /// that learned of the write in another way agrees.
    public func digest(key digestKey: [UInt8]) -> SetDigest {
        Self.digest(
            key: digestKey, of: key, timestamp: timestamp, deviceID: deviceID,
            canonicalValue: value?.canonicalBytes ?? [])
    }

    /// The same for a value that is encoded already (``PropertyValue/canonicalBytes``).
    public static func digest(
        key digestKey: [UInt8], of key: ItemName, timestamp: HybridTimestamp, deviceID: DeviceID,
        canonicalValue: [UInt8]
    ) -> SetDigest {
        let names = key.utf8.count + deviceID.rawValue.utf8.count
        // On the stack: it is made for every write.
        return withUnsafeTemporaryAllocation(
            byteCount: digestKey.count + names + canonicalValue.count + 20, alignment: 1
        ) { room in
            var parts = Parts(rest: room)
            digestKey.withUnsafeBytes { parts.append($0) }
            parts.append(key.rawValue)
            withUnsafeBytes(of: timestamp.rawValue.bigEndian) { parts.append($0) }
            parts.append(deviceID.rawValue)
            canonicalValue.withUnsafeBytes { parts.append(lengthAndBytes: $0) }
            return SetDigest(ofItem: UnsafeRawBufferPointer(room))
        }
    }

    /// Bytes one after another, in room that holds them exactly.
    private struct Parts {
        var rest: UnsafeMutableRawBufferPointer

        mutating func append(_ part: UnsafeRawBufferPointer) {
            rest.copyMemory(from: part)
            rest = UnsafeMutableRawBufferPointer(rebasing: rest[part.count...])
        }

        mutating func append(lengthAndBytes part: UnsafeRawBufferPointer) {
            withUnsafeBytes(of: UInt32(part.count).bigEndian) { append($0) }
            append(part)
        }

        mutating func append(_ text: String) {
            text.withUTF8Bytes { append(lengthAndBytes: $0) }
        }
    }
}

extension FieldWriter {
    /// The fields of a `KeyValueItem`; its value in the canonical encoding, or nil for none.
    public mutating func item(
        key: ItemName, timestamp: HybridTimestamp, deviceID: DeviceID, sequence: UInt64, canonicalValue: [UInt8]?
    ) {
        text(1, key.rawValue)
        if let canonicalValue { data(2, canonicalValue, isPresent: true) }
        number(3, timestamp.rawValue)
        text(4, deviceID.rawValue)
        number(5, sequence)
    }
}

extension WireKeyValueItem {
    public init(_ item: KeyValueItem) {
        self.init()
        key = item.key.rawValue
        if let value = item.value { self.value = WirePropertyValue(value) }
        timestamp = item.timestamp.rawValue
        deviceID = item.deviceID.rawValue
        sequence = item.sequence
    }
}

extension KeyValueItem {
    /// - Throws: ``CloudError`` `.invalidArguments` when the name cannot be kept, or the value is none.
    public init(_ wire: WireKeyValueItem) throws(CloudError) {
        let key = ItemName(wire.key)
        try key.check()
        self.init(
            key: key,
            value: wire.hasValue ? try PropertyValue(wire.value) : nil,
            timestamp: HybridTimestamp(rawValue: wire.timestamp),
            deviceID: DeviceID(wire.deviceID),
            sequence: wire.sequence
        )
    }
}
