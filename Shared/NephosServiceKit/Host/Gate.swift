internal import NephosBus
internal import NephosCore
private import NephosStorage

/// Lets requests in, at every socket of a service: decodes them, learns who
/// asks and whether they may, takes what that costs from their budget, and
/// refuses ids that are too old.
///
/// On the loop only.
final class Gate {
    /// How far ahead of the server's clock an operation id may be.
    static let operationLead: Duration = .seconds(3600)

    /// Why a request is not carried out, and under which id to say so, if it had one.
    struct Refusal: Error {
        var error: CloudError
        var id: OperationID?
        var causeID: OperationID?
        var budget: Budget?
        /// Which it has asked for; nil: there is no such method.
        var method: String?
    }

    /// What becomes of something that came in.
    enum Entry {
        case request(GroupItem)
        case refused(Refusal)
        /// Nobody is told: to answer would cost more than to look.
        case ignored
    }

    /// Who the bearers of tokens are; heeds what identity has said.
    var verifier: TokenVerifier
    /// Whether the service stops, and takes no more requests.
    var isStopping = false
    /// Whether nothing waits for the loop, and nothing is being done beside it.
    var isIdle: () -> Bool = { false }
    let publishedBudgets: BudgetConfiguration
    private let budgets: RequestBudgets
    private var strangers: StrangerBudget
    private var spareTime: SpareTime
    private let servicePeers: Set<PublicKey>
    /// Notifications' keys.
    private let relays: Set<PublicKey>
    private let operatorKey: PublicKey?
    private let loop: any BusLoop
    private let counters: Counters

    /// - Throws: ``CloudError`` `.configurationInvalid` for keys in the roster that are none.
    init(roster: Roster, budgets: BudgetConfiguration, loop: any BusLoop, counters: Counters) throws(CloudError) {
        servicePeers = try roster.serviceKeys
        relays = try roster.keys(of: .notifications)
        operatorKey = PublicKey(z85: roster.operatorKey)
        verifier = try TokenVerifier(roster: roster)
        publishedBudgets = budgets
        self.budgets = RequestBudgets(budgets)
        strangers = StrangerBudget(budgets.stranger)
        spareTime = SpareTime(percent: budgets.sparePercent)
        self.loop = loop
        self.counters = counters
    }

    /// Whose connections may follow this service's events.
    ///
    /// - Parameter service: Whose. Identity's facts are for all of them; what another's events carry is its owners' and
    ///   theirs alone that they share it with, and notifications relays it to those.
    func followers(of service: any CloudService) -> Set<PublicKey> {
        guard service.eventsCarryItems else { return relays }
        return operatorKey.map { servicePeers.union([$0]) } ?? servicePeers
    }

    /// - Parameters:
    ///   - methods: Those of the socket that it came to.
    ///   - time: The server's wall clock.
    func admit(
        _ incoming: Incoming, to methods: [String: Router.Method], now: Duration, time: Timestamp
    ) -> Entry {
        let peer = incoming.peer
        do throws(StrangerBudget.Refusal) { try strangers.check(peer.publicKey, now: now) } catch {
            counters.add("requests.ignored")
            guard case .told(let told) = error, let envelope = try? RequestEnvelope(decoding: incoming.message)
            else { return .ignored }
            return .refused(Refusal(error: told, id: envelope.id))
        }
        let envelope: RequestEnvelope
        do throws(RequestEnvelope.Rejection) {
            envelope = try RequestEnvelope(decoding: incoming.message)
        } catch {
            noteStranger(peer, now)
            return .refused(Refusal(error: error.error, id: error.id))
        }
        var isKnown = false
        do throws(Refusal) {
            let item = try item(envelope, of: peer, methods, now: now, time: time, &isKnown)
            if !isKnown { noteStranger(peer, now) }
            return .request(item)
        } catch {
            if !isKnown { noteStranger(peer, now) }
            return .refused(error)
        }
    }

