internal import Bus
internal import Core
internal import ServiceKit
internal import Storage
internal import SwiftProtobuf
internal import Wire

private import struct Foundation.Data

/// What the devices of an account are told by identity: the scope "account".
enum AccountEvents {
    static let storage = "storage"

    /// Tells how full the plan is, when that is another level than was told last.
    static func publishStorage(
        of account: AccountID, used: UInt64, plan: UInt64, in transaction: any HandlerTransaction
    ) throws {
        let scope = ScopeName(account: account, name: accountScopeName)
        var state = WireStorageState()
        state.planBytes = plan
        state.usedBytes = used
        state.level = LedgerRule.level(used: used, plan: plan)
        let told = try transaction.item(scope, storage).map { try WireStorageState(serializedBytes: $0.body) }
        guard state.level != told?.level ?? 0 || told.map({ $0.planBytes != plan }) == true else { return }
        let body = Frame(encoding: state).bytes
        let change = try transaction.put(
            scope,
            [
                FeedItem(
                    name: storage, deleted: false, digest: SetDigest(ofItem: Array(storage.utf8) + [0] + body),
                    size: body.count, body: body)
            ])
        var notification = WireNotification()
        notification.service = ServiceName.identity.rawValue
        notification.scope = scope.name
        notification.token = WireChangeToken(change.token)
        notification.previousSequence = change.previousSequence
        var wire = WireChange()
        wire.item = storage
        wire.body = Data(body)
        notification.changes = [wire]
        transaction.publish(
            OutgoingEvent(
                account: account, partition: scope.partition, position: change.token,
                previousSequence: change.previousPartitionSequence, notification: Frame(encoding: notification)))
    }
}
