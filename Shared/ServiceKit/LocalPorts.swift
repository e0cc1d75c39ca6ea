private import Core
private import Foundation

/// Which addresses of this machine a service could listen at.
public enum LocalPorts {
    /// Whether `tcp://ADDRESS:PORT` can be bound now. An address that is no IPv4
    /// number is left for the service to judge.
    public static func isFree(_ endpoint: String) -> Bool {
        let parts = endpoint.replacing("tcp://", with: "").split(separator: ":")
        guard parts.count == 2, let port = UInt16(parts[1]) else { return true }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port.bigEndian)
        guard inet_pton(AF_INET, String(parts[0]), &address.sin_addr) == 1 else { return true }
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        defer { close(descriptor) }
        // As libzmq does: connections that linger from before are no obstacle.
        var yes: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0 || errno != EADDRINUSE
            }
        }
    }

    /// The first of a deployment's neighbouring ports on the loopback address
    /// that nobody listens at, or nil when there are none from `start` on.
    public static func firstFree(from start: Int) -> Int? {
        stride(from: start, to: 60_000, by: Deployment.portCount).first { first in
            (first..<first + Deployment.portCount).allSatisfy { isFree("tcp://127.0.0.1:\($0)") }
        }
    }
}
