internal import Bus
public import Core
public import Storage
internal import Wire

/// One service's side of the quota ledger: what it stores for each owner, and
/// how much it may.
///
/// A handler charges what it stores in its own transaction, against an
/// allotment that identity has granted before, so the limit holds without
/// asking for each write, also when this service or identity crashes at any
/// moment. When the allotment is used up the ledger asks for more, and the
/// caller is told to come back in a moment.
///
/// On the service's loop only.
public final class StorageLedger {
    static let migrations = [
        Migration(
            name: "ledger-001",
            statements: [
                """
                CREATE TABLE storage_owners (
                    owner_id TEXT NOT NULL PRIMARY KEY,
                    revision BIGINT NOT NULL,
                    allotted BIGINT NOT NULL,
                    used BIGINT NOT NULL,
                    -- What identity knows of.
                    told BIGINT NOT NULL
                )
                """,
                // `told` is -1 after the allotment was lowered, until identity knows.
                "CREATE INDEX storage_owners_untold ON storage_owners (owner_id) WHERE used <> told",
                """
                CREATE TABLE storage_usage (
                    owner_id TEXT NOT NULL,
                    app TEXT NOT NULL,
                    device TEXT NOT NULL,
                    used BIGINT NOT NULL,
                    PRIMARY KEY (owner_id, app, device)
                )
                """,
            ])
    ]

    /// How often what has changed is told to identity.
    static let tellInterval: Duration = .seconds(5)
    /// Owners told of in one round.
    private static let tellMax = 100
    /// How soon a caller comes back whose room is being asked for.
    private static let askPause: Duration = .milliseconds(30)
    /// How soon identity is asked again while it recalls unused room from other services.
    private static let recallPause: Duration = .milliseconds(300)
    /// For so long others are waited for. One that does not answer keeps its room.
    private static let recallPatience: Duration = .seconds(5)
    /// For so long a definite no is taken for an answer.
    private static let refusalMemory: Duration = .seconds(1)

    private static let columns = "revision, allotted, used"
    private static let select = SQL("SELECT \(columns) FROM storage_owners WHERE owner_id = ?1")
    private static let insert = SQL(
        "INSERT INTO storage_owners (owner_id, \(columns), told) VALUES (?1, 1, 0, 0, 0)")
    private static let updateUsed = SQL("UPDATE storage_owners SET used = used + ?2 WHERE owner_id = ?1")
    private static let updateAllotment = SQL(
        "UPDATE storage_owners SET revision = ?2, allotted = ?3, told = ?4 WHERE owner_id = ?1")
    private static let selectUntold = SQL(
        "SELECT owner_id FROM storage_owners WHERE used <> told ORDER BY owner_id LIMIT ?1")
    private static let selectOwners = SQL("SELECT owner_id FROM storage_owners ORDER BY owner_id")
    private static let addUsage = SQL(
        """
        INSERT INTO storage_usage (owner_id, app, device, used) VALUES (?1, ?2, ?3, CASE WHEN ?4 > 0 THEN ?4 ELSE 0 END)
        ON CONFLICT (owner_id, app, device) DO UPDATE SET
            used = CASE WHEN storage_usage.used + ?4 > 0 THEN storage_usage.used + ?4 ELSE 0 END
        """)
    private static let selectUsage = SQL(
        "SELECT app, device, used FROM storage_usage WHERE owner_id = ?1 AND used > 0 ORDER BY used DESC, app, device")
    private static let deleteOwner = SQL("DELETE FROM storage_owners WHERE owner_id = ?1")
    private static let deleteUsage = SQL("DELETE FROM storage_usage WHERE owner_id = ?1")

    /// What is stored for an owner, by who stored it.
    public struct Usage: Hashable, Sendable {
        public var app: AppID
        public var device: DeviceID
        public var bytes: UInt64

        public init(app: AppID, device: DeviceID, bytes: UInt64) {
            self.app = app
            self.device = device
            self.bytes = bytes
        }
    }

    private struct Row {
        var revision: UInt64
        var allotted: UInt64
        var used: UInt64
    }

    /// What is asked for, or was refused. In memory: it is asked for again.
    private struct Demand {
        var wanted: UInt64
        var since: Duration
    }

    private struct Refusal {
        var wanted: UInt64
        var plan: UInt64
        var until: Duration
    }

    private unowned let host: ServiceHost
    private var demands: [StorageOwner: Demand] = [:]
    private var refusals: [StorageOwner: Refusal] = [:]
    /// Asked about now; one question at a time for each owner.
    private var asking: Set<StorageOwner> = []
    private var isTelling = false

    init(host: ServiceHost) { self.host = host }

