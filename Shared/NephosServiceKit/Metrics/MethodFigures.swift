internal import NephosCore

/// What became of one method's requests. On the loop only.
final class MethodFigures {
    /// A copy for whoever asks.
    struct Copy: Sendable {
        var name: String
        var succeeded: UInt64
        var failed: [CloudError.Code: UInt64]
        /// Nanoseconds from arrival to reply, of what devices and the operator asked for.
        var times: Buckets

        var isUnused: Bool { succeeded == 0 && failed.isEmpty }
    }

    private var succeeded: UInt64 = 0
    private var failed: [CloudError.Code: UInt64] = [:]
    private var times = Buckets.nanoseconds

    /// Notes an answer.
    ///
    /// - Parameters:
    ///   - code: Why it failed; nil: it did not.
    ///   - taken: The time since its arrival; nil for requests of other services, which nobody waits for.
    func note(_ code: CloudError.Code?, _ taken: Duration?) {
        if let code { failed[code, default: 0] += 1 } else { succeeded &+= 1 }
        if let taken { times.note(taken.nanoseconds) }
    }

    func copy(named name: String) -> Copy {
        Copy(name: name, succeeded: succeeded, failed: failed, times: times)
    }
}
