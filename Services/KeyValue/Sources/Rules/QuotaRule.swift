internal import Core

/// Bounds of one push, whatever the profile.
enum PushLimits {
    /// Bytes of one encoded push: a full store of the largest profile, and room for names and stamps.
    static let bytesMax = 1_300 << 10
    /// Writes in one push: all keys of a full store exchanged for as many others.
    static let writesMax = 2048
    /// Keys named in an error's details.
    static let keysNamedMax = 10
}

/// What a write does to the store's size.
struct SizeChange {
    var key: ItemName
    /// Bytes of the value; nil when the write deletes the key.
    var size: Int?
    /// Bytes of the live value before; nil when there was none.
    var previousSize: Int?
}

/// A push that would pass a limit, and the keys to blame.
struct QuotaViolation: Error {
    var error: CloudError
    var keys: [ItemName]

    init(_ error: CloudError, keys: [ItemName]) {
        self.error = error
        self.keys = keys
        self.error.details["keys"] = keys.prefix(PushLimits.keysNamedMax).map(\.rawValue).joined(separator: ",")
    }
}

/// Whether a store may become what a push would make of it. Deletes always may.
enum QuotaRule {
    /// Checks each write by itself, whether it wins or not.
    static func check(_ changes: [SizeChange], limits: KeyValueLimits) throws {
        var first: CloudError?
        var keys: [ItemName] = []
        for change in changes {
            // What exists can be deleted, even if limits were lowered since.
            if change.size == nil, change.previousSize != nil { continue }
            do throws(CloudError) {
                try limits.check(keyBytes: change.key.utf8.count, valueBytes: change.size ?? 0)
            } catch {
                guard error.code == .quotaExceeded else { throw error }
                if first == nil { first = error }
                if error.details["limit"] == first?.details["limit"] { keys.append(change.key) }
            }
        }
        if let first { throw QuotaViolation(first, keys: keys) }
    }

    /// Checks what the accepted writes add up to.
    static func check(
        _ changes: [SizeChange], liveCount: Int, liveBytes: Int, limits: KeyValueLimits
    ) throws {
        var count = liveCount
        var bytes = liveBytes
        for change in changes {
            count += (change.size == nil ? 0 : 1) - (change.previousSize == nil ? 0 : 1)
            bytes += (change.size ?? 0) - (change.previousSize ?? 0)
        }
        do throws(CloudError) {
            try limits.check(
                keyCount: count, totalBytes: bytes, previousKeyCount: liveCount, previousTotalBytes: liveBytes)
        } catch {
            let added = changes.filter { ($0.size ?? 0) > ($0.previousSize ?? -1) }
            throw QuotaViolation(error, keys: added.map(\.key))
        }
    }
}
