internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit

/// An upload, among those of all accounts.
struct Upload: Hashable, Sendable {
    /// Who sends it.
    var account: AccountID
    /// Whose it is.
    var owner: Owner
    var id: ReservationID

    /// How full its reservation is, as committed last.
    struct Standing: Hashable, Sendable {
        var reserved: UInt64
        var filled: UInt64
    }
}

/// What a device was let in for, so that the loop of content knows all that it needs, and asks nobody.
final class Ticket: Sendable {
    let id: BulkTicket
    /// The key that asked for it; on connections of another it is none.
    let key: PublicKey
    let account: AccountID
    let device: DeviceID
    let app: AppID
    /// For which uploads count: the app, or what several apps share.
    let reservingApp: AppID
    /// Of whom has no account: by which token of the app it was let in.
    let appToken: String?
    /// Of what of the owner's it may fetch (``ContentPlace/readable``).
    let readable: Set<String>
    let owner: Owner
    let partition: Int
    let sealer: ChunkSealer
    /// Where what is sent under it is stored; nil: it is for fetching alone.
    let upload: Upload?
    let lifetime: Duration
    /// The key that has signed the access token which it was asked for with, and when both end.
    let keyID: String
    let expires: Timestamp

    var turn: Turn { Turn(account: account, partition: partition) }

    init(
        id: BulkTicket, key: PublicKey, caller: Caller, at place: ContentPlace, sealer: ChunkSealer, upload: Upload?,
        lifetime: Duration
    ) {
        self.id = id
        self.key = key
        account = caller.account
        device = caller.device
        app = caller.app
        reservingApp = place.app
        appToken = caller.appToken
        readable = place.readable
        owner = place.owner
        partition = place.partition
        self.sealer = sealer
        self.upload = upload
        self.lifetime = lifetime
        keyID = caller.keyID
        expires = caller.expires
    }
}

/// The tickets that are good now: a few of each key, no more than a part of them of each account, and so many in all.
struct TicketTable {
    /// Of one key; the oldest makes room.
    static let perKeyMax = 16
    /// Of one account; its oldest makes room.
    static let perAccountMax = 1024

    private struct Entry {
        var ticket: Ticket
        var until: Duration
    }

    private let countMax: Int
    /// Of those, of whom has no account.
    private var publicCount = 0
    private var entries: [BulkTicket: Entry] = [:]
    /// The oldest first.
    private var byKey: [PublicKey: [BulkTicket]] = [:]
    private var byAccount: [AccountID: [BulkTicket]] = [:]

    /// While it is full, those whose time is over are looked for no more often than this.
    private static let clearingPause: Duration = .seconds(1)
    private var nextClearing: Duration = .zero

    /// - Parameter countMax: Of all keys; each takes half a kilobyte.
    init(countMax: Int = 50_000) { self.countMax = max(1, countMax) }

    var count: Int { entries.count }
    /// Those that tickets are for.
    var uploads: Set<Upload> { Set(entries.values.compactMap(\.ticket.upload)) }

    /// - Returns: Those that made room for it; nil: there are too many, of other keys.
    mutating func add(_ ticket: Ticket, now: Duration) -> [Ticket]? {
        var removed: [Ticket] = []
        if let own = byKey[ticket.key], own.count >= Self.perKeyMax, let oldest = remove(own[0]) {
            removed.append(oldest)
        }
        if let own = byAccount[ticket.account], own.count >= Self.perAccountMax, let oldest = remove(own[0]) {
            removed.append(oldest)
        }
        // Half of them are kept for accounts.
        let isPublic = ticket.appToken != nil
        func isFull() -> Bool { entries.count >= countMax || isPublic && publicCount >= countMax / 2 }
        if isFull(), now >= nextClearing {
            nextClearing = now + Self.clearingPause
            removed += removeAll { _, until in until <= now }
        }
        guard !isFull() else { return nil }
        if isPublic { publicCount += 1 }
        entries[ticket.id] = Entry(ticket: ticket, until: now + ticket.lifetime)
        byKey[ticket.key, default: []].append(ticket.id)
        byAccount[ticket.account, default: []].append(ticket.id)
        return removed
    }

    /// The ticket, if it is this key's, and good. A foreign one is found as little as one that there never was.
    func find(_ id: BulkTicket, of key: PublicKey, now: Duration) -> Ticket? {
        guard let entry = entries[id], entry.ticket.key == key, entry.until > now else { return nil }
        return entry.ticket
    }

    /// - Parameter isOver: Gets each ticket, and until when it is good.
    mutating func removeAll(where isOver: (Ticket, Duration) -> Bool) -> [Ticket] {
        let over = entries.values.filter { isOver($0.ticket, $0.until) }.map(\.ticket)
        for ticket in over { remove(ticket.id) }
        return over
    }

    @discardableResult
    private mutating func remove(_ id: BulkTicket) -> Ticket? {
        guard let ticket = entries.removeValue(forKey: id)?.ticket else { return nil }
        if ticket.appToken != nil { publicCount -= 1 }
        byKey[ticket.key]?.removeAll { $0 == id }
        if byKey[ticket.key]?.isEmpty == true { byKey[ticket.key] = nil }
        byAccount[ticket.account]?.removeAll { $0 == id }
        if byAccount[ticket.account]?.isEmpty == true { byAccount[ticket.account] = nil }
        return ticket
    }
}
