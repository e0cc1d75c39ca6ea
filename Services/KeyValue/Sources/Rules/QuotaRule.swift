internal import NephosCore

/// Bounds of one push, whatever the profile.
enum PushLimits {
    /// Bytes of one encoded push: a full store of the largest profile, and room for names and stamps.
    static let bytesMax = 1_300 << 10
    /// Writes in one push: all keys of a full store exchanged for as many others.
    static let writesMax = 2048
    /// Keys named in an error's details, and in the event of a refusal.
    static let keysNamedMax = 10
    /// Bytes of such a name; a longer one is cut there.
    static let keyNamedBytesMax = 128
    /// Bytes of a winner's value that travels in the reply to whoever lost to it.
    static let replyValueBytesMax = 1 << 10
    /// Bytes of all values in one such reply.
    static let replyValuesBytesMax = 8 << 10
    /// Bytes of the values in one push that are not in canonical form: they are
    /// decoded and encoded anew, which takes far longer than looking at them.
    static let uncanonicalBytesMax = 16 << 10
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
        self.keys = keys.prefix(PushLimits.keysNamedMax).map { key in
            let bytes = key.rawValue.utf8
            return bytes.count <= PushLimits.keyNamedBytesMax
                ? key : ItemName(String(decoding: bytes.prefix(PushLimits.keyNamedBytesMax), as: UTF8.self))
        }
        self.error.details["keys"] = self.keys.map(\.rawValue).joined(separator: ",")
    }
}

/// Whether a store may become what a push would make of it. Deletes always may.
enum QuotaRule {
    /// Checks what can be told from the request alone. The values' sizes are as
    /// they came, and never less than those of their canonical form.
    static func check(_ request: PushRequest, limits: KeyValueLimits) throws {
        var total = 0
        var first: CloudError?
        var keys: [ItemName] = []
        for write in request.writes {
            guard let value = write.value else { continue }
            total += value.count
            do throws(CloudError) {
                try limits.check(keyBytes: write.key.utf8.count, valueBytes: value.count)
            } catch {
                guard error.code == .quotaExceeded else { throw error }
                if first == nil { first = error }
                if error.details["limit"] == first?.details["limit"] { keys.append(write.key) }
            }
        }
        if let first { throw QuotaViolation(first, keys: keys) }
        do throws(CloudError) {
            try limits.check(keyCount: 0, totalBytes: total, previousKeyCount: 0, previousTotalBytes: 0)
        } catch {
            throw QuotaViolation(error, keys: request.writes.filter { $0.value != nil }.map(\.key))
        }
    }

    /// Checks each write by itself, whether it wins or not.
    static func check(_ changes: some Sequence<SizeChange>, limits: KeyValueLimits) throws {
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
        _ changes: some Sequence<SizeChange>, liveCount: Int, liveBytes: Int, limits: KeyValueLimits
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
