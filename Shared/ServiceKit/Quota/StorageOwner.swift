public import Core

/// On whose plan something counts: an account's, or for a public database its app's.
public struct StorageOwner: Identifier {
    private static let appPrefix = "app/"

    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    public init(_ account: AccountID) { self.init(rawValue: account.rawValue) }
    public init(_ app: AppID) { self.init(rawValue: Self.appPrefix + app.rawValue) }

    /// The account, unless it is an app.
    public var account: AccountID? { rawValue.hasPrefix(Self.appPrefix) ? nil : AccountID(rawValue) }
    public var app: AppID? {
        rawValue.hasPrefix(Self.appPrefix) ? AppID(String(rawValue.dropFirst(Self.appPrefix.count))) : nil
    }
}
