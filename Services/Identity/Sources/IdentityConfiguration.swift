internal import NephosCore
public import NephosServiceKit

/// Every key of the identity service: type, default, unit.
public struct IdentityConfiguration: Sendable {
    /// `identity.access_token_lifetime_seconds`. How long a lost event could leave a revoked device its access.
    public var accessTokenLifetime: Duration = .seconds(15 * 60)
    /// `identity.refresh_token_lifetime_days`. A device that stays away longer has to sign in again.
    public var refreshTokenLifetime: Duration = .seconds(90 * 86_400)
    /// `identity.scrypt_rounds`, a power of two. What new accounts' passwords are hashed with.
    var scryptCost = ScryptCost.standard

    /// The defaults.
    public init() {}

    /// The defaults, with what the configuration says instead.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for a value that cannot be; `details` name the key.
    public init(_ settings: Settings) throws {
        accessTokenLifetime = .seconds(
            try settings.integer("access_token_lifetime_seconds", default: 900, in: 10...86_400))
        refreshTokenLifetime = .seconds(
            try settings.integer("refresh_token_lifetime_days", default: 90, in: 1...3650) * 86_400)
        let rounds = try settings.integer(
            "scrypt_rounds", default: ScryptCost.standard.rounds, in: 1 << 14...1 << 18)
        guard rounds.nonzeroBitCount == 1 else { throw settings.invalid("scrypt_rounds", "It is a power of two.") }
        scryptCost.rounds = rounds
    }

    /// The defaults, with cheap passwords. For tests only: such a hash is guessed fast.
    public static var cheapPasswords: IdentityConfiguration {
        var configuration = IdentityConfiguration()
        configuration.scryptCost.rounds = 1 << 4
        return configuration
    }
}
