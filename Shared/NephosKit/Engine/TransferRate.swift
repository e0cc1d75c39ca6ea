internal import NephosBus

/// How fast contents may be sent and fetched.
public struct TransferLimits: Hashable, Sendable {
    /// Bytes of content a second that are sent at most, over some seconds; nil: as fast as it goes. What is compressed on
    /// its way takes less of the line.
    public var upload: Int?
    /// The same of what is fetched.
    public var download: Int?

    /// - Parameters: In bytes a second; nil: as fast as it goes. Less than 1000 counts as 1000.
    public init(upload: Int? = nil, download: Int? = nil) {
        self.upload = upload
        self.download = download
    }
}

extension Session {
    /// Limits how fast this session moves contents, from now on. What is small, such as names, is not held back.
    ///
    /// A chunk, of 256 KiB on average, goes as fast as it can, and the next once its time has come. Of several processes
    /// of a home each has its own limits: what waits is sent by the one that holds the connection, by its own.
    public func setTransferLimits(_ limits: TransferLimits) {
        engine.execute { engine in
            engine.uploadRate.set(limits.upload)
            engine.downloadRate.set(limits.download)
        }
    }
}

/// A token bucket: so many bytes a second, and a quarter of a second's at once.
///
/// Something may go while there is anything in it, and takes as much as it has: what is larger than the bucket leaves
/// it in debt, for as long as it would have taken. So over time the rate holds, whatever is sent.
struct TokenBucket {
    /// The slowest: a chunk has at most 1 MiB, which takes a quarter of an hour then.
    static let rateMin = 1000
    private static let burst = 0.25

    /// Bytes a second.
    let rate: Double
    private var tokens: Double
    private var filled: Duration

    /// - Parameters:
    ///   - rate: Bytes a second.
    ///   - now: By a clock that never goes back.
    init(rate: Int, now: Duration) {
        self.rate = Double(max(Self.rateMin, rate))
        tokens = self.rate * Self.burst
        filled = now
    }

    /// How long until something may go; zero: now.
    mutating func wait(at now: Duration) -> Duration {
        tokens = min(rate * Self.burst, tokens + rate * (max(.zero, now - filled) / .seconds(1)))
        filled = max(filled, now)
        // A little more, so that rounding does not make it wait once more.
        return tokens > 0 ? .zero : .seconds(-tokens / rate) + .milliseconds(1)
    }

    mutating func take(_ bytes: Int) { tokens -= Double(bytes) }
}

/// The one place that holds contents up, one for each way. On the loop only: whoever is to wait sets a timer.
final class TransferRate {
    private let loop: any BusLoop
    private var bucket: TokenBucket?

    init(_ loop: any BusLoop) { self.loop = loop }

    /// - Parameter bytesPerSecond: Nil: as fast as it goes.
    func set(_ bytesPerSecond: Int?) {
        bucket = bytesPerSecond.map { TokenBucket(rate: $0, now: loop.monotonicNow) }
    }

    /// Takes room for something.
    ///
    /// - Returns: How long to wait before it is asked for again; nil: it may go.
    func take(_ bytes: Int) -> Duration? {
        guard let wait = bucket?.wait(at: loop.monotonicNow) else { return nil }
        guard wait == .zero else { return min(wait, Self.waitMax) }
        bucket?.take(bytes)
        return nil
    }

    /// So soon another limit is heeded that somebody has set meanwhile.
    private static let waitMax: Duration = .seconds(1)
}
