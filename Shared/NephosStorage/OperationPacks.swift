internal import NephosCore

/// A reply that waits to be stored with its group.
struct WaitingReply {
    var operation: OperationID
    var principal: Int64
    var request: RequestFingerprint
    var reply: [UInt8]
}

/// Several operations' replies in one row.
///
/// A group of 31 writes wrote 31 rows for them, a third of the pages of its commit, and each cost as much as the item's
/// own row. Ids of one time go together, so that a repeat looks at a bounded number of rows: those of its id's
/// ``bucketMilliseconds``.
enum OperationPacks {
    /// A longer reply has a row of its own.
    static let replyBytesMax = 255
    /// Bytes of one pack: a row of that size still lies in one page of 4 KiB.
    private static let bytesMax = 3900
    /// Ids whose times lie in one of these go together.
    private static let bucketMilliseconds: UInt64 = 8
    /// Packs of one bucket; what comes then has a row of its own. Nobody can make others look through more, and 16 are
    /// looked through in about the time of two rows.
    private static let packsMax: Int64 = 16
    private static let headBytes = 16 + 8 + 8 + 1

    private static func bucket(of id: OperationID) -> Int64 { Int64(id.time.milliseconds / bucketMilliseconds) }

    /// The ids of a bucket's rows.
    private static func rows(ofBucket bucket: Int64) -> Range<Int64> { bucket * packsMax..<(bucket + 1) * packsMax }

    // MARK: Storing

    /// Stores replies that came together.
    ///
    /// - Returns: Those that need a row each.
    static func store(_ waiting: [WaitingReply], in transaction: any Transaction) throws -> [WaitingReply] {
        // Nearly always they are all of one time, or of two.
        let bucket = waiting.first.map { Self.bucket(of: $0.operation) } ?? 0
        guard waiting.contains(where: { Self.bucket(of: $0.operation) != bucket }) else {
            return try store(waiting, bucket, in: transaction)
        }
        var buckets: [Int64: [WaitingReply]] = [:]
        for reply in waiting { buckets[Self.bucket(of: reply.operation), default: []].append(reply) }
        // In order, as everything that a simulation must be able to repeat.
        return try buckets.sorted { $0.key < $1.key }.flatMap { try store($0.value, $0.key, in: transaction) }
    }

    private static func store(
        _ waiting: [WaitingReply], _ bucket: Int64, in transaction: any Transaction
    ) throws -> [WaitingReply] {
        // One alone is looked for faster by itself.
        guard waiting.count > 1 else { return waiting }
        let rows = rows(ofBucket: bucket)
        let newest = try transaction.first(
            FeedStatements.newestPackBelow, [.integer(rows.lowerBound), .integer(rows.upperBound)]
        ) { $0.integer(0) }
        var id = newest.map { $0 + 1 } ?? rows.lowerBound
        var place = 0
        while place < waiting.count, id < rows.upperBound {
            let pack = pack(waiting, from: &place)
            try transaction.execute(FeedStatements.insertPack, [.integer(id), .blob(pack)])
            id += 1
        }
        return Array(waiting[place...])
    }

    /// As many as there is room for in one row.
    private static func pack(_ waiting: [WaitingReply], from place: inout Int) -> [UInt8] {
        var end = place
        var count = 0
        while end < waiting.count, count + headBytes + waiting[end].reply.count <= bytesMax {
            count += headBytes + waiting[end].reply.count
            end += 1
        }
        let packed = waiting[place..<end]
        place = end
        return [UInt8](unsafeUninitializedCapacity: count) { bytes, written in
            let room = UnsafeMutableRawBufferPointer(bytes)
            for one in packed {
                room.storeBytes(of: one.operation.high.bigEndian, toByteOffset: written, as: UInt64.self)
                room.storeBytes(of: one.operation.low.bigEndian, toByteOffset: written + 8, as: UInt64.self)
                room.storeBytes(of: one.principal.bigEndian, toByteOffset: written + 16, as: Int64.self)
                room.storeBytes(of: one.request.rawValue.bigEndian, toByteOffset: written + 24, as: UInt64.self)
                bytes[written + 32] = UInt8(one.reply.count)
                written += headBytes
                UnsafeMutableRawBufferPointer(rebasing: room[written..<written + one.reply.count])
                    .copyBytes(from: one.reply)
                written += one.reply.count
            }
        }
    }

    // MARK: Looking

    /// The reply to an operation, and what was asked for; nil: it is in no pack.
    ///
    /// - Parameter looked: Packs that were looked through are added to it.
    static func reply(
        to operation: OperationID, by principal: Int64, looked: inout Int, in transaction: any Transaction
    ) throws -> (reply: [UInt8], request: RequestFingerprint)? {
        let rows = rows(ofBucket: bucket(of: operation))
        var found: (reply: [UInt8], request: RequestFingerprint)?
        var count = 0
        defer { looked += count }
        try transaction.query(FeedStatements.packs, [.integer(rows.lowerBound), .integer(rows.upperBound)]) {
            count += 1
            found = find(operation, by: principal, in: $0.blob(0))
            return found == nil
        }
        return found
    }

    /// What is damaged ends where it is.
    private static func find(
        _ operation: OperationID, by principal: Int64, in pack: [UInt8]
    ) -> (reply: [UInt8], request: RequestFingerprint)? {
        pack.withUnsafeBytes { bytes in
            func number(_ offset: Int) -> UInt64 {
                UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            }
            var place = 0
            while place + headBytes <= bytes.count {
                let reply = place + headBytes..<place + headBytes + Int(bytes[place + 32])
                guard reply.upperBound <= bytes.count else { return nil }
                if number(place + 8) == operation.low, number(place) == operation.high,
                    number(place + 16) == UInt64(bitPattern: principal)
                {
                    return ([UInt8](bytes[reply]), RequestFingerprint(rawValue: number(place + 24)))
                }
                place = reply.upperBound
            }
            return nil
        }
    }

    /// No operation that is in a pack has a greater id; nil: there is no pack.
    static func bound(in transaction: any Transaction) throws -> OperationID? {
        try transaction.first(FeedStatements.newestPack) { row in
            let end = UInt64(clamping: row.integer(0) / packsMax + 1).multipliedReportingOverflow(
                by: bucketMilliseconds)
            // Ids have 48 bits of time. Behind the last bucket there is none.
            guard !end.overflow, end.partialValue < 1 << 48 else { return OperationID(high: .max, low: .max) }
            return OperationID.lowerBound(at: Timestamp(milliseconds: end.partialValue))
        }
    }

    /// Forgets packs of which every operation is older than the id.
    ///
    /// - Returns: Whether there may be more.
    static func prune(before operation: OperationID, limit: Int, in transaction: any Transaction) throws -> Bool {
        // Packs are larger than rows; and most may have no more than two operations, where little is written at once.
        let limit = max(1, limit / 4)
        let end = rows(ofBucket: bucket(of: operation)).lowerBound
        return try transaction.execute(FeedStatements.prunePacks, [.integer(end), .integer(Int64(limit))]) == limit
    }
}
