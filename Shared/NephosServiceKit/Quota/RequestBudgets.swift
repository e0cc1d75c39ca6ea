internal import NephosBus
public import NephosCore

/// What a request costs its caller, in calls: as much as it costs the service,
/// whether it is refused or not, and a repeat like the first.
///
/// A small request costs one. A larger one costs one for each 4 KiB of its body
/// and of its reply's, or of what was read for it if that is more, and one for
/// each 16 rows that it reads or writes. What a
/// request turns out to cost beyond what is left puts the budget into debt: the
/// next one waits until that is paid.
public enum RequestCost {
    public static let bytesPerCall = 4096
    public static let rowsPerCall = 16
    /// Bytes that cost as much as a row.
    public static let bytesPerRow = bytesPerCall / rowsPerCall
    /// From here on a request waits for its turn among others of its kind; see ``HeavyQueue``.
    public static let heavy = 16

    /// Bytes of a unit of stored replies.
    static let bytesPerReplyUnit = 128
    /// What a stored reply's row takes besides, about.
    private static let replyRowBytes = 64

    /// What a reply counts of an account's stored replies.
    static func unitsOfReply(bytes: Int) -> Int {
        (bytes + replyRowBytes + bytesPerReplyUnit - 1) / bytesPerReplyUnit
    }

    static func calls(bytes: Int, rows: Int) -> Int { max(1, bytes / bytesPerCall + rows / rowsPerCall) }
}

/// How many requests a service takes from each device and from each account.
///
/// Published by `CheckHealth`; every reply carries what remains, and a refusal
/// says when to come back. Whoever calls without a token has a device's budget,
/// by the connection's key.
public struct BudgetConfiguration: Hashable, Sendable {
    /// A token bucket.
    public struct Limit: Hashable, Sendable {
        /// Requests at once; 0: no limit.
        public var capacity: Int
        /// Requests that become available each second.
        public var refillPerSecond: Int

        public init(capacity: Int, refillPerSecond: Int) {
            self.capacity = capacity
            self.refillPerSecond = refillPerSecond
        }

        /// How long until one more becomes available.
        var refill: Duration { .seconds(1) / max(1, refillPerSecond) }
    }

    /// `SERVICE.budget_capacity` and `SERVICE.budget_refill_per_second`.
    public var device = Limit(capacity: 1000, refillPerSecond: 100)
    /// `SERVICE.account_budget_capacity` and `SERVICE.account_budget_refill_per_second`.
    public var account = Limit(capacity: 5000, refillPerSecond: 500)
    /// `SERVICE.stranger_budget_capacity` and `SERVICE.stranger_budget_refill_per_second`: of
    /// each key, for requests without a good token.
    public var stranger = Limit(capacity: 100, refillPerSecond: 20)

    /// Of each account, for replies that are stored a day for repeats, in units of 128 bytes: 256 MiB at once, and as
    /// much again within the day. A small write takes one.
    public var storedReplies = Limit(capacity: 1 << 21, refillPerSecond: 24)

    /// `SERVICE.budget_spare_percent`, 0 to 90: a device that has used up its budget and is alone is served all the same,
    /// for nothing, for this part of the time at most; 0: never. As configured by default 50. For identity, and for
    /// notifications, 0: what they have to do is work for other threads, and deliveries that nobody asks for.
    public var sparePercent = 0

    /// The defaults, without spare time: in simulations no time passes in a service.
    public init() {}

    /// Whoever is signed in may ask as often as they like.
    public static var unlimited: BudgetConfiguration {
        var configuration = BudgetConfiguration()
        configuration.device.capacity = 0
        configuration.account.capacity = 0
        configuration.stranger.capacity = 0
        configuration.storedReplies.capacity = 0
        return configuration
    }

    /// The defaults, with what the configuration says instead.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for a value that cannot be; `details` name the key.
    public init(_ settings: Settings) throws(CloudError) {
        // A folder that is put is some thousand rows in a second: its device may use most of what its account may.
        if settings.service == .documents { device = Limit(capacity: 4000, refillPerSecond: 400) }
        device = try Self.limit(settings, "budget", default: device)
        account = try Self.limit(settings, "account_budget", default: account)
        stranger = try Self.limit(settings, "stranger_budget", default: stranger)
        sparePercent = try settings.integer(
            "budget_spare_percent",
            default: [.identity, .notifications].contains(settings.service) ? 0 : 50, in: 0...90)
    }

    private static func limit(
        _ settings: Settings, _ prefix: String, default standard: Limit
    ) throws(CloudError) -> Limit {
        Limit(
            capacity: try settings.integer("\(prefix)_capacity", default: standard.capacity, in: 0...1_000_000_000),
            refillPerSecond: try settings.integer(
                "\(prefix)_refill_per_second", default: standard.refillPerSecond, in: 1...1_000_000))
    }
}

/// The budgets of all callers of one service.
struct RequestBudgets {
    /// Of a refusal: which budget was used up.
    static let budgetDetail = "budget"

    private let devices: TokenBuckets<DeviceID>
    private let accounts: TokenBuckets<AccountID>
    private let storedReplies: TokenBuckets<AccountID>

    init(_ configuration: BudgetConfiguration) {
        devices = TokenBuckets(configuration.device)
        accounts = TokenBuckets(configuration.account)
        storedReplies = TokenBuckets(configuration.storedReplies)
    }

    struct Exhausted: Error {
        var error: CloudError
        var budget: Budget
    }

