package import NephosCore

/// A key-value store as this device keeps it: whose, and which.
package struct StoreScope: Hashable, Sendable {
    /// Nil: what was written while nobody was signed in.
    package var account: AccountID?
    package var store: StoreID

    package init(account: AccountID?, store: StoreID) {
        self.account = account
        self.store = store
    }

    /// The area of an app's content written while signed out. An app's store id
    /// is only known from the server, so the app's own id stands in.
    package static func signedOut(app: AppID) -> StoreScope {
        StoreScope(account: nil, store: StoreID(provisionalPrefix + app.rawValue))
    }

    var local: LocalScope { LocalScope(account: account, service: .keyValue, path: store.rawValue) }

    private static let provisionalPrefix = "app:"

    /// The app whose writes wait under its own name, since the server has not told its store.
    static func provisionalApp(of store: String) -> String? {
        store.hasPrefix(provisionalPrefix) ? String(store.dropFirst(provisionalPrefix.count)) : nil
    }
}

/// A write that waits for the server.
struct PendingOperation {
    var operation: OutboxOperation
    /// The keys' new states; their sequences are 0.
    var writes: [KeyValueItem]
}
