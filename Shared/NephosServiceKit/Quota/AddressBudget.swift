internal import Foundation
public import NephosCore

/// How often something is given to whoever asks from one address, for nothing that they have proved.
///
/// Bounded, as all budgets are: beyond ``TokenBuckets`` `keysMax` addresses those are forgotten that have asked least.
///
/// On the loop only.
public final class AddressBudget {
    private let requests: TokenBuckets<String>

    public init(capacity: Int, refillPerSecond: Int) {
        requests = TokenBuckets(BudgetConfiguration.Limit(capacity: capacity, refillPerSecond: refillPerSecond))
    }

    /// Takes one from what the place may ask for.
    ///
    /// - Parameter place: As ``place(of:)`` says.
    /// - Throws: ``CloudError`` `.requestRateLimited`.
    public func take(_ place: String, now: Duration) throws(CloudError) {
        let wait = requests.wait(place, now: now)
        guard wait <= .zero else { throw requests.exhausted("address", wait: wait).error }
        _ = requests.take(place, 1, now: now)
    }

    /// What is counted as one: an address, and of IPv6, where everybody has very many, its first 64 bits.
    public static func place(of address: String?) -> String {
        guard let address else { return "unknown" }
        var bytes = in6_addr()
        guard inet_pton(AF_INET6, address, &bytes) == 1 else { return address }
        let all = withUnsafeBytes(of: &bytes) { [UInt8]($0) }
        // One of IPv4, as a socket for both has it.
        if all.prefix(10).allSatisfy({ $0 == 0 }), all[10...11].allSatisfy({ $0 == 0xff }) {
            return all.suffix(4).map { "\($0)" }.joined(separator: ".")
        }
        return all.prefix(8).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() + "/64"
    }
}
