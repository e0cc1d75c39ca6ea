private import Foundation
internal import NIOCore
private import Synchronization

/// The connections that there are, in all and of each address.
final class ConnectionTable: Sendable {
    private struct State {
        var channels: [ObjectIdentifier: any Channel] = [:]
        var addresses: [Address: Int] = [:]
        var isStopped = false
    }

    private let limits: HTTPLimits
    private let state = Mutex(State())

    init(_ limits: HTTPLimits) { self.limits = limits }

    var count: Int { state.withLock { $0.channels.count } }

    /// - Returns: False: it has to be closed.
    func enter(_ channel: any Channel) -> Bool {
        let address = Address(channel.remoteAddress)
        let isIn = state.withLock { state in
            guard !state.isStopped, state.channels.count < limits.connectionsMax,
                state.addresses[address, default: 0] < limits.connectionsOfAddressMax
            else { return false }
            state.channels[ObjectIdentifier(channel)] = channel
            state.addresses[address, default: 0] += 1
            return true
        }
        guard isIn else { return false }
        let id = ObjectIdentifier(channel)
        channel.closeFuture.whenComplete { _ in self.leave(id, address) }
        return true
    }

    private func leave(_ id: ObjectIdentifier, _ address: Address) {
        state.withLock { state in
            guard state.channels.removeValue(forKey: id) != nil else { return }
            let rest = state.addresses[address, default: 1] - 1
            state.addresses[address] = rest > 0 ? rest : nil
        }
    }

    /// Lets nobody in any more.
    ///
    /// - Returns: Those who are there.
    func stop() -> [any Channel] {
        state.withLock { state in
            state.isStopped = true
            return Array(state.channels.values)
        }
    }
}

/// Where somebody comes from, as far as one subscriber has it.
struct Address: Hashable {
    private let bytes: [UInt8]

    init(_ address: SocketAddress?) { self.init(ip: address?.ipAddress ?? "") }

    init(ip text: String) {
        var v4 = [UInt8](repeating: 0, count: 4)
        var v6 = [UInt8](repeating: 0, count: 16)
        // A link's name may follow an address that is good on it alone.
        let text = String(text.prefix { $0 != "%" })
        if inet_pton(AF_INET, text, &v4) == 1 {
            bytes = v4
        } else if inet_pton(AF_INET6, text, &v6) == 1 {
            // An IPv4 address on a socket that takes both.
            let isMapped = v6.starts(with: Array(repeating: 0, count: 10) + [0xff, 0xff])
            bytes = isMapped ? Array(v6.suffix(4)) : Array(v6.prefix(8))
        } else {
            bytes = []
        }
    }
}
