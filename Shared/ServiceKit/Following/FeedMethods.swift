internal import Bus
internal import Core
internal import Storage
internal import Wire

private import struct Foundation.Data

/// What every service answers to those who follow it: where its feed stands,
/// and what happened after a token.
enum FeedMethods {
    /// Scopes in one reply.
    static let scopesMax = 256
    /// Bytes of items in one reply after which it ends, be it inside a scope.
    static let replyBytesMax = 1 << 20
    /// Items in one reply.
    static let itemsMax = 4096

    static func register(on router: inout Router, of service: ServiceName, itemsIncluded: Bool) {
        router.read(WireReadPositions.self, access: .service) { _, _, transaction in
            var reply = WireReadPositionsReply()
            for partition in 0..<partitionCount {
                let token = try transaction.position(ofPartition: partition)
                reply.epoch = token.epoch
                guard token.sequence > 0 else { continue }
                var position = WireReadPositionsReply.Position()
                position.partition = UInt32(partition)
                position.token = WireChangeToken(token)
                reply.positions.append(position)
            }
            return reply
        }
        router.read(WireReadHeads.self, access: .service) { request, _, transaction in
            var reply = WireReadHeadsReply()
            let account = AccountID(request.accountID)
            for name in request.scopes {
                let head = try transaction.head(ScopeName(account: account, name: ItemName(name)))
                reply.heads.append(WireChangeToken(head.token.sequence == 0 ? .zero : head.token))
                reply.digests.append(Data(head.digest.markBytes))
            }
            return reply
        }
        router.read(WireReadEvents.self, access: .service) { request, _, transaction in
            try readEvents(request, of: service, itemsIncluded: itemsIncluded, in: transaction)
        }
    }

    private static func readEvents(
        _ request: WireReadEvents, of service: ServiceName, itemsIncluded: Bool,
        in transaction: any HandlerTransaction
    ) throws -> WireReadEventsReply {
        let partition = Int(request.partition)
        guard partition < partitionCount else {
            throw CloudError(
                .invalidArguments, "There is no such partition.", details: ["partition_count": "\(partitionCount)"])
        }
        let after = ChangeToken(request.after)
        let position = try transaction.position(ofPartition: partition)
        // A reader from the start may name any epoch; another one must be of this history, and not from its future.
        if after.sequence > 0 {
            if case .lost = try transaction.judge(after, in: partition) { throw expired }
            guard after.epoch == position.epoch, after.sequence <= position.sequence else { throw expired }
        }
        var page = EventPage(service: service, partition: partition, after: after, head: position)
        if request.hasPlace { try page.goOn(from: request.place, in: transaction) }
        while !page.isFull {
            let scopes = try transaction.scopes(inPartition: partition, after: page.previous, limit: scopesMax)
            if scopes.isEmpty { break }
            for (scope, head) in scopes where !page.isFull {
                try page.add(scope, head, itemsIncluded: itemsIncluded, in: transaction)
            }
        }
        page.close()
        return page.reply
    }

    /// A reply to `ReadEvents` while it is put together.
    private struct EventPage {
        var reply = WireReadEventsReply()
        /// The head of the last scope that was read whole.
        private(set) var previous: UInt64
        var isFull: Bool {
            reply.hasPlace || bytes >= replyBytesMax || items >= itemsMax || reply.events.count >= scopesMax
        }
        private let service: ServiceName
        private let partition: Int
        private let after: ChangeToken
        private var bytes = 0
        private var items = 0

        init(service: ServiceName, partition: Int, after: ChangeToken, head: ChangeToken) {
            self.service = service
            self.partition = partition
            self.after = after
            previous = after.sequence
            reply.position = WireChangeToken(head)
        }

        /// The scope's changes, as far as there is room for them.
        mutating func add(
            _ scope: ScopeName, _ head: ScopeHead, itemsIncluded: Bool, in transaction: any HandlerTransaction
        ) throws {
            var event = event(of: scope, until: head.token)
            event.notification.digest = Data(head.digest.markBytes)
            if itemsIncluded {
                // Deletions below the floor are not in the feed any more.
                if after.sequence > 0, after.sequence < head.floor { throw expired }
                // From where the reader stands, and not from the scope before: its head may be newer than some of these.
                try transaction.items(scope, after: after.sequence) { take($0, into: &event) }
            }
            end(event, of: scope)
        }

        /// Goes on where the page before ended.
        mutating func goOn(from place: WireScopePlace, in transaction: any HandlerTransaction) throws {
            let until = ChangeToken(place.until)
            guard !place.scope.isEmpty else {
                guard until.epoch == reply.position.epoch, until.sequence <= reply.position.sequence else {
                    throw expired
                }
                previous = max(previous, until.sequence)
                return
            }
            let scope = ScopeName(account: AccountID(place.accountID), name: ItemName(place.scope))
            guard scope.partition == partition else {
                throw CloudError(
                    .invalidArguments, "The place is in another partition.", details: ["argument": "place"])
            }
            let head = try transaction.head(scope)
            guard until.epoch == reply.position.epoch, until.sequence <= reply.position.sequence,
                after.sequence == 0 || after.sequence >= head.floor
            else { throw expired }
            var event = event(of: scope, until: until)
            try transaction.items(scope, after: place.sequence, ItemName(place.item), through: until.sequence) {
                take($0, into: &event)
            }
            end(event, of: scope)
        }

        private func event(of scope: ScopeName, until: ChangeToken) -> WireEvent {
            var event = WireEvent()
            event.service = service.rawValue
            event.partition = UInt32(partition)
            event.position = WireChangeToken(until)
            event.previousSequence = previous
            event.accountID = scope.account.rawValue
            event.notification.service = service.rawValue
            event.notification.scope = scope.name.rawValue
            event.notification.token = WireChangeToken(until)
            // Several changes in one: whoever is behind the token has missed some of them.
            event.notification.previousSequence = until.sequence
            return event
        }

        /// Returns false when it has no room left for the item.
        private mutating func take(_ item: FeedItem, into event: inout WireEvent) -> Bool {
            guard bytes < replyBytesMax, items < itemsMax else {
                reply.place = WireScopePlace()
                return false
            }
            var change = WireChange()
            change.item = item.name.rawValue
            change.deleted = item.deleted
            change.body = Data(item.body)
            event.notification.changes.append(change)
            last = item.sequence
            bytes += item.name.utf8.count + item.body.count + 16
            items += 1
            return true
        }

        /// The sequence of the item that was taken last.
        private var last: UInt64 = 0

        private mutating func end(_ event: WireEvent, of scope: ScopeName) {
            reply.events.append(event)
            guard reply.hasPlace else {
                previous = event.position.sequence
                return
            }
            reply.place.accountID = scope.account.rawValue
            reply.place.scope = scope.name.rawValue
            reply.place.until = event.position
            reply.place.sequence = last
            reply.place.item = event.notification.changes.last?.item ?? ""
        }

        /// Names the place to go on from, if this is not the end.
        mutating func close() {
            guard isFull else { return }
            reply.more = true
            guard !reply.hasPlace else { return }
            reply.place.until = reply.position
            reply.place.until.sequence = previous
        }
    }

    fileprivate static let expired = CloudError(
        .changeTokenExpired, "The token is from another history, or deletions after it are forgotten. Read from 0.")
}
