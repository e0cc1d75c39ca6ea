internal import Bus
internal import Core

/// How often each device may push: a token bucket, kept as the time at which
/// it will be full again (the generic cell rate algorithm, ITU-T I.371).
struct WriteBudgets {
    /// Devices remembered at once. Buckets that are full again need no memory.
    static let devicesMax = 100_000

    let capacity: Int
    let refill: Duration
    private var fullAt: [DeviceID: Duration] = [:]

    /// - Parameters:
    ///   - capacity: Pushes at once; 0: no limit.
    ///   - refill: How long until one more push becomes available.
    init(capacity: Int, refill: Duration) {
        self.capacity = capacity
        self.refill = refill
    }

    /// What a device without any push left is told.
    var exhausted: Budget { Budget(capacity: capacity, remaining: 0, refill: refill) }

    /// Takes one push from the device's budget.
    ///
    /// - Returns: What remains; nil when there is no limit.
    /// - Throws: ``CloudError`` `.requestRateLimited` with the time until the next push may come.
    mutating func take(_ device: DeviceID, now: Duration) throws(CloudError) -> Budget? {
        guard capacity > 0 else { return nil }
        let full = max(fullAt[device] ?? .zero, now) + refill
        let wait = full - now - refill * capacity
        guard wait <= .zero else {
            throw CloudError(
                .requestRateLimited,
                "The device has used up its budget of pushes. Wait, and push several keys at once.",
                details: ["capacity": "\(capacity)"], retryAfter: wait)
        }
        if fullAt.count >= Self.devicesMax, fullAt[device] == nil { makeRoom(now) }
        fullAt[device] = full
        return Budget(capacity: capacity, remaining: Int(-wait.nanoseconds / refill.nanoseconds), refill: refill)
    }

    /// Forgets whoever has a full bucket; if that is not enough, everyone.
    private mutating func makeRoom(_ now: Duration) {
        fullAt = fullAt.filter { $0.value > now }
        if fullAt.count >= Self.devicesMax { fullAt = [:] }
    }
}
