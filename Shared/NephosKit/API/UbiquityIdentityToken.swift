/// An opaque token of the account that is signed in.
///
/// The token is equal on all devices of one account of one deployment, and different for every other account. Store it
/// (it is `Codable`), and compare it at the next start: a different token means that another account is signed in.
public struct UbiquityIdentityToken: Hashable, Sendable, Codable, CustomStringConvertible {
    private let opaque: String

    init(_ opaque: String) { self.opaque = opaque }

    /// A token that was kept.
    public init(from decoder: any Decoder) throws {
        opaque = try decoder.singleValueContainer().decode(String.self)
    }

    /// The token, to be kept.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(opaque)
    }

    /// A text that says nothing of the account.
    public var description: String { opaque }
}
