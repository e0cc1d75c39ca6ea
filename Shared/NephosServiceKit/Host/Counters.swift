internal import NephosCore

/// What a service counts of its doings, for `CheckHealth` and the metrics. On the loop only.
final class Counters {
    /// By name, such as `requests`.
    private(set) var values: [String: UInt64] = [:]
    /// Refused requests, by the number of the error's code.
    private(set) var failures: [UInt32: UInt64] = [:]

    func add(_ name: String, by amount: Int = 1) {
        guard amount > 0 else { return }
        values[name, default: 0] += UInt64(amount)
    }

    func set(_ name: String, to amount: Int) { values[name] = UInt64(max(0, amount)) }

    func note(_ code: CloudError.Code) { failures[code.number, default: 0] += 1 }
}
