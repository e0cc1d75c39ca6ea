private import Foundation
private import NephosCore

/// Which addresses of this machine a service could listen at.
public enum LocalPorts {
    public enum State: Sendable {
        case free
        /// Another socket is bound to it, or it may not be used.
        case taken
        /// This machine does not have the address.
        case foreign
        /// No address by its number.
        case unknown
    }

    /// What would become of a socket bound to `tcp://ADDRESS:PORT` now.
    public static func state(of endpoint: String) -> State {
        let text = endpoint.replacing("tcp://", with: "")
        guard let colon = text.lastIndex(of: ":"),
            let address = address(String(text[..<colon]), port: String(text[text.index(after: colon)...]))
        else { return .unknown }
        defer { freeaddrinfo(address) }
        let descriptor = socket(address.pointee.ai_family, Int32(SOCK_STREAM.rawValue), 0)
        guard descriptor >= 0 else { return .foreign }
        defer { close(descriptor) }
        // As libzmq does: connections that linger from before are no obstacle.
        var yes: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        guard bind(descriptor, address.pointee.ai_addr, address.pointee.ai_addrlen) != 0 else { return .free }
        return errno == EADDRNOTAVAIL ? .foreign : .taken
    }

    /// Whether `tcp://ADDRESS:PORT` can be bound now. An address that is no
    /// number is left for the service to judge.
    public static func isFree(_ endpoint: String) -> Bool { state(of: endpoint) != .taken }

    /// To be freed; nil: it is no address by its number.
    private static func address(_ host: String, port: String) -> UnsafeMutablePointer<addrinfo>? {
        var hints = addrinfo()
        hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var found: UnsafeMutablePointer<addrinfo>?
        let host = String(host.filter { $0 != "[" && $0 != "]" })
        return getaddrinfo(host, port, &hints, &found) == 0 ? found : nil
    }

    /// Whether this is one of the addresses that stand for all of a machine's, however it is spelled: `0.0.0.0`, `0`,
    /// `::`, `::0` and the like, and `*`.
    public static func isWildcard(_ host: String) -> Bool {
        if host == "*" { return true }
        guard let address = address(host, port: "0") else { return false }
        defer { freeaddrinfo(address) }
        let isZero = { (bytes: UnsafeRawBufferPointer) in bytes.allSatisfy { $0 == 0 } }
        switch address.pointee.ai_family {
        case AF_INET:
            return address.pointee.ai_addr.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
                withUnsafeBytes(of: $0.pointee.sin_addr, isZero)
            }
        case AF_INET6:
            return address.pointee.ai_addr.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) {
                withUnsafeBytes(of: $0.pointee.sin6_addr) { bytes in
                    // An IPv4 address as an IPv6 one is ten times 0, two times 255, and itself.
                    let isIPv4 = bytes[..<10].allSatisfy { $0 == 0 } && bytes[10] == 255 && bytes[11] == 255
                    return isZero(isIPv4 ? UnsafeRawBufferPointer(rebasing: bytes[12...]) : bytes)
                }
            }
        default: return false
        }
    }

    /// Whether a socket of this machine could be bound at it: an address by its number that is one of its own.
    public static func isAddress(_ host: String) -> Bool {
        switch state(of: "tcp://\(host.contains(":") ? "[\(host)]" : host):0") {
        case .free, .taken: true
        case .foreign, .unknown: false
        }
    }

    /// The first of a deployment's neighbouring ports on an address that nobody
    /// listens at, or nil when there are none from `start` on.
    public static func firstFree(from start: Int, at host: String = "127.0.0.1") -> Int? {
        let host = host.contains(":") ? "[\(host)]" : host
        return stride(from: start, to: 60_000, by: Deployment.portCount).first { first in
            (first..<first + Deployment.portCount).allSatisfy { isFree("tcp://\(host):\($0)") }
        }
    }
}
