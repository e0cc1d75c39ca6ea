private import Foundation
internal import NIOCore
private import Synchronization

/// The connections that there are, in all and of each address.
final class ConnectionTable: Sendable {
    private struct Entry {
        var channel: any Channel
        var address: Address
        /// In which turn it began to wait for a request, or the rest of one; nil: one is being answered.
        var waitsSince: UInt64?
    }

    private struct State {
        var entries: [ObjectIdentifier: Entry] = [:]
        var addresses: [Address: Int] = [:]
        var turns: UInt64 = 0
        var isStopped = false

        mutating func nextTurn() -> UInt64 {
            turns += 1
            return turns
        }

        mutating func remove(_ id: ObjectIdentifier) -> Entry? {
            guard let entry = entries.removeValue(forKey: id) else { return nil }
            let rest = addresses[entry.address, default: 1] - 1
            addresses[entry.address] = rest > 0 ? rest : nil
            return entry
        }

        /// Takes out the one that has waited longest, of one address or of all.
        mutating func removeLongestWaiting(of address: Address?) -> Entry? {
            let waiting = entries.lazy.filter { address == nil || $0.value.address == address }
                .compactMap { id, entry in entry.waitsSince.map { (id, $0) } }
            return waiting.min { $0.1 < $1.1 }.flatMap { remove($0.0) }
        }
    }

    private let limits: HTTPLimits
    private let state = Mutex(State())

    init(_ limits: HTTPLimits) { self.limits = limits }

    var count: Int { state.withLock { $0.entries.count } }

    /// - Returns: False: it has to be closed.
    func enter(_ channel: any Channel) -> Bool {
        let address = Address(channel.remoteAddress)
        let (isIn, gone) = state.withLock { state -> (Bool, Entry?) in
            guard !state.isStopped else { return (false, nil) }
            let isAddressFull = state.addresses[address, default: 0] >= limits.connectionsOfAddressMax
            var gone: Entry?
            if isAddressFull || state.entries.count >= limits.connectionsMax {
                gone = state.removeLongestWaiting(of: isAddressFull ? address : nil)
                if gone == nil { return (false, nil) }
            }
            state.entries[ObjectIdentifier(channel)] = Entry(
                channel: channel, address: address, waitsSince: state.nextTurn())
            state.addresses[address, default: 0] += 1
            return (true, gone)
        }
        gone?.channel.cut()
        guard isIn else { return false }
        let id = ObjectIdentifier(channel)
        channel.closeFuture.whenComplete { _ in self.leave(id) }
        return true
    }

    private func leave(_ id: ObjectIdentifier) { state.withLock { _ = $0.remove(id) } }

    /// Says whether a connection waits for a request.
    func note(_ channel: any Channel, isWaiting: Bool) {
        state.withLock { state in
            let turn = isWaiting ? state.nextTurn() : nil
            state.entries[ObjectIdentifier(channel)]?.waitsSince = turn
        }
    }

    /// Lets nobody in any more.
    ///
    /// - Returns: Those who are there.
    func stop() -> [any Channel] {
        state.withLock { state in
            state.isStopped = true
            return state.entries.values.map(\.channel)
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

    /// For tables of what addresses do.
    var text: String { bytes.map { String($0, radix: 16) }.joined(separator: ".") }
}

extension HTTPRequest {
    /// Whose limits the request counts for: the address, or of IPv6 its network of 64 bits, which a subscriber has as a
    /// whole.
    public var network: String { Address(ip: address).text }
}
