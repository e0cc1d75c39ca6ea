internal import NephosBus
public import NephosCore
internal import NephosStorage
internal import NephosWire

/// `ReadChanges`: pages of a scope, for devices and services, and of a
/// partition, for services.
struct ReadChanges {
    /// What is read on the loop; a page of more is read beside it.
    static let onLoop = FeedBounds(items: 32, bytes: 32 << 10, admitsOneLarger: false)
    /// Scopes in one page of a partition.
    static let scopesMax = 1024
    /// What a page may cost, in calls: 1 MiB and 1024 rows, and a full store is not much more.
    static let reserves = 320

    /// A page of a scope: all that it rests on.
    struct Plan: Sendable {
        var query: FeedQuery
        var bounds: FeedBounds
        var presenter: any ScopePresenter
    }

    let service: any CloudService
    /// Told on the loop of what a page has shown to be damaged.
    let found: (ScopeDamage, ScopeName) -> Void

    func register(on router: inout Router) {
        router.bulk(
            WireReadChanges.self, access: .reader, reserves: Self.reserves, begin: begin,
            read: { try Reply($0, from: $1) }, finish: finish)
    }

    private func begin(
        _ request: WireReadChanges, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<Plan> {
        let scope: ItemName
        switch request.source {
        case .scope(let name): scope = ItemName(name)
        case .partition(let number):
            guard context.caller == nil else {
                throw CloudError(.permissionFailure, "Only services of this deployment may read partitions.")
            }
            return .done(try partition(Int(number), request, transaction))
        case nil:
            throw CloudError(.invalidArguments, "Name a scope or a partition.", details: ["argument": "source"])
        }
        let (name, presenter) = try source(scope, request, context, transaction)
        var query = FeedQuery(name, after: ChangeToken(request.after), held: ChangeToken(request.held))
        query.epochs = request.epochs.map { ChangeToken($0) }
        if request.hasPlace {
            query.place = try presenter.placeSeal.map { try $0.open(request.place) } ?? FeedPlace(request.place)
        }
        // What the reader holds was lost, and under the present epoch it would take that for deleted.
        let standing = try transaction.judge(query.known, in: name.partition)
        if query.after.sequence == 0, case .lost(_, isNews: true) = standing { throw CloudError.oldCopy }
        let bounds = FeedBounds.page.within(items: request.itemsMax, bytes: request.bytesMax)
        let plan = Plan(query: query, bounds: bounds, presenter: presenter)
        // What a page of everything will be its head tells; and of a scope with parts that are not for everybody it tells
        // of those.
        let head = try transaction.head(name)
        let isLarge =
            presenter.placeSeal != nil || head.liveCount > Self.onLoop.items || head.liveBytes > Self.onLoop.bytes
        let asksForLittle = bounds.items <= Self.onLoop.items && bounds.bytes <= Self.onLoop.bytes
        guard asksForLittle || query.after.sequence > 0 || query.place != nil || !isLarge else { return .read(plan) }
        var small = plan
        small.bounds = Self.onLoop.within(items: UInt32(clamping: bounds.items), bytes: UInt32(clamping: bounds.bytes))
        let reply = try Reply(small, from: transaction)
        guard reply.isLast || asksForLittle && reply.makesProgress else { return .read(plan) }
        return .done(try finish(reply))
    }

    private func source(
        _ scope: ItemName, _ request: WireReadChanges, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> (ScopeName, any ScopePresenter) {
        if let caller = context.caller {
            let name = ScopeName(request.owner.isEmpty ? Owner(caller.account) : Owner(request.owner), scope)
            guard !caller.isPublic || name.owner.isApp else {
                throw CloudError(.missingEntitlement, "Without an account there is no such scope.")
            }
            return (name, try service.presenter(of: name, for: caller, in: transaction))
        }
        guard service.eventsCarryItems else {
            throw CloudError(.permissionFailure, "What is in this service's scopes is for their owners alone.")
        }
        return (ScopeName(Owner(request.owner), scope), StoredItems())
    }

    private func finish(_ reply: Reply) throws -> Frame {
        if !reply.damage.isNone { found(reply.damage, reply.scope) }
        return reply.encoded()
    }

    /// A page of a partition: the scopes that have changed, in the order of their heads.
    private func partition(
        _ partition: Int, _ request: WireReadChanges, _ transaction: any HandlerTransaction
    ) throws -> Frame {
        guard partition < partitionCount else {
            throw CloudError(
                .invalidArguments, "There is no such partition.", details: ["partition_count": "\(partitionCount)"])
        }
        let after = ChangeToken(request.after)
        let head = try transaction.position(ofPartition: partition)
        let start = request.hasPlace ? ChangeToken(request.place.start) : after.sequence > 0 ? after : head
        let read = request.hasPlace ? ChangeToken(request.place.token) : after
        for token in [after, start, read] where token.sequence > 0 {
            if case .lost = try transaction.judge(token, in: partition) { throw Self.expired }
            guard token.epoch == head.epoch else { throw Self.expired }
        }
        guard max(read.sequence, after.sequence) <= head.sequence else { throw Self.expired }
        let limit = FeedBounds(items: Self.scopesMax, bytes: .max).within(items: request.itemsMax, bytes: 0).items
        let scopes = try transaction.scopes(inPartition: partition, after: read.sequence, limit: limit)
        var writer = FieldWriter(reserving: 128 * scopes.count + 64)
        writer.token(1, head)
        writer.flag(2, after.sequence == 0)
        for (scope, head) in scopes {
            writer.message(3) { change in
                change.text(1, scope.description)
                change.message(3) { body in
                    body.text(1, service.name.rawValue)
                    body.text(2, scope.path.rawValue)
                    body.token(3, head.token)
                    body.mark(4, of: head.digest)
                    body.text(6, scope.owner.rawValue)
                }
                change.number(4, head.token.sequence)
            }
        }
        if scopes.count == limit, let last = scopes.last?.1.token, last.sequence < head.sequence {
            writer.place(4, FeedPlace(start: start, token: last, name: ""))
        }
        return Frame(writer.take())
    }

    private static let expired = CloudError(.changeTokenExpired, "The token is from another history. Read from 0.")

    /// A page, as it is put together.
    struct Reply: Sendable {
        private(set) var damage = ScopeDamage()
        var scope: ScopeName { query.scope }
        /// With it the reader has the whole state.
        var isLast: Bool { page.isLast }
        var makesProgress: Bool { page.next != nil }
        /// Items in quarantine that a listing names: not everybody who reads a scope may know of all (a public database).
        private static let quarantinedMax = 1000
        private let query: FeedQuery
        private let digestKey: [UInt8]
        private let page: FeedPage
        private let info: [UInt8]
        /// Where the next page begins, if it is not for everybody to read.
        private let sealedPlace: [UInt8]
        private var changes = FieldWriter()
        /// Of a listing: what is in no page because it does not open.
        private let quarantined: [ItemName]
        private var moreQuarantined = false

        init(_ plan: Plan, from feed: any FeedReader) throws {
            query = plan.query
            digestKey = plan.presenter.digestKey
            let isListing = query.after.sequence == 0
            var changes = FieldWriter()
            var damage = ScopeDamage()
            var quarantined: [ItemName] = []
            var digest = query.place?.digest ?? .empty
            var page = try feed.page(query, within: plan.bounds) { item in
                var presented = PresentedItem()
                let start = changes.count
                try changes.message(3) { change in
                    change.text(1, item.name.rawValue)
                    change.flag(2, item.deleted || item.showing == .absence)
                    try change.message(3) {
                        if item.showing == .item { presented = try plan.presenter.write(item, to: &$0) }
                    }
                    change.number(4, item.sequence)
                }
                guard !presented.isUnreadable else {
                    // It is about to go to the quarantine, and for its readers it is not there.
                    changes.drop(after: start)
                    if isListing { quarantined.append(item.name) }
                    return damage.items.append(item)
                }
                guard isListing, !item.deleted, item.showing == .item else { return }
                digest.add(item.digest)
                guard let made = presented.digest, made != item.digest else { return }
                var share = item
                (share.digest, share.body) = (made, [])
                damage.shares.append(share)
            }
            page.next?.digest = isListing ? digest : .empty
            if isListing, page.isLast {
                let isTold = plan.presenter.placeSeal == nil
                let names = try QuarantinedItems.names(
                    in: query.scope, limit: isTold ? Self.quarantinedMax + 1 : 1, feed)
                moreQuarantined = isTold ? names.count > Self.quarantinedMax : !names.isEmpty
                if isTold { quarantined += names.prefix(Self.quarantinedMax) }
            }
            // Of a state that was read without a write between the pages its digest is known too.
            let isWhole = isListing && page.isLast && page.isUnmoved
            damage.isOutOfStep = !damage.shares.isEmpty || isWhole && digest != page.head.digest
            self.page = page
            info = try plan.presenter.info(page.head)
            sealedPlace = try page.next.flatMap { try plan.presenter.placeSeal?.seal($0) } ?? []
            self.changes = changes
            self.damage = damage
            self.quarantined = quarantined
        }

        func encoded() -> Frame {
            var writer = FieldWriter(reserving: changes.count + info.count + 256)
            // A token of the partition can be ahead of the scope's own head; a reader never goes back. One that has
            // nothing begins here, whatever epoch it has heard of.
            writer.token(1, page.isListing ? page.head.token : max(query.after, page.head.token))
            writer.flag(2, page.isListing)
            writer.append(changes)
            if let next = page.next { writer.place(4, next, sealed: sealedPlace) }
            writer.data(5, page.head.digest.bytes)
            writer.data(6, digestKey)
            writer.number(7, page.commonEnd)
            writer.data(8, info)
            for epoch in page.epochs { writer.token(9, epoch) }
            for name in quarantined { writer.text(10, name.rawValue) }
            writer.flag(11, moreQuarantined)
            return Frame(taking: &writer)
        }
    }
}

extension CloudError {
    /// A new epoch begins as soon as the present group is done.
    public static let oldCopy = CloudError(
        .serviceBusy, "The service's database is an old copy. Come back in a moment.", retryAfter: .milliseconds(10))
}

extension FeedBounds {
    /// The smaller of these and what a reader asks for; 0: it does not say.
    func within(items: UInt32, bytes: UInt32) -> FeedBounds {
        FeedBounds(
            items: items == 0 ? self.items : min(self.items, Int(items)),
            bytes: bytes == 0 ? self.bytes : min(self.bytes, Int(bytes)), admitsOneLarger: admitsOneLarger)
    }
}

extension FeedPlace {
    init(_ wire: WireChangesPlace) {
        self.init(start: ChangeToken(wire.start), token: ChangeToken(wire.token), name: ItemName(wire.item))
        digest = SetDigest(bytes: wire.digest) ?? .empty
    }
}

extension FieldWriter {
    fileprivate mutating func place(_ field: UInt8, _ place: FeedPlace, sealed: [UInt8] = []) {
        message(field) {
            $0.token(1, place.start)
            $0.token(2, place.token)
            guard sealed.isEmpty else { return $0.data(4, sealed) }
            $0.text(3, place.name.rawValue)
            $0.digest(5, place.digest)
        }
    }
}
