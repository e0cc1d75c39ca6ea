internal import Logging
internal import NephosCore

/// How often each kind of line is written: so much at once and so much a minute, and then how many were left out. Nobody
/// who makes a service say the same a million times fills its disk, or hides what else it says.
struct LogRates {
    /// Lines of one kind at once, and between two that are written after that.
    static let burst = 20
    static let pause: Duration = .seconds(5)
    /// Of what is written only where somebody wants to see all of it.
    static let pauseOfDetails: Duration = .milliseconds(5)
    /// Kinds that are told apart: messages are constant sentences. Further ones are one kind.
    static let kindsMax = 256
    private static let others = "other"

    private struct Kind {
        var message: String
        var pause: Duration
        /// What may be written now, as a time: each line adds a pause.
        var free: Duration
        var leftOut = 0
    }

    private var kinds: [String: Kind] = [:]
    /// Kinds of which something was left out.
    private var muted: Set<String> = []
    /// Lines that were left out since the start.
    private(set) var leftOut = 0

    /// Whether a line of this kind is written.
    mutating func admit(_ message: String, _ level: Logger.Level = .info, at now: Duration) -> Bool {
        let pause = level < .info ? Self.pauseOfDetails : Self.pause
        var name = "\(level.rawValue) \(message)"
        if kinds[name] == nil, kinds.count >= Self.kindsMax { name = Self.others }
        var kind = kinds[name] ?? Kind(message: message, pause: pause, free: now - pause * Self.burst)
        defer { kinds[name] = kind }
        kind.free = max(kind.free, now - kind.pause * (Self.burst - 1))
        guard kind.free <= now else {
            kind.leftOut += 1
            leftOut += 1
            muted.insert(name)
            return false
        }
        kind.free += kind.pause
        return true
    }

    /// Of what lines were left out, and how many: of those that are due, or of all.
    mutating func takeLeftOut(at now: Duration, all: Bool = false) -> [(message: String, count: Int)] {
        guard !muted.isEmpty else { return [] }
        var told: [(message: String, count: Int)] = []
        for name in muted.sorted() {
            guard var kind = kinds[name], all || kind.free <= now else { continue }
            told.append((name == Self.others ? name : kind.message, kind.leftOut))
            kind.leftOut = 0
            kind.free += kind.pause
            kinds[name] = kind
            muted.remove(name)
        }
        return told
    }
}
