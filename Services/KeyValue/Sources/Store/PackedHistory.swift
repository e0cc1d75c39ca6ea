internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// Entries of a store's history in one row, as protobuf has them; their values stay sealed as they are.
enum PackedHistory {
    static func pack(_ entries: some Collection<KeyHistory.Entry>) -> [UInt8] {
        let valueBytes = entries.reduce(0) { $0 + ($1.loser.sealed?.bytes.count ?? 0) }
        var writer = FieldWriter(reserving: valueBytes + entries.count * 160)
        for entry in entries {
            writer.message(1) {
                $0.text(1, entry.loser.key.rawValue)
                $0.number(2, entry.loser.stamp.timestamp.rawValue)
                $0.text(3, entry.loser.stamp.device.rawValue)
                $0.number(4, UInt64(bitPattern: entry.mark))
                $0.flag(5, entry.lostConflict)
                $0.number(6, entry.winner.timestamp.rawValue)
                $0.text(7, entry.winner.device.rawValue)
                $0.number(8, entry.recordedAt.milliseconds)
                $0.number(9, UInt64(entry.loser.size))
                // Without: a deletion that lost.
                if let sealed = entry.loser.sealed { $0.data(10, sealed.bytes, isPresent: true) }
            }
        }
        return writer.take()
    }

    /// - Returns: The entries up to where the bytes are damaged, and whether that are all.
    static func unpack(_ bytes: [UInt8]) -> (entries: [KeyHistory.Entry], isWhole: Bool) {
        bytes.withUnsafeBytes { message in
            var entries: [KeyHistory.Entry] = []
            do {
                var reader = FieldReader(message)
                while let field = try reader.next() {
                    guard case (1, .range(let range)) = (field.number, field.value) else {
                        throw FieldReader.Malformed()
                    }
                    entries.append(try entry(reader.bytes(range)))
                }
                return (entries, true)
            } catch {
                return (entries, false)
            }
        }
    }

    private static func entry(_ message: UnsafeRawBufferPointer) throws -> KeyHistory.Entry {
        var entry = KeyHistory.Entry(
            loser: StoredKey(key: "", stamp: noStamp, sealed: nil, size: 0), mark: 0, lostConflict: false,
            winner: noStamp, recordedAt: Timestamp(milliseconds: 0))
        var reader = FieldReader(message)
        while let field = try reader.next() {
            switch (field.number, field.value) {
            case (1, .range(let range)): entry.loser.key = ItemName(try reader.text(range))
            case (2, .number(let number)): entry.loser.stamp.timestamp = HybridTimestamp(rawValue: number)
            case (3, .range(let range)): entry.loser.stamp.device = DeviceID(try reader.text(range))
            case (4, .number(let number)): entry.mark = Int64(bitPattern: number)
            case (5, .number(let number)): entry.lostConflict = number != 0
            case (6, .number(let number)): entry.winner.timestamp = HybridTimestamp(rawValue: number)
            case (7, .range(let range)): entry.winner.device = DeviceID(try reader.text(range))
            case (8, .number(let number)): entry.recordedAt = Timestamp(milliseconds: number)
            case (9, .number(let number)) where number <= UInt64(PushLimits.bytesMax): entry.loser.size = Int(number)
            case (10, .range(let range)): entry.loser.sealed = Sealed(bytes: [UInt8](reader.bytes(range)))
            default: throw FieldReader.Malformed()
            }
        }
        return entry
    }

    private static let noStamp = MergeRule.Stamp(timestamp: HybridTimestamp(rawValue: 0), device: DeviceID(""))
}
