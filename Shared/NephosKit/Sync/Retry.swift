import NephosCore

/// How often in a row something failed, and how long to wait before it is tried again: the one rule for that.
///
/// Each pause is twice as long as the one before, up to the longest of its kind, and half of it is random, so that
/// devices that failed together do not return together. A server that asks for a longer pause gets it, up to
/// ``askedMax``.
struct Retry: Equatable {
    /// The first pause and the longest one, by what is tried.
    struct Pauses: Equatable {
        var first: Duration
        var longest: Duration

        /// Scopes, calls and tokens, which may fail for hours.
        static let scope = Pauses(first: .seconds(1), longest: .seconds(60))
        /// A subscription without which the device hears of no change.
        static let subscription = Pauses(first: .seconds(1), longest: .seconds(30))
        /// A full comparison of a scope, after the first. It reads everything.
        static let comparison = Pauses(first: .seconds(5), longest: .seconds(600))
        /// A content that the server has lost. It is there again once a device has put it.
        static let lostContent = Pauses(first: .seconds(5), longest: .seconds(600))
        /// An offer of contents that the server has lost, which gives way to everything else.
        static let offer = Pauses(first: .seconds(60), longest: .seconds(3600))
        /// A chunk of a transfer that an app waits for.
        static let chunk = Pauses(first: .milliseconds(50), longest: .seconds(2))
        /// The ticket of such a transfer.
        static let ticket = Pauses(first: .milliseconds(50), longest: .seconds(30))
    }

    /// The longest pause that a server gets.
    static let askedMax: Duration = .seconds(3600)

    let pauses: Pauses
    private(set) var attempts: Int

    /// - Parameter attempts: As they were kept.
    init(_ pauses: Pauses = .scope, attempts: Int = 0) { (self.pauses, self.attempts) = (pauses, attempts) }

    /// Counts a failure.
    ///
    /// - Returns: How long to wait.
    mutating func failed(
        _ error: CloudError? = nil, using generator: inout some RandomNumberGenerator
    ) -> Duration {
        attempts += 1
        return pause(after: error, using: &generator)
    }

    /// How long to wait after the failures so far, the last of which was this error. A pause that the server asked for
    /// holds as it is, unless it asks for too short a one again and again.
    func pause(after error: CloudError? = nil, using generator: inout some RandomNumberGenerator) -> Duration {
        let asked = min(error?.retryAfter ?? .zero, Self.askedMax)
        let first = asked > .zero ? min(asked, pauses.first) : pauses.first
        let full = min(pauses.longest, first * (1 << min(max(attempts - 1, 0), 20)))
        return max(asked, full / 2 + full / 2 * Double.random(in: 0...1, using: &generator))
    }

    mutating func succeeded() { attempts = 0 }
}