    func start() { tell() }

    // MARK: What handlers do

    /// Counts bytes that are about to be stored.
    ///
    /// - Throws: ``CloudError`` `.quotaExceeded` when the plan has no room for
    ///   them; `.serviceBusy` while room is being asked for. Nothing is counted then.
    public func charge(
        _ bytes: UInt64, to owner: StorageOwner, app: AppID, device: DeviceID, in transaction: any HandlerTransaction
    ) throws {
        guard bytes > 0 else { return }
        let row = try row(of: owner, in: transaction)
        let (total, overflow) = (row?.used ?? 0).addingReportingOverflow(bytes)
        guard !overflow, total <= UInt64(Int64.max) else { throw Self.exceeded(bytes, used: row?.used ?? 0, plan: 0) }
        guard let row, total <= row.allotted else {
            throw missing(total, bytes, used: row?.used ?? 0, of: owner)
        }
        try transaction.execute(Self.updateUsed, [.text(owner.rawValue), .integer(Int64(bytes))])
        try transaction.execute(
            Self.addUsage,
            [.text(owner.rawValue), .text(app.rawValue), .text(device.rawValue), .integer(Int64(bytes))])
        tellSoon()
    }

    /// Counts bytes that are removed. Never refused.
    public func release(
        _ bytes: UInt64, of owner: StorageOwner, app: AppID, device: DeviceID, in transaction: any HandlerTransaction
    ) throws {
        guard let row = try row(of: owner, in: transaction) else { return }
        let bytes = Int64(clamping: min(bytes, row.used))
        try transaction.execute(Self.updateUsed, [.text(owner.rawValue), .integer(-bytes)])
        try transaction.execute(
            Self.addUsage, [.text(owner.rawValue), .text(app.rawValue), .text(device.rawValue), .integer(-bytes)])
        refusals[owner] = nil
        tellSoon()
    }

    /// What is stored for the owner, the most first.
    public func usage(of owner: StorageOwner, in transaction: any Transaction) throws -> [Usage] {
        try transaction.all(Self.selectUsage, [.text(owner.rawValue)]) {
            Usage(app: AppID($0.text(0)), device: DeviceID($0.text(1)), bytes: UInt64(clamping: $0.integer(2)))
        }
    }

    private func missing(_ total: UInt64, _ bytes: UInt64, used: UInt64, of owner: StorageOwner) -> CloudError {
        let now = host.loop.monotonicNow
        if let refusal = refusals[owner], refusal.until > now, total >= refusal.wanted {
            return Self.exceeded(bytes, used: used, plan: refusal.plan)
        }
        var demand = demands[owner] ?? Demand(wanted: 0, since: now)
        demand.wanted = max(demand.wanted, total)
        demands[owner] = demand
        // After this group: its transaction is open.
        host.loop.schedule(after: .zero) { [weak self] in self?.settle(owner) }
        return CloudError(
            .serviceBusy, "Room is being asked for. Come back in a moment.", retryAfter: Self.askPause)
    }

    private static func exceeded(_ bytes: UInt64, used: UInt64, plan: UInt64) -> CloudError {
        CloudError(
            .quotaExceeded, "The plan has no room for this. Delete something, or ask for a larger plan.",
            details: ["bytes": "\(bytes)", "used_bytes": "\(used)", "plan_bytes": "\(plan)"])
    }

    // MARK: With identity

    private func row(of owner: StorageOwner, in transaction: any Transaction) throws -> Row? {
        try transaction.first(Self.select, [.text(owner.rawValue)]) {
            Row(
                revision: UInt64(clamping: $0.integer(0)), allotted: UInt64(clamping: $0.integer(1)),
                used: UInt64(clamping: $0.integer(2)))
        }
    }

    /// Tells what is used, and asks for what is wanted.
    private func settle(_ owner: StorageOwner) {
        guard !host.isClosed, asking.insert(owner).inserted else { return }
        var row: Row?
        let failure = host.runNow { [self] transaction in
            row = try self.row(of: owner, in: transaction)
            guard row == nil, demands[owner] != nil else { return }
            try transaction.execute(Self.insert, [.text(owner.rawValue)])
            row = Row(revision: 1, allotted: 0, used: 0)
        }
        guard failure == nil, let row else { return _ = asking.remove(owner) }
        var request = WireSettleAllotment()
        request.ownerID = owner.rawValue
        request.revision = row.revision
        request.allottedBytes = row.allotted
        request.wantedBytes = max(row.allotted, demands[owner]?.wanted ?? 0)
        request.usedBytes = row.used
        host.call(.identity, "SettleAllotment", body: Frame(encoding: request), causeID: nil) { [weak self] result in
            guard let self, !host.isClosed else { return }
            asking.remove(owner)
            switch result {
            case .success(let body):
                guard let reply = try? body.decode(WireSettleAllotmentReply.self) else { return demands[owner] = nil }
                settled(owner, request, reply)
            case .failure(let error) where error.code == .unknownItem:
                // The account is gone, or going.
                demands[owner] = nil
                refusals[owner] = Refusal(wanted: 0, plan: 0, until: host.loop.monotonicNow + Self.refusalMemory)
            case .failure:
                // Whoever comes back asks again; what was used is told with the next round.
                demands[owner] = nil
                tellSoon()
            }
        }
    }