    /// What a caller is refused with that has not one call left; nil: it has.
    func exhausted(_ caller: Caller, now: Duration) -> Exhausted? {
        let forDevice = devices.wait(caller.device, now: now)
        if forDevice > .zero { return devices.exhausted("device", wait: forDevice) }
        let forAccount = accounts.wait(caller.account, now: now)
        return forAccount > .zero ? accounts.exhausted("account", wait: forAccount) : nil
    }

    /// What a caller is refused with whose account has as many stored replies as it may; nil: it has not.
    func exhaustedByReplies(_ caller: Caller, now: Duration) -> Exhausted? {
        let wait = storedReplies.wait(caller.account, now: now)
        return wait > .zero ? storedReplies.exhausted("stored replies", wait: wait) : nil
    }

    func noteStoredReplies(_ caller: Caller, units: Int, now: Duration) {
        guard units > 0 else { return }
        _ = storedReplies.take(caller.account, units, now: now)
    }

    /// Takes what a request costs from the caller's budgets, which may be more than they have left; or what it has cost
    /// beyond what was taken for it, or gives back what it has not.
    ///
    /// - Returns: What remains of the scarcer budget; nil when there is no limit.
    @discardableResult
    func settle(_ caller: Caller, by calls: Int, now: Duration) -> Budget? {
        let device = devices.take(caller.device, calls, now: now)
        let account = accounts.take(caller.account, calls, now: now)
        guard let device, let account else { return device ?? account }
        return device.remaining <= account.remaining ? device : account
    }
}

/// Token buckets, each kept as the time at which it will be full again (the
/// generic cell rate algorithm, ITU-T I.371). One that is in debt is full later
/// than an empty one.
///
/// An object: it is asked for every request, and to ask part of a structure would be to copy it.
package final class TokenBuckets<Key: Hashable> {
    /// Keys remembered at once. Buckets that are full again need no memory.
    static var keysMax: Int { 100_000 }

    private let capacity: Int
    private let refill: Duration
    // In nanoseconds: every request comes by, and a `Duration` has 128 bits. A capacity has at most 30 bits, a call's
    // time as many, and what a request costs far less.
    private let perCall: Int64
    private let fullBucket: Int64
    private var fullAt: [Key: Int64] = [:]
    /// Where the key asked for last lies, which is asked for again at once: comparing costs less than hashing.
    private var latest: (key: Key, place: [Key: Int64].Index)?
    /// Keys that are remembered.
    var count: Int { fullAt.count }

    package init(_ limit: BudgetConfiguration.Limit) {
        capacity = limit.capacity
        refill = limit.refill
        perCall = refill.nanoseconds
        fullBucket = perCall * Int64(capacity)
    }

    /// How long until the key may take one; not above zero: now.
    package func wait(_ key: Key, now: Duration) -> Duration {
        guard capacity > 0 else { return .zero }
        let now = now.nanoseconds
        let full = place(of: key).map { fullAt.values[$0] } ?? 0
        return .nanoseconds(max(0, full - now) + perCall - fullBucket)
    }

    /// Where the key's bucket lies, until another one comes or goes.
    private func place(of key: Key) -> [Key: Int64].Index? {
        if let latest, latest.key == key { return latest.place }
        guard let place = fullAt.index(forKey: key) else { return nil }
        latest = (key, place)
        return place
    }

    /// Takes some, which may be more than there are: the next one waits until that is paid.
    package func note(_ key: Key, _ count: Int, now: Duration) { _ = take(key, count, now: now) }

    /// Takes some, or gives some back. What remains; nil when there is no limit.
    func take(_ key: Key, _ count: Int, now: Duration) -> Budget? {
        guard capacity > 0 else { return nil }
        let now = now.nanoseconds
        let time = perCall * Int64(count)
        let left: Int64
        if let place = place(of: key) {
            left = fullBucket - Self.fill(&fullAt.values[place], by: time, now)
        } else {
            latest = nil
            if fullAt.count >= Self.keysMax { makeRoom(now) }
            left = fullBucket - Self.fill(&fullAt[key, default: 0], by: time, now)
        }
        return Budget(capacity: capacity, remaining: max(0, Int(left / perCall)), refill: refill)
    }

    /// - Returns: How long the bucket takes to be full now.
    private static func fill(_ fullAt: inout Int64, by time: Int64, _ now: Int64) -> Int64 {
        fullAt = max(max(fullAt, now) + time, now)
        return fullAt - now
    }

    func exhausted(_ whose: String, wait: Duration) -> RequestBudgets.Exhausted {
        RequestBudgets.Exhausted(
            error: CloudError(
                .requestRateLimited,
                "The budget of requests is used up. Wait, and put several changes into one request.",
                details: [RequestBudgets.budgetDetail: whose, "capacity": "\(capacity)"], retryAfter: wait),
            budget: Budget(capacity: capacity, remaining: 0, refill: refill))
    }

    /// Forgets whoever has a full bucket; if that is not enough, those who are nearest to one. Thousands of fresh keys
    /// do not forgive anybody's debts.
    private func makeRoom(_ now: Int64) {
        fullAt = fullAt.filter { $0.value > now }
        if fullAt.count >= Self.keysMax { fullAt.forgetEarliest() }
    }
}

extension Dictionary where Value: Comparable {
    private static var sampleMax: Int { 1001 }

    /// Forgets about half of them, whose times come before the others': by a sample, since to sort all of them takes
    /// long.
    mutating func forgetEarliest() {
        let sample = values.prefix(Self.sampleMax).sorted()
        guard !sample.isEmpty else { return }
        let middle = sample[sample.count / 2]
        self = filter { $0.value > middle }
    }
}
