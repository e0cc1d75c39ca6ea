import Core
import Foundation

/// A scope as this device keeps it: whose, of which service, and which.
struct LocalScope: Hashable {
    /// Nil: what was written while nobody was signed in.
    var account: AccountID?
    var service: ServiceName
    /// Within the account.
    var name: String
}

/// How far a scope's local copy has come.
struct ScopeState {
    var head = ChangeToken.zero
    var digest = SetDigest.empty
    var digestKey: [UInt8] = []
    /// Whether the first pull has finished.
    var synced = false
    /// What its model keeps of what the service says of the scope besides.
    var info = Data()
}
