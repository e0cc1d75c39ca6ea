import Foundation
import NephosCore

/// A scope as this device keeps it: for whom, of which service, and which.
struct LocalScope: Hashable {
    /// Nil: what was written while nobody was signed in.
    var account: AccountID?
    var service: ServiceName
    /// Whose the scope is, if not the account's: another's, or an app's.
    var owner: Owner?
    /// Within what its owner has.
    var path: String
    /// What the home's tables call it where that is not its path: what it is to a person stays the same also where the
    /// service has it under another one.
    var key: String?

    /// As its service knows it; nil: nobody is signed in.
    var scopeName: ScopeName? { (owner ?? account.map { Owner($0) }).map { ScopeName($0, ItemName(path)) } }

    /// As the home's tables have it: no path begins with `@`.
    var name: String { owner.map { "@\($0)/\(key ?? path)" } ?? key ?? path }
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
