internal import Bus
internal import Core

/// Replies that a peer's full queue did not take, kept for a short while.
///
/// Bounded in every direction; what is dropped, the caller asks for again under
/// the same operation id.
struct ReplyBacklog {
    static let bytesMax = 64 << 20
    static let bytesPerAccountMax = 16 << 20
    static let bytesPerPeerMax = 8 << 20
    static let age: Duration = .seconds(2)

    private struct Waiting {
        var peer: Peer
        /// Nil: of nobody who is signed in.
        var account: AccountID?
        var messages: [Message] = []
        var bytes = 0
        /// When the oldest of them came.
        var since: Duration
    }

    private var waiting: [UInt64: Waiting] = [:]
    private var bytes = 0
    private var bytesOfAccounts: [AccountID: Int] = [:]

    var isEmpty: Bool { waiting.isEmpty }

    /// Keeps the reply, or returns false: there is no room.
    mutating func add(_ message: Message, to peer: Peer, of account: AccountID?, at now: Duration) -> Bool {
        let size = Self.size(message)
        var entry = waiting[peer.connection] ?? Waiting(peer: peer, account: account, since: now)
        let ofAccount = entry.account.map { bytesOfAccounts[$0] ?? 0 } ?? 0
        guard bytes + size <= Self.bytesMax, entry.bytes + size <= Self.bytesPerPeerMax,
            ofAccount + size <= Self.bytesPerAccountMax
        else { return false }
        entry.messages.append(message)
        entry.bytes += size
        count(size, of: entry.account)
        waiting[peer.connection] = entry
        return true
    }

    /// Sends what can be sent now. Returns how many replies were dropped: their
    /// peers are gone, or still full after ``age``.
    mutating func retry(at now: Duration, send: (Message, Peer) -> SendResult) -> Int {
        var dropped = 0
        for (connection, var entry) in waiting {
            var done = 0
            var result = SendResult.sent
            for message in entry.messages {
                result = send(message, entry.peer)
                if result != .sent { break }
                done += 1
            }
            let left = entry.messages.count - done
            if left == 0 || result == .gone || now - entry.since > Self.age {
                dropped += left
                count(-entry.bytes, of: entry.account)
                waiting[connection] = nil
            } else if done > 0 {
                let sent = entry.messages.prefix(done).reduce(0) { $0 + Self.size($1) }
                entry.messages.removeFirst(done)
                entry.bytes -= sent
                entry.since = now
                count(-sent, of: entry.account)
                waiting[connection] = entry
            }
        }
        return dropped
    }

    private mutating func count(_ size: Int, of account: AccountID?) {
        bytes += size
        guard let account else { return }
        let ofAccount = (bytesOfAccounts[account] ?? 0) + size
        bytesOfAccounts[account] = ofAccount == 0 ? nil : ofAccount
    }

    private static func size(_ message: Message) -> Int { message.reduce(64) { $0 + $1.count } }
}
