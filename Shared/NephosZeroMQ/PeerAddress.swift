internal import CNephosZeroMQ
internal import Foundation

/// Where a connection comes from, as far as it tells one peer from another.
enum PeerAddress: Hashable {
    case version4(in_addr_t)
    /// The first half of the address: whoever has one has all that begin alike.
    case version6(UInt64)

    /// Nil: it is no connection of TCP, or over.
    init?(of descriptor: Int32) {
        var address = sockaddr_storage()
        var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let result = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getpeername(descriptor, $0, &size) }
        }
        guard result == 0 else { return nil }
        self.init(address)
    }

    init?(_ address: sockaddr_storage) {
        let family = Int32(address.ss_family)
        let address = withUnsafeBytes(of: address) { bytes -> PeerAddress? in
            switch family {
            case AF_INET: .version4(bytes.loadUnaligned(as: sockaddr_in.self).sin_addr.s_addr)
            case AF_INET6: PeerAddress(version6: bytes.loadUnaligned(as: sockaddr_in6.self).sin6_addr)
            default: nil
            }
        }
        guard let address else { return nil }
        self = address
    }

    /// As a peer of IP version 4 is told of to a socket that is bound for both.
    private static let mappedPrefix: [UInt8] = Array(repeating: 0, count: 10) + [0xff, 0xff]

    private init(version6 address: in6_addr) {
        self = withUnsafeBytes(of: address) {
            $0.starts(with: Self.mappedPrefix)
                ? .version4($0.loadUnaligned(fromByteOffset: Self.mappedPrefix.count, as: in_addr_t.self))
                : .version6($0.loadUnaligned(as: UInt64.self))
        }
    }
}
