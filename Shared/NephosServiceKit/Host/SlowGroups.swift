internal import Logging
internal import NephosCore

/// Groups that took so long that everybody waited: whoever runs the service can see what was in them.
struct SlowGroups {
    /// From here on a group is slow.
    static let threshold: Duration = .milliseconds(50)
    /// Between two lines in the log: on a slow disk every group is slow.
    private static let logPause: Duration = .seconds(10)

    private var logged: Duration?

    /// - Parameters:
    ///   - methods: Of the group's requests, one for each.
    ///   - now: In the loop's time.
    mutating func note(_ methods: [String], _ taken: Duration, at now: Duration, in logger: Logger) {
        if let logged, now - logged < Self.logPause { return }
        logged = now
        let counts = methods.reduce(into: [:]) { $0[$1, default: 0] += 1 }
        let names = counts.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " ")
        logger.notice(
            "A group held the loop up; others are counted in groups.slow",
            metadata: ["milliseconds": "\(taken.milliseconds)", "requests": "\(names)"])
    }
}
