internal import NephosCore

/// What an account has written to disk of late, in bytes, and how much that may be: a bucket that empties evenly within
/// a day.
///
/// A plan bounds what is stored at one time. What is stored and removed again stays on disk for as long as segments
/// that were emptied are kept, so it has a bound of its own.
struct Writing: Hashable, Sendable {
    private(set) var bytes: UInt64
    let bytesMax: UInt64
    /// Whether it is written to an app's public database, whose plan all accounts share.
    let isPublic: Bool

    static let period: Duration = .seconds(24 * 3600)

    /// - Parameter bytes: As they were counted. What a damaged row says keeps nobody out for longer than two days.
    init(bytes: UInt64, bytesMax: UInt64, isPublic: Bool = false) {
        self.isPublic = isPublic
        self.bytesMax = min(max(1, bytesMax), UInt64(Int64.max) / 4)
        self.bytes = min(bytes, 2 * self.bytesMax)
    }

    /// - Parameters:
    ///   - plan: Bytes of the account's plan.
    ///   - least: What may be written within a day on the smallest plan.
    ///   - plans: How often the whole plan may be.
    static func bytesMax(ofPlan plan: UInt64, least: UInt64, plans: UInt64) -> UInt64 {
        let (product, overflow) = plan.multipliedReportingOverflow(by: plans)
        return max(least, overflow ? .max : product)
    }

    /// What one account may add to an app's public databases within a day: a quarter of the app's plan, or 64 MiB of a
    /// smaller plan, but never more than half.
    ///
    /// - Parameter plan: Bytes of the app's plan.
    static func bytesMax(ofAppPlan plan: UInt64) -> UInt64 { max(plan / 4, min(plan / 2, 64 << 20)) }

    /// What counts of it so much later. A clock that went back empties nothing.
    func after(_ elapsed: Duration) -> Writing {
        let emptied = Double(bytesMax) * min(1, max(0, elapsed / Self.period))
        return Writing(bytes: bytes - min(bytes, UInt64(emptied)), bytesMax: bytesMax, isPublic: isPublic)
    }

    func adding(_ more: UInt64) -> Writing {
        Writing(bytes: bytes + min(more, 2 * bytesMax), bytesMax: bytesMax, isPublic: isPublic)
    }

    /// Why so many more may not be written now; nil: they may.
    func refusal(of more: UInt64) -> CloudError? {
        let total = bytes + min(more, 2 * bytesMax)
        guard total > bytesMax else { return nil }
        // Waiting makes no room for more than the whole part.
        guard !isPublic || more <= bytesMax else {
            return CloudError(
                .quotaExceeded,
                "This is more than one account may add to the app's public database. Ask for a larger plan for the app.",
                details: ["budget": "public database", "bytes_max": "\(bytesMax)"])
        }
        let wait = Self.period * min(2, Double(total - bytesMax) / Double(bytesMax))
        return CloudError(
            .requestRateLimited,
            isPublic
                ? "The account has added its part of the app's plan to the public database. Wait, or ask for a larger plan."
                : "The account has written as much content as it may within a day. Wait.",
            details: ["budget": isPublic ? "public database" : "written content", "bytes_max": "\(bytesMax)"],
            retryAfter: max(.seconds(1), wait))
    }
}
