internal import NephosCore

/// What accounts have had done in vain, in bytes of content as it is: chunks that were not what their ids say, or that
/// were there already.
///
/// A compressed chunk of some hundred bytes opens to a megabyte, which is hashed before anybody knows that it is none. The
/// credit and the room of an upload count what is held and stored; this counts the work of what then is not. A bucket that
/// empties evenly: who has filled it waits, and nothing more of theirs is opened meanwhile.
struct WastedWork {
    /// What nobody is held off for: a device's credit eight times over.
    static let bytesMax = 8 * BulkLimits.creditBytes
    /// Bytes that are forgiven each second: a hundredth of what a processor opens and hashes.
    static let bytesPerSecond = 8 << 20
    /// Whoever sends what is there already has done nothing wrong, and costs less: it counts by one part of so many.
    static let knownPart = 8

    /// When nothing counts any more.
    private var emptyAt: [AccountID: Duration] = [:]

    mutating func note(_ bytes: Int, of account: AccountID, at now: Duration) {
        guard bytes > 0 else { return }
        // As much again at most: what was let in by then is no more than that.
        let last = now + Self.time(of: 2 * Self.bytesMax)
        emptyAt[account] = min(last, max(emptyAt[account] ?? now, now) + Self.time(of: bytes))
    }

    /// Why nothing of the account is opened now; nil: it is.
    func refusal(of account: AccountID, at now: Duration) -> CloudError? {
        guard let emptyAt = emptyAt[account] else { return nil }
        let wait = emptyAt - now - Self.time(of: Self.bytesMax)
        guard wait > .zero else { return nil }
        return CloudError(
            .requestRateLimited,
            "Too many chunks of the account were not what their ids say, or were there already. Ask what is missing, and "
                + "wait.", details: ["budget": "wasted content"], retryAfter: wait)
    }

    /// Forgets those whose bucket is empty.
    mutating func forget(at now: Duration) { emptyAt = emptyAt.filter { $1 > now } }

    private static func time(of bytes: Int) -> Duration {
        .seconds(1) * (Double(bytes) / Double(bytesPerSecond))
    }
}
