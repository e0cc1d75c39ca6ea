/// The names a scope is found by, within a service: whose it is, and which of theirs.
public struct ScopeName: Hashable, Sendable, CustomStringConvertible {
    public var owner: Owner
    /// A store's id, a container's, a container's and a zone's.
    public var path: ItemName

    public init(_ owner: Owner, _ path: ItemName) {
        self.owner = owner
        self.path = path
    }

    public init(_ account: AccountID, _ path: ItemName) { self.init(Owner(account), path) }

    /// As the scope is named among others.
    public var description: String { "\(owner)/\(path)" }

    /// Which of the 1024 partitions the scope lies in.
    ///
    /// All of an account's lie in one, so that one transaction can change several. An app's are placed one by one, or a
    /// public database would be one hot writer.
    public var partition: Int { owner.isApp ? Self.partition(of: description) : Self.partition(of: owner.rawValue) }

    /// FNV-1a of the name's bytes, so that every language agrees.
    private static func partition(of name: String) -> Int {
        Int(FNV1a.hash(name) % UInt64(partitionCount))
    }
}

extension Owner {
    /// The partition in which all of its scopes lie; nil: an app's lie anywhere.
    public var partition: Int? { isApp ? nil : ScopeName(self, "").partition }
}

/// The number of partitions; fixed for the life of a deployment. Partitions are what instances of a service may one day
/// divide among themselves: enough for some hundred instances.
public let partitionCount = 1024
