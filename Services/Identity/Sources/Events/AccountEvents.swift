internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

/// What the devices of an account are told by identity: the scope "account".
enum AccountEvents {
    static let storage = "storage"

    /// Tells how full the plan is, when that is another level than was told last.
    static func publishStorage(
        of account: AccountID, used: UInt64, plan: UInt64, in transaction: any HandlerTransaction
    ) throws {
        let scope = ScopeName(account, accountScopeName)
        var state = WireStorageState()
        state.planBytes = plan
        state.usedBytes = used
        state.level = LedgerRule.level(used: used, plan: plan)
        let told = try transaction.item(scope, ItemName(storage)).map { try WireStorageState(serializedBytes: $0.body) }
        guard state.level != told?.level ?? 0 || told.map({ $0.planBytes != plan }) == true else { return }
        try IdentityFeed.publish([IdentityFeed.item(storage, state)], in: scope, transaction)
    }
}
