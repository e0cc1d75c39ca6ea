/// How far something is that moves bytes, how fast it goes, and how long it will take.
public struct TransferProgress: Hashable, Sendable {
    /// Bytes that have moved.
    public var done: UInt64
    /// Bytes in all.
    public var total: UInt64
    /// Bytes a second, over the last seconds; nil: it has not gone on for long enough to tell.
    public var rate: Double?
    /// How long it will take if it goes on so; nil: nobody can tell.
    public var timeLeft: Duration?
}

/// Makes a rate of what a progress tells: `onProgress: { done, total in show(meter.note(done, of: total, at: .now)) }`.
///
/// Knows no more than the last few seconds: what has stood still shows no rate of before. Has no clock of its own.
public struct TransferMeter: Sendable {
    /// Over so long the rate is taken.
    private static let span: Duration = .seconds(8)
    /// Less than this tells nothing: the first bytes may come from a buffer.
    private static let spanMin: Duration = .milliseconds(500)
    /// How far apart what is remembered lies: so it is bounded.
    private static let grain: Duration = .milliseconds(250)

    private var marks: [(time: ContinuousClock.Instant, done: UInt64)] = []

    /// One that has seen nothing.
    public init() {}

    /// - Parameters:
    ///   - done: Bytes that have moved. Less than before: it has begun anew.
    ///   - total: Bytes in all.
    ///   - time: When that was so.
    public mutating func note(
        _ done: UInt64, of total: UInt64, at time: ContinuousClock.Instant
    ) -> TransferProgress {
        if let last = marks.last, done < last.done || time < last.time { marks = [] }
        if marks.last.map({ time - $0.time >= Self.grain }) ?? true { marks.append((time, done)) }
        while marks.count > 2, time - marks[1].time >= Self.span { marks.removeFirst() }
        var progress = TransferProgress(done: done, total: max(done, total), rate: nil, timeLeft: nil)
        guard let first = marks.first, time - first.time >= Self.spanMin else { return progress }
        let rate = Double(done - first.done) / ((time - first.time) / .seconds(1))
        progress.rate = rate
        let left = progress.total - done
        // More than a year is no word to a person.
        if left == 0 {
            progress.timeLeft = .zero
        } else if rate > 0, Double(left) / rate < 366 * 86_400 {
            progress.timeLeft = .milliseconds(Int64(Double(left) / rate * 1000))
        }
        return progress
    }
}
