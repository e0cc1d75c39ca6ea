/// Whose something is: an account's, or an app's, as a public database is.
///
/// On whose plan it counts, with whose key it is sealed, and by whose service's rules others may see it. As text an
/// account's id, or `app/` and an app's.
public struct Owner: Identifier {
    private static let appPrefix = "app/"

    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    public init(_ account: AccountID) { self.init(rawValue: account.rawValue) }
    public init(_ app: AppID) { self.init(rawValue: Self.appPrefix + app.rawValue) }

    /// The account, unless it is an app.
    public var account: AccountID? { isApp ? nil : AccountID(rawValue) }
    public var app: AppID? { isApp ? AppID(String(rawValue.dropFirst(Self.appPrefix.count))) : nil }
    public var isApp: Bool { rawValue.beginsWithBytes(of: Self.appPrefix) }
}
