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
    /// When the copy last was the server's, by this device's clock; 0: never.
    var fetched = Timestamp(milliseconds: 0)
    /// What its model keeps of what the service says of the scope besides.
    var info = Data()
    /// The epochs that the copy has come to, the present one last, each with how far its history is that of the one before:
    /// a service that comes back from a copy knows nothing of those that came after it, nor where they had parted.
    private(set) var epochs: [ChangeToken] = []

    private static let epochsMax = 16

    /// A first reading knows of the epochs that came before.
    ///
    /// - Parameter epochs: As the service has told them.
    mutating func begin(after epochs: [ChangeToken]) {
        self.epochs = []
        for epoch in epochs where epoch.epoch > 0 { come(to: epoch.epoch, from: epoch.sequence) }
    }

    /// - Parameter start: How far its history is the same as the one that the copy was of.
    mutating func come(to epoch: UInt64, from start: UInt64) {
        guard epoch != epochs.last?.epoch else { return }
        epochs.append(ChangeToken(epoch: epoch, sequence: start))
        while epochs.count > Self.epochsMax {
            let first = epochs.removeFirst()
            epochs[0].sequence = min(epochs[0].sequence, first.sequence)
        }
    }
}

extension ScopeState {
    /// ``epochs`` as the home has them: 16 bytes each.
    var epochBytes: Data {
        get {
            Data(
                epochs.flatMap { [$0.epoch, $0.sequence] }.flatMap { withUnsafeBytes(of: $0.littleEndian, Array.init) })
        }
        set {
            let bytes = [UInt8](newValue)
            func number(_ index: Int) -> UInt64 {
                bytes[index..<(index + 8)].reversed().reduce(0) { $0 << 8 | UInt64($1) }
            }
            epochs = stride(from: 0, to: bytes.count / 16 * 16, by: 16).map {
                ChangeToken(epoch: number($0), sequence: number($0 + 8))
            }
        }
    }
}
