internal import NephosCore

/// What became of one method's requests. On the loop only.
final class MethodFigures {
    /// A copy for whoever asks.
    struct Copy: Sendable {
        var name: String
        var succeeded: UInt64
        var failed: [CloudError.Code: UInt64]
        /// Nanoseconds from arrival to reply, of all of them.
        var times: Buckets
    }

    private var succeeded: UInt64 = 0
    /// Our own faults from the beginning: a first one is a rise only from a zero.
    private var failed: [CloudError.Code: UInt64] = [.internalError: 0, .storageFailure: 0]
    private var times = Buckets.nanoseconds

    /// Notes an answer.
    ///
    /// - Parameters:
    ///   - code: Why it failed; nil: it did not.
    ///   - taken: From its arrival on.
    func note(_ code: CloudError.Code?, _ taken: Duration) {
        if let code { failed[code, default: 0] += 1 } else { succeeded &+= 1 }
        times.note(taken.nanoseconds)
    }

    func copy(named name: String) -> Copy {
        Copy(name: name, succeeded: succeeded, failed: failed, times: times)
    }
}
