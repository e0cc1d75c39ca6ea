private import Synchronization

/// How often each address may ask: a bucket for each, kept as the time at which it is full again.
final class RequestRates: Sendable {
    /// Addresses that are remembered. With more, those whose buckets are nearly full are forgotten.
    private static let addressesMax = 10_000

    private let perRequest: Duration
    private let fullBucket: Duration
    private let fullAt = Mutex<[Address: ContinuousClock.Instant]>([:])

    init(_ limits: HTTPLimits) {
        perRequest = .seconds(1) / max(1, limits.requestsOfAddressPerSecond)
        fullBucket = perRequest * max(1, limits.requestsOfAddressMax)
    }

    /// Takes one request of the address.
    ///
    /// - Returns: Nil: it may be answered; else after how many seconds another one may.
    func wait(of address: Address, now: ContinuousClock.Instant = .now) -> Int64? {
        fullAt.withLock { fullAt in
            let full = max(fullAt[address] ?? now, now) + perRequest
            let wait = now.duration(to: full) - fullBucket
            guard wait <= .zero else { return wait.components.seconds + 1 }
            if fullAt[address] == nil, fullAt.count >= Self.addressesMax { Self.makeRoom(&fullAt, now) }
            fullAt[address] = full
            return nil
        }
    }

    private static func makeRoom(_ fullAt: inout [Address: ContinuousClock.Instant], _ now: ContinuousClock.Instant) {
        fullAt = fullAt.filter { $0.value > now }
        guard fullAt.count >= addressesMax else { return }
        let middle = fullAt.values.sorted()[fullAt.count / 2]
        fullAt = fullAt.filter { $0.value > middle }
    }
}