    private func settled(_ owner: StorageOwner, _ request: WireSettleAllotment, _ reply: WireSettleAllotmentReply) {
        var allotted: UInt64 = 0
        var isOutdated = false
        let failure = host.runNow { [self] transaction in
            guard let row = try row(of: owner, in: transaction) else { return }
            var revision = row.revision
            allotted = row.allotted
            if reply.revision == row.revision {
                allotted = max(row.allotted, reply.allottedBytes)
            } else if reply.revision > row.revision {
                // This database is older than what identity knows of it: it was restored.
                revision = reply.revision + 1
                allotted = reply.allottedBytes
                isOutdated = true
            } else {
                // It was lowered meanwhile; that is told next.
                isOutdated = true
                return
            }
            try transaction.execute(
                Self.updateAllotment,
                [
                    .text(owner.rawValue), .integer(Int64(clamping: revision)), .integer(Int64(clamping: allotted)),
                    .integer(isOutdated ? -1 : Int64(clamping: request.usedBytes)),
                ])
        }
        guard failure == nil else { return }
        if isOutdated { return settle(owner) }
        guard let demand = demands[owner] else { return }
        if demand.wanted <= allotted {
            demands[owner] = nil
            refusals[owner] = nil
        } else if reply.recalling, host.loop.monotonicNow - demand.since < Self.recallPatience {
            host.loop.schedule(after: Self.recallPause) { [weak self] in self?.settle(owner) }
        } else {
            demands[owner] = nil
            tellSoon()
            refusals[owner] = Refusal(
                wanted: demand.wanted, plan: reply.planBytes, until: host.loop.monotonicNow + Self.refusalMemory)
        }
    }

    /// Gives back what is held and not used. Called when identity asks for it.
    func recall(_ owner: StorageOwner) {
        var lowered = false
        let failure = host.runNow { [self] transaction in
            guard let row = try row(of: owner, in: transaction), row.allotted > row.used else { return }
            try transaction.execute(
                Self.updateAllotment,
                [
                    .text(owner.rawValue), .integer(Int64(clamping: row.revision + 1)),
                    .integer(Int64(clamping: row.used)), .integer(-1),
                ])
            lowered = true
        }
        refusals[owner] = nil
        guard lowered, failure == nil else { return }
        settle(owner)
        // In case that it is being asked about already.
        tellSoon()
    }

    /// Forgets an owner that exists no more.
    func remove(_ owner: StorageOwner, in transaction: any Transaction) throws {
        demands[owner] = nil
        refusals[owner] = nil
        try transaction.execute(Self.deleteOwner, [.text(owner.rawValue)])
        try transaction.execute(Self.deleteUsage, [.text(owner.rawValue)])
    }

    /// Identity was restored from a backup: everything is told anew.
    func tellAll(in transaction: any Transaction) throws {
        for owner in try transaction.all(Self.selectOwners, [], { StorageOwner($0.text(0)) }) {
            guard let row = try row(of: owner, in: transaction) else { continue }
            try transaction.execute(
                Self.updateAllotment,
                [
                    .text(owner.rawValue), .integer(Int64(clamping: row.revision)),
                    .integer(Int64(clamping: row.allotted)), .integer(-1),
                ])
        }
        tellSoon()
    }

    // MARK: Telling what is used

    private func tellSoon() {
        guard !isTelling else { return }
        isTelling = true
        host.loop.schedule(after: Self.tellInterval) { [weak self] in self?.tell() }
    }

    private func tell() {
        isTelling = false
        guard !host.isClosed else { return }
        let now = host.loop.monotonicNow
        refusals = refusals.filter { $0.value.until > now }
        var untold: [StorageOwner] = []
        let failure = host.runNow {
            untold = try $0.all(Self.selectUntold, [.integer(Int64(Self.tellMax))]) { StorageOwner($0.text(0)) }
        }
        for owner in untold { settle(owner) }
        if failure != nil || !untold.isEmpty { tellSoon() }
    }
}
