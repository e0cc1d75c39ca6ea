import NephosCore
import NephosWire

extension ScopeSync {
    /// How far reading from the server has come.
    struct PullState {
        enum Phase {
            case idle
            /// The device looks up where its own copy is. Then it asks for the first page.
            case finding(everything: Bool)
            /// A page was asked for.
            case reading
            /// A page has come and is being staged. This is the reading with that page.
            case staging(ChangesReading)
        }

        var phase = Phase.idle
        /// Another pull follows this one.
        var again = false
        /// The timer of the next pull runs. It may also run during a pull, after a segment of the feed failed.
        var isPlanned = false
        /// The pages that were read so far. They are kept when a page fails, and the next pull continues from there.
        var reading: ChangesReading?
        /// The greatest token of the server that this device knew when it began to read.
        var known = ChangeToken.zero
        var retry = Retry()
        /// Pulls begun, over all sessions: waiting callers are counted by them.
        var begun = 0
        /// The last of them that was applied.
        var applied = 0

        var isRunning: Bool { if case .idle = phase { false } else { true } }

        /// Pages of an unfinished reading are staged on disk.
        var hasStaged: Bool {
            if case .staging(let reading) = phase { return reading.pageCount > 0 }
            return reading.map { $0.pageCount > 0 } ?? false
        }
    }

    /// Whether the digests of both sides were equal when they were last compared, in this process.
    enum Comparison: Equatable {
        case unknown
        case agreed
        /// They differed so many times in a row. The device then reads everything: the first time at once, later after
        /// growing pauses. An earlier pull does not postpone a planned comparison.
        case differs(times: Int, isPlanned: Bool)

        var times: Int { if case .differs(let times, _) = self { times } else { 0 } }
        var isPlanned: Bool { if case .differs(_, let isPlanned) = self { isPlanned } else { false } }
    }

    /// A hole in the feed between this device's head and the server's.
    enum Gap: Equatable {
        case none
        /// The missing segment may be on its way. Its timer runs; the head is the server's, where it is known.
        case waiting(ChangeToken?)
        /// The time is over. The copy is compared once more with this head, and then pulled.
        case asking(ChangeToken)

        var isWaiting: Bool { if case .waiting = self { true } else { false } }

        var head: ChangeToken? {
            switch self {
            case .none: nil
            case .waiting(let head): head
            case .asking(let head): head
            }
        }
    }
}
