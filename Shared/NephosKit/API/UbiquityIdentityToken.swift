/// Stands for the account that is signed in, and says nothing of it.
///
/// Equal for the same account of the same deployment, on whichever device;
/// another for another. Keep it (it is `Codable`), and compare it at the next
/// start: if it is another one, somebody else is signed in.
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
