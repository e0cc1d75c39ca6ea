internal import Bus
internal import Core
internal import Storage
internal import Wire

private import struct Foundation.Data

/// What every service answers to those who follow it, besides ``ReadChanges``: where its feed stands.
enum FeedMethods {
    static func register(on router: inout Router) {
        router.read(WireReadPositions.self, access: .service) { _, _, transaction in
            var reply = WireReadPositionsReply()
            reply.epoch = try transaction.position(ofPartition: 0).epoch
            reply.positions = try transaction.positions().map { partition, token in
                var position = WireReadPositionsReply.Position()
                position.partition = UInt32(partition)
                position.token = WireChangeToken(token)
                return position
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
    }
}
