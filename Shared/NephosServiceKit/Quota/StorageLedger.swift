internal import NephosBus
public import NephosCore
public import NephosStorage
internal import NephosWire

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

    /// What is asked for, or was refused. In memory: it is asked for again.
    private struct Demand {
        var wanted: UInt64
        var since: Duration
    }

    private struct Refusal {
        var wanted: UInt64
        /// Nil: the owner is gone, or going.
        var plan: UInt64?
        var until: Duration
    }

    unowned let host: ServiceHost
    private var demands: [Owner: Demand] = [:]
    private var refusals: [Owner: Refusal] = [:]
    /// Asked about now; one question at a time for each owner.
    private var asking: Set<Owner> = []
    private var isTelling = false

    init(host: ServiceHost) { self.host = host }

    func start() { tell() }

    // MARK: What handlers do

    /// Counts bytes that are about to be stored.
    ///
    /// - Parameter room: On what they count.
    /// - Throws: ``CloudError`` `.quotaExceeded` when the plan, or the other room, has none for
    ///   them; `.serviceBusy` while room is being asked for. Nothing is counted then.
    public func charge(
        _ bytes: UInt64, to owner: Owner, on room: StorageRoom = .plan, app: AppID, device: DeviceID,
        in transaction: any HandlerTransaction
    ) throws {
        guard bytes > 0 else { return }
        guard room.isPlan else { return try charge(bytes, to: owner, beside: room, in: transaction) }
        let known = try LedgerStore.find(owner, in: transaction)
        switch RoomRule.charge(bytes, to: known) {
        case .fits: break
        case .missing(let total): throw missing(total, bytes, used: known?.used ?? 0, of: owner)
        case .impossible: throw Self.exceeded(bytes, used: known?.used ?? 0, plan: known?.plan)
        }
        try LedgerStore.addUsed(Int64(bytes), of: owner, app: app, device: device, in: transaction)
        tellSoon()
    }

    /// Counts bytes that are removed. Never refused.
    public func release(
        _ bytes: UInt64, of owner: Owner, on room: StorageRoom = .plan, app: AppID, device: DeviceID,
        in transaction: any HandlerTransaction
    ) throws {
        guard bytes > 0 else { return }
        guard room.isPlan else { return try release(bytes, of: owner, beside: room, in: transaction) }
        guard let known = try LedgerStore.find(owner, in: transaction) else { return }
        try LedgerStore.addUsed(
            -Int64(clamping: min(bytes, known.used)), of: owner, app: app, device: device, in: transaction)
        refusals[owner] = nil
        tellSoon()
    }

    /// The owner's plan in bytes, as identity said when it was asked last; nil: it is not known.
    public func plan(of owner: Owner, in transaction: any Transaction) throws -> UInt64? {
        try LedgerStore.find(owner, in: transaction)?.plan
    }

    /// What is stored for the owner, the most first.
    public func usage(of owner: Owner, in transaction: any Transaction) throws -> [Usage] {
        try LedgerStore.usage(of: owner, in: transaction)
    }

    private func missing(_ total: UInt64, _ bytes: UInt64, used: UInt64, of owner: Owner) -> CloudError {
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

    /// - Parameter plan: Nil: it is not known, and not told as one of nothing.
    private static func exceeded(_ bytes: UInt64, used: UInt64, plan: UInt64?) -> CloudError {
        var error = CloudError(
            .quotaExceeded,
            plan == 0
                ? "The plan stores nothing. Ask for a larger plan."
                : "The plan has no room for this. Delete something, also from the trash, or ask for a larger plan.",
            details: ["bytes": "\(bytes)", "used_bytes": "\(used)"])
        if let plan { error.details["plan_bytes"] = "\(plan)" }
        return error
    }

    // MARK: With identity

    /// Tells what is used, and asks for what is wanted.
    private func settle(_ owner: Owner) {
        guard !host.isClosed, asking.insert(owner).inserted else { return }
        host.run { [self] transaction -> StoredAllotment? in
            let known = try LedgerStore.find(owner, in: transaction)
            guard demands[owner] != nil else { return known }
            let none = StoredAllotment.none(at: now)
            if known == nil { try LedgerStore.add(none, of: owner, in: transaction) }
            // Until there is an answer: identity may have granted room of which nobody here has come to know.
            try LedgerStore.setAllotment(known ?? none, told: nil, of: owner, in: transaction)
            return known ?? none
        } then: { [weak self] result in
            guard let self, !host.isClosed else { return }
            guard case .success(let known?) = result else { return _ = asking.remove(owner) }
            ask(owner, known)
        }
    }

    private func ask(_ owner: Owner, _ known: StoredAllotment) {
        var request = WireSettleAllotment()
        request.ownerID = owner.rawValue
        request.revision = known.revision
        request.allottedBytes = known.allotted
        request.wantedBytes = max(known.allotted, demands[owner]?.wanted ?? 0)
        request.usedBytes = known.used
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
                refusals[owner] = Refusal(wanted: 0, plan: nil, until: host.loop.monotonicNow + Self.refusalMemory)
                forget(owner)
            case .failure:
                // Whoever comes back asks again; what was used is told with the next round.
                demands[owner] = nil
                tellSoon()
            }
        }
    }

    /// Identity has nobody of that name to be told of.
    private func forget(_ owner: Owner) {
        host.run { transaction in
            guard let known = try LedgerStore.find(owner, in: transaction) else { return }
            try LedgerStore.setAllotment(known, told: known.used, of: owner, in: transaction)
        } then: { _ in
        }
    }

    private func settled(_ owner: Owner, _ request: WireSettleAllotment, _ reply: WireSettleAllotmentReply) {
        host.run { transaction -> (allotted: UInt64, isOutdated: Bool) in
            guard let known = try LedgerStore.find(owner, in: transaction) else { return (0, false) }
            switch RoomRule.settle(known, revision: reply.revision, allotted: reply.allottedBytes, at: self.now) {
            case .settled(var settled):
                settled.plan = reply.planBytes
                try LedgerStore.setAllotment(settled, told: request.usedBytes, of: owner, in: transaction)
                return (settled.allotted, false)
            case .restored(let restored):
                try LedgerStore.setAllotment(restored, told: nil, of: owner, in: transaction)
                return (known.allotted, true)
            case .overtaken:
                return (known.allotted, true)
            }
        } then: { [weak self] result in
            guard let self, !host.isClosed, case .success(let (allotted, isOutdated)) = result else { return }
            if isOutdated { return settle(owner) }
            meet(owner, allotted, asked: request.wantedBytes, reply)
        }
    }

    /// Whether what was wanted is there now.
    ///
    /// - Parameter asked: What identity was asked for.
    private func meet(_ owner: Owner, _ allotted: UInt64, asked: UInt64, _ reply: WireSettleAllotmentReply) {
        guard let demand = demands[owner] else { return }
        if demand.wanted <= allotted {
            demands[owner] = nil
            refusals[owner] = nil
        } else if demand.wanted > asked {
            // It was wanted while the question was on its way, which perhaps told only what is used.
            settle(owner)
        } else if reply.recalling, host.loop.monotonicNow - demand.since < Self.recallPatience {
            host.loop.schedule(after: Self.recallPause) { [weak self] in self?.settle(owner) }
        } else {
            demands[owner] = nil
            tellSoon()
            refusals[owner] = Refusal(
                wanted: demand.wanted, plan: reply.planBytes, until: host.loop.monotonicNow + Self.refusalMemory)
        }
    }

    /// Milliseconds.
    private var now: UInt64 { UInt64(clamping: host.loop.wallClock.now.milliseconds) }

    /// Gives back what is held and not used, in the transaction that notes that identity has asked for it: it asks once,
    /// and with what is held more could be stored than the plan has.
    func giveBack(_ owner: Owner, in transaction: any HandlerTransaction) throws {
        guard let known = try LedgerStore.find(owner, in: transaction) else { return }
        try LedgerStore.setAllotment(RoomRule.recall(known, at: now), told: nil, of: owner, in: transaction)
    }

    /// What was given back is stored.
    func hasGivenBack(_ owner: Owner) {
        refusals[owner] = nil
        settle(owner)
        // In case that it is being asked about already.
        tellSoon()
    }

    /// Forgets an owner that exists no more.
    func remove(_ owner: Owner, in transaction: any HandlerTransaction) throws {
        demands[owner] = nil
        refusals[owner] = nil
        try LedgerStore.remove(owner, in: transaction)
    }

    /// Identity was restored from a backup: everything is told anew.
    func tellAll(in transaction: any Transaction) throws {
        for owner in try LedgerStore.owners(in: transaction) {
            guard let known = try LedgerStore.find(owner, in: transaction) else { continue }
            try LedgerStore.setAllotment(known, told: nil, of: owner, in: transaction)
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
        host.run {
            try LedgerStore.untold(limit: Self.tellMax, in: $0)
        } then: { [weak self] result in
            guard let self, !host.isClosed else { return }
            let untold = (try? result.get()) ?? []
            for owner in untold { settle(owner) }
            if !result.isSuccess || !untold.isEmpty { tellSoon() }
        }
    }
}
