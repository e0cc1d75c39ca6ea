internal import NephosCore

/// What a service counts of its doings, for `CheckHealth` and the metrics. On the loop only.
final class Counters {
    /// By name, such as `requests`.
    private(set) var values: [String: UInt64] = [:]
    /// Refused requests, by the number of the error's code.
    private(set) var failures: [UInt32: UInt64] = [:]

    /// Requests that a used-up budget has refused, by which.
    private(set) var refusedByBudget: [String: UInt64] = [:]
    /// Bytes of messages at the sockets where the service is asked.
    var requestBytes: UInt64 = 0
    var replyBytes: UInt64 = 0
    /// What is stored for owners of plans.
    var storedBytes: Int64 = 0
    /// Requests of each group; 0 where it was the service's own work alone.
    var groupRequests = Buckets(bounds: [0, 1, 4, 16, 64, 256])

    func add(_ name: String, by amount: Int = 1) {
        guard amount > 0 else { return }
        values[name, default: 0] += UInt64(amount)
    }

    func set(_ name: String, to amount: Int) { values[name] = UInt64(max(0, amount)) }

    func note(_ error: CloudError) {
        failures[error.code.number, default: 0] += 1
        guard error.code == .requestRateLimited, let budget = error.details[RequestBudgets.budgetDetail] else { return }
        refusedByBudget[budget, default: 0] += 1
    }
}
