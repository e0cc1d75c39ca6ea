import NephosCore
import NephosServiceKit

/// What a roster has to be before it is written, whether a deployment is made or brought back with it.
enum RosterChecks {
    /// - Parameters:
    ///   - host: The address that its services are to listen at.
    ///   - port: The first of its ports.
    /// - Throws: ``CloudError`` `.invalidArguments` for an address that is none of this machine's, or ports that are
    ///   taken.
    static func requireUsable(_ roster: Roster, at host: String, _ port: Int) throws {
        for entry in roster.services {
            for endpoint in entry.endpoints {
                switch LocalPorts.state(of: endpoint) {
                case .free: continue
                case .foreign:
                    throw CloudError(
                        .invalidArguments, "This machine has no such address. See: ip address",
                        details: ["host": host])
                case .unknown:
                    throw CloudError(
                        .invalidArguments,
                        "--host is an address, such as 192.168.1.10 or 0.0.0.0. A name goes with --advertise.",
                        details: ["host": host])
                case .taken:
                    var details = ["address": endpoint]
                    details["free"] = LocalPorts.firstFree(from: port, at: host).map { "--port \($0)" }
                    throw CloudError(
                        .invalidArguments, "A port is taken, or needs more rights. Choose another --port.",
                        details: details)
                }
            }
        }
    }

    /// Devices are told the addresses that services listen at, where no other is advertised.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when no device could connect to what it would be told.
    static func requireReachable(_ roster: Roster) throws {
        let identity = try roster.entry(of: .identity)
        let host = try roster.connectionString().host
        guard !LocalPorts.isWildcard(host) else { throw standsForAll(host) }
        guard identity.publicRequests != nil || host != ServiceName.identity.rawValue else {
            throw CloudError(
                .invalidArguments,
                "Devices do not know hosts that are named like the services. Say with --advertise by which name or address they reach this machine.",
                details: ["host": host])
        }
    }

    static func standsForAll(_ host: String) -> CloudError {
        CloudError(
            .invalidArguments,
            "This address stands for all of this machine's, and no device can connect to it. Say with --advertise by which name or address they reach this machine.",
            details: ["host": host])
    }
}