    /// The request as an item of a group, if its caller may make it.
    ///
    /// - Parameter isKnown: Becomes true when the caller has proved who it is.
    private func item(
        _ envelope: RequestEnvelope, of peer: Peer, _ methods: [String: Router.Method], now: Duration,
        time: Timestamp, _ isKnown: inout Bool
    ) throws(Refusal) -> GroupItem {
        var exhausted: Budget?
        var asked: Router.Method?
        do throws(CloudError) {
            guard !isStopping else { throw Self.stopping }
            // What is long is not looked up: to hash a text of megabytes takes a while.
            guard envelope.method.utf8.count <= Router.nameBytesMax, let method = methods[envelope.method],
                method.name.hasSameBytes(as: envelope.method)
            else {
                throw CloudError(.unknownMethod, "This service has no such method.")
            }
            asked = method
            guard envelope.body.count <= method.bytesMax else {
                throw CloudError(
                    .limitExceeded, "The request is too large. Split it.",
                    details: ["bytes_max": "\(method.bytesMax)", "bytes": "\(envelope.body.count)"])
            }
            let caller = try authorise(method.access, envelope, peer, time)
            isKnown = caller != nil
            // In less there is no room for so many rows that it would matter.
            let rows = envelope.body.count < 1024 ? 0 : method.rows?(envelope.body) ?? 0
            let cost = max(method.reserves, RequestCost.calls(bytes: envelope.body.count, rows: rows))
            var budget: Budget?
            var isSpare = false
            if let caller {
                do throws(RequestBudgets.Exhausted) {
                    spareTime.note(caller.account, now: now)
                    if method.mutates, let refusal = budgets.exhaustedByReplies(caller, now: now) { throw refusal }
                    if let refusal = budgets.exhausted(caller, now: now) {
                        budget = try spared(refusal, cost, now: now)
                        isSpare = true
                    } else {
                        budget = budgets.settle(caller, by: cost, now: now)
                    }
                } catch {
                    exhausted = error.budget
                    throw error.error
                }
            }
            let item = GroupItem(
                work: .request(method, body: envelope.body),
                context: RequestContext(
                    id: envelope.id, causeID: envelope.causeID, peer: peer, caller: caller, now: time),
                mutates: method.mutates, budget: budget, deadline: envelope.timeout.map { now + $0 })
            item.arrived = now
            item.charged = cost
            item.isSpare = isSpare
            item.bytes = envelope.body.count
            if isSpare { spareTime.begin(item, now: now) }
            guard method.mutates else { return item }
            item.context.fingerprint = envelope.body.withUnsafeBytes {
                RequestFingerprint(method: method.name, body: $0)
            }
            if method.idsAge { try Self.checkAge(of: envelope.id, time) }
            if method.remembersReply, !Self.isAhead(envelope.id, time) { item.principal = item.context.principal }
            return item
        } catch {
            throw Refusal(
                error: error, id: envelope.id, causeID: envelope.causeID, budget: exhausted, method: asked?.name)
        }
    }

    /// Whether the request came from a device of an account, a service, or the operator.
    func isIdentified(_ context: RequestContext) -> Bool {
        if let caller = context.caller { return !caller.isPublic }
        return context.peer.publicKey == operatorKey || servicePeers.contains(context.peer.publicKey)
    }

    private static let stopping = CloudError(
        .serviceUnavailable, "The service is stopping. Try again in a moment.", retryAfter: .milliseconds(500))

    /// Lets one in whose caller has nothing left, if there is time to spare for it.
    ///
    /// - Returns: What remains of its caller's budget.
    private func spared(
        _ refusal: RequestBudgets.Exhausted, _ cost: Int, now: Duration
    ) throws(RequestBudgets.Exhausted) -> Budget {
        guard let wait = spareTime.wait(for: cost, isIdle: isIdle(), now: now) else { throw refusal }
        guard wait > .zero else { return refusal.budget }
        // There may be some before the budget has refilled.
        var sooner = refusal
        sooner.error.retryAfter = min(refusal.error.retryAfter ?? wait, wait)
        throw sooner
    }

