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
    /// Bytes of items in one reply after which no further scope is begun.
    static let replyBytesMax = 1 << 20
    /// Bytes of one scope's items; a scope with more changes is sent without
    /// them, and its follower reads it by other means.
    static let scopeBytesMax = 2 << 20

    static func register(on router: inout Router, of service: ServiceName, itemsIncluded: Bool) {
        router.read(WireReadPositions.self, access: .service) { _, _, transaction in
            var reply = WireReadPositionsReply()
            for partition in 0..<partitionCount {
                let token = try transaction.position(ofPartition: partition)
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
                let token = try transaction.head(ScopeName(account: account, name: name)).token
                reply.heads.append(WireChangeToken(token.sequence == 0 ? .zero : token))
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
        // A reader from the start may name any epoch; another one must be of this epoch, and not from its future.
        if after.sequence > 0, after.epoch != position.epoch || after.sequence > position.sequence {
            throw expired
        }
        var reply = WireReadEventsReply()
        reply.position = WireChangeToken(position)
        var previous = after.sequence
        var bytes = 0
        let scopes = try transaction.scopes(inPartition: partition, after: after.sequence, limit: scopesMax)
        for (scope, head) in scopes {
            if bytes >= replyBytesMax { break }
            var event = WireEvent()
            event.service = service.rawValue
            event.partition = request.partition
            event.position = WireChangeToken(head.token)
            event.previousSequence = previous
            event.accountID = scope.account.rawValue
            event.notification.service = service.rawValue
            event.notification.scope = scope.name
            event.notification.token = WireChangeToken(head.token)
            // Several changes in one: whoever is behind the token has missed some of them.
            event.notification.previousSequence = head.token.sequence
            if itemsIncluded {
                // Deletions below the floor are not in the feed any more.
                if after.sequence > 0, after.sequence < head.floor { throw expired }
                let changes = try changes(of: scope, after: after.sequence, in: transaction)
                event.notification.changes = changes.list
                bytes += changes.bytes
            }
            previous = head.token.sequence
            reply.events.append(event)
        }
        reply.more = reply.events.count < scopes.count || scopes.count == scopesMax
        return reply
    }

    private static func changes(
        of scope: ScopeName, after sequence: UInt64, in transaction: any HandlerTransaction
    ) throws -> (list: [WireChange], bytes: Int) {
        var list: [WireChange] = []
        var bytes = 0
        try transaction.items(scope, after: sequence) { item in
            var change = WireChange()
            change.item = item.name
            change.deleted = item.deleted
            change.body = Data(item.body)
            bytes += item.name.utf8.count + item.body.count + 16
            list.append(change)
            return bytes <= scopeBytesMax
        }
        return bytes <= scopeBytesMax ? (list, bytes) : ([], 0)
    }

    private static let expired = CloudError(
        .changeTokenExpired, "The token is from another history, or deletions after it are forgotten. Read from 0.")
}
