internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// Takes in what identity says: stores it, heeds it at the gate, and hands it
/// to whom it concerns: the ledger, the closing of accounts, the service.
final class DirectoryKeeper {
    private unowned let host: ServiceHost
    private let gate: Gate

    init(_ host: ServiceHost, _ gate: Gate) {
        self.host = host
        self.gate = gate
    }

    /// What is stored; identity knows itself what it has said.
    static func stored(
        in transaction: any FeedTransaction, of service: ServiceName, at now: Timestamp
    ) throws -> [DirectoryFact] {
        try Directory.prune(now: now, in: transaction)
        guard service == .identity else { return try Directory.stored(in: transaction) }
        var facts: [DirectoryFact] = []
        try transaction.items(directoryScope, after: 0) { item in
            if let fact = DirectoryFact(item) { facts.append(fact) }
            return true
        }
        return facts
    }

    /// Notes what identity has said, in the transaction that also moves the cursor.
    func store(
        _ fact: DirectoryFact, in item: FeedItem, at now: Timestamp, _ transaction: any HandlerTransaction
    ) throws {
        try Directory.store(item, fact, at: now, in: transaction)
        switch fact {
        case .account(let account, .closed, _): try host.closeAccount(account, in: transaction)
        case .recall(let owner): try host.storage.giveBack(Owner(owner), in: transaction)
        default: break
        }
    }

    /// Heeds what is known from before the start.
    func recall(_ facts: [DirectoryFact]) { for fact in facts { gate.verifier.learn(fact) } }

    /// Heeds what identity has said, now that it is stored.
    func learn(_ facts: [DirectoryFact]) {
        for fact in facts {
            gate.verifier.learn(fact)
            if case .recall(let owner) = fact { host.storage.hasGivenBack(Owner(owner)) }
            host.service.learned(fact)
        }
    }

    /// Identity follows nobody: what it publishes of its directory it heeds itself.
    func learnOwn(_ events: [OutgoingEvent]) {
        for event in events where event.scope == directoryScope {
            guard let notification = try? ServiceEvent.Notification(decoding: event.notification),
                let items = try? Directory.items(in: notification)
            else { continue }
            learn(items.compactMap(DirectoryFact.init))
        }
    }
}