    /// Notes that a request has its answer.
    func noteAnswered(_ item: GroupItem) {
        if item.isSpare { spareTime.end(item, now: loop.monotonicNow) }
    }

    /// Whether the id is of a time that is too far ahead. What stands under it would never be forgotten, and all that came
    /// before would have to be looked for. A method whose ids do not age knows its repeats without a reply.
    private static func isAhead(_ id: OperationID, _ time: Timestamp) -> Bool {
        time.since(id.time) < .zero - operationLead
    }

    /// Because stored replies are forgotten.
    private static func checkAge(of id: OperationID, _ time: Timestamp) throws(CloudError) {
        guard time.since(id.time) <= Router.operationRetention, !isAhead(id, time) else {
            throw CloudError(
                .operationExpired,
                "The operation id is too old or too far ahead. Check the clock, and use a new id.",
                details: [CloudError.serverTimeDetail: "\(time.milliseconds)"])
        }
    }

    private func authorise(
        _ access: Access, _ envelope: RequestEnvelope, _ peer: Peer, _ now: Timestamp
    ) throws(CloudError) -> Caller? {
        switch access {
        case .anyone:
            return nil
        case .device, .publicReader:
            return try verify(envelope, of: peer, access, now)
        case .account, .reader:
            let hasToken = !envelope.accessToken.isEmpty || envelope.accessTokenDigest != nil
            if !hasToken, peer.publicKey == operatorKey { return nil }
            if !hasToken, access == .reader, servicePeers.contains(peer.publicKey) { return nil }
            return try verify(envelope, of: peer, access, now)
        case .operatorOnly:
            guard peer.publicKey == operatorKey else {
                throw CloudError(.permissionFailure, "Only the operator may do this. Use the operator's key.")
            }
            return nil
        case .service:
            guard servicePeers.contains(peer.publicKey) || peer.publicKey == operatorKey else {
                throw CloudError(.permissionFailure, "Only services of this deployment may do this.")
            }
            return nil
        }
    }

    private func verify(
        _ envelope: RequestEnvelope, of peer: Peer, _ access: Access, _ now: Timestamp
    ) throws(CloudError) -> Caller {
        let caller = try verifier.verify(envelope, of: peer, now: now)
        guard access.admitsPublic || !caller.isPublic else { throw Self.needsAccount }
        return caller
    }

    private static let needsAccount = CloudError(
        .permissionFailure,
        "Without an account one reads a container's public database, and does nothing else. Sign in.")

    /// A request without a good token costs something, unless a service or the operator makes it.
    private func noteStranger(_ peer: Peer, _ now: Duration) {
        guard peer.publicKey != operatorKey, !servicePeers.contains(peer.publicKey) else { return }
        strangers.take(peer.publicKey, now: now)
    }

    /// Takes from the budget what the request has cost beyond what was taken for it, or gives the rest back.
    ///
    /// - Parameter now: In the loop's time, where it is known.
    /// - Returns: What its caller's further requests of this group are refused with: nothing was
    ///   taken for what this one has cost beyond its price, and now there is nothing left.
    @discardableResult
    func charge(_ item: GroupItem, replyBytes: Int, now: Duration? = nil) -> CloudError? {
        guard let caller = item.context.caller else { return nil }
        // What was read and not sent costs as much as what was.
        let readBytes = item.costBefore.bytes + item.cost.bytes
        let cost = RequestCost.calls(
            bytes: item.bytes + max(replyBytes, readBytes), rows: item.costBefore.rows + item.cost.rows)
        let now = now ?? loop.monotonicNow
        budgets.noteStoredReplies(caller, units: item.replyUnits, now: now)
        item.replyUnits = 0
        guard cost != item.charged, !item.isSpare else { return nil }
        let hasCostMore = cost > item.charged
        item.budget = budgets.settle(caller, by: cost - item.charged, now: now)
        item.charged = cost
        guard hasCostMore, let refusal = budgets.exhausted(caller, now: now) else { return nil }
        return refusal.error
    }
}
