import Foundation
import Glibc
import Synchronization

/// The sockets of one process of a home, and the thread that reads them. Safe to use from any thread.
///
/// Only that thread closes a descriptor, so that none is used under a number that has become another's.
final class HomeDescriptors: Sendable {
    /// Larger ones are not sent; nobody sends any.
    static let packetBytesMax = 192 << 10
    /// Bytes that were read and that the loop has not looked at.
    private static let unreadMax = 1 << 20
    /// Bytes that wait for one peer to read what it was sent before: all that it may be told in one turn of the loop.
    private static let unsentMax = 4 << 20

    private struct Peer {
        let descriptor: Int32
        /// What the system did not take yet.
        var unsent: [Data] = []
        var unsentBytes = 0
        /// It is to be closed; not told.
        var isDropped = false
    }

    private struct State {
        var listener: Int32?
        var peers: [Int: Peer] = [:]
        var count = 0
        var unread = 0
        /// Wakes the thread.
        var waker: Int32?
        var isEnded = false
    }

    private let state = Mutex(State())
    private let guestsMax: Int

    init(guestsMax: Int) { self.guestsMax = guestsMax }

    func listen(on descriptor: Int32) {
        state.withLock { $0.listener = descriptor }
        wake()
    }

    /// - Returns: Its number; nil: it has ended.
    func add(_ descriptor: Int32) -> Int? {
        let number: Int? = state.withLock { state in
            guard !state.isEnded else { return nil }
            state.count += 1
            state.peers[state.count] = Peer(descriptor: descriptor)
            return state.count
        }
        wake()
        return number
    }

    func send(_ packet: Data, to number: Int) {
        guard packet.count <= Self.packetBytesMax else { return }
        let isFirst = state.withLock { state in
            guard var peer = state.peers[number], !peer.isDropped else { return false }
            defer { state.peers[number] = peer }
            let wasEmpty = peer.unsent.isEmpty
            if wasEmpty, Self.send(packet, peer.descriptor) { return false }
            // One that does not read would keep what is sent to it for ever. It connects again when it goes on.
            guard peer.unsentBytes + packet.count <= Self.unsentMax else {
                shutdown(peer.descriptor, Int32(SHUT_RDWR))
                return false
            }
            peer.unsent.append(packet)
            peer.unsentBytes += packet.count
            return wasEmpty
        }
        if isFirst { wake() }
    }

    /// - Returns: False: not now.
    private static func send(_ packet: Data, _ descriptor: Int32) -> Bool {
        let sent = packet.withUnsafeBytes {
            Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL))
        }
        if sent == packet.count || errno == EAGAIN || errno == EINTR || errno == ENOBUFS { return sent >= 0 }
        shutdown(descriptor, Int32(SHUT_RDWR))
        return true
    }

    /// What waits for the peer, as far as it takes it now.
    private func flush(_ number: Int) {
        state.withLock { state in
            guard var peer = state.peers[number] else { return }
            let count = peer.unsent.firstIndex { !Self.send($0, peer.descriptor) } ?? peer.unsent.count
            peer.unsentBytes -= peer.unsent[..<count].reduce(0) { $0 + $1.count }
            peer.unsent.removeFirst(count)
            state.peers[number] = peer
        }
    }

    func drop(_ number: Int) {
        state.withLock { state in
            guard let peer = state.peers[number] else { return }
            state.peers[number]?.isDropped = true
            shutdown(peer.descriptor, Int32(SHUT_RDWR))
        }
    }

    /// The thread closes everything.
    func end() {
        let hasThread = state.withLock { state in
            state.isEnded = true
            // First, so that nobody finds this one again who sees it end.
            if let listener = state.listener { shutdown(listener, Int32(SHUT_RDWR)) }
            // Whoever waits for this process to end sees it now.
            for peer in state.peers.values { shutdown(peer.descriptor, Int32(SHUT_RDWR)) }
            return state.waker != nil
        }
        if hasThread { wake() } else { closeAll() }
    }

    private func wake() {
        state.withLock { state in
            guard let waker = state.waker else { return }
            var one: UInt8 = 1
            // One that is full wakes it too.
            _ = Glibc.send(waker, &one, 1, Int32(MSG_NOSIGNAL))
        }
    }

    /// Starts the thread.
    ///
    /// - Parameter deliver: Gets what has happened, and what to call when it has been looked at.
    /// - Returns: False: there is no descriptor left for it.
    func run(_ deliver: @escaping @Sendable (HomeEvent, _ done: @escaping @Sendable () -> Void) -> Void) -> Bool {
        var ends: [Int32] = [-1, -1]
        let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &ends) == 0 else { return false }
        let woken = ends[0]
        state.withLock { $0.waker = ends[1] }
        let thread = Thread {
            self.read(woken, deliver)
            Glibc.close(woken)
        }
        thread.name = "nephos-home"
        thread.stackSize = 256 << 10
        thread.start()
        return true
    }

    private func read(
        _ woken: Int32, _ deliver: @Sendable (HomeEvent, _ done: @escaping @Sendable () -> Void) -> Void
    ) {
        var buffer = [UInt8](repeating: 0, count: Self.packetBytesMax)
        while true {
            let (listener, peers, isFull, isEnded) = state.withLock {
                ($0.listener, $0.peers, $0.unread >= Self.unreadMax, $0.isEnded)
            }
            if isEnded { return closeAll() }
            let numbers = peers.keys.sorted().filter { !isFull || peers[$0]?.unsent.isEmpty == false }
            var waiting = [pollfd(fd: woken, events: Int16(POLLIN), revents: 0)]
            waiting.append(pollfd(fd: listener ?? -1, events: Int16(POLLIN), revents: 0))
            for peer in numbers.compactMap({ peers[$0] }) {
                let events = (isFull ? 0 : POLLIN) | (peer.unsent.isEmpty ? 0 : POLLOUT)
                waiting.append(pollfd(fd: peer.descriptor, events: Int16(events), revents: 0))
            }
            guard poll(&waiting, nfds_t(waiting.count), -1) >= 0 else { continue }
            if waiting[0].revents != 0 {
                var bytes = [UInt8](repeating: 0, count: 64)
                _ = Glibc.read(woken, &bytes, bytes.count)
            }
            if waiting[1].revents != 0, let listener { admit(listener) }
            for (number, found) in zip(numbers, waiting.dropFirst(2)) where found.revents != 0 {
                if peers[number]?.unsent.isEmpty == false { flush(number) }
                // That it has ended is read after what it said before.
                guard !isFull, Int32(found.revents) & ~POLLOUT != 0 else { continue }
                let length = recv(found.fd, &buffer, buffer.count, Int32(MSG_DONTWAIT))
                if length > 0 {
                    give(.packet(Data(buffer[..<length]), from: number), length, deliver)
                } else if length == 0 || errno != EAGAIN && errno != EINTR {
                    if close(number) { give(.left(number), 0, deliver) }
                }
            }
        }
    }

    private func give(
        _ event: HomeEvent, _ bytes: Int,
        _ deliver: @Sendable (HomeEvent, _ done: @escaping @Sendable () -> Void) -> Void
    ) {
        // What is kept with it counts too.
        let cost = bytes + 1024
        state.withLock { $0.unread += cost }
        deliver(event) {
            let hasRoom = self.state.withLock { state in
                let wasFull = state.unread >= Self.unreadMax
                state.unread -= cost
                return wasFull && state.unread < Self.unreadMax
            }
            if hasRoom { self.wake() }
        }
    }

    private func admit(_ listener: Int32) {
        let accepted = accept(listener, nil, nil)
        guard accepted >= 0 else {
            // Without a descriptor left it would be ready at once, again and again.
            if errno != EAGAIN { usleep(100_000) }
            return
        }
        // Neither passes to another program (one that is started this moment may keep it: then the guest finds that
        // nobody answers) nor waits.
        _ = fcntl(accepted, F_SETFD, FD_CLOEXEC)
        _ = fcntl(accepted, F_SETFL, O_NONBLOCK)
        // Its process, user and group: `struct ucred`.
        var owner: [UInt32] = [0, 0, 0]
        var length = socklen_t(MemoryLayout<UInt32>.stride * owner.count)
        let isKnown = getsockopt(accepted, SOL_SOCKET, SO_PEERCRED, &owner, &length) == 0
        // The home is its user's alone; the system's administrator may do as they like.
        guard isKnown, owner[1] == geteuid() || owner[1] == 0,
            state.withLock({ $0.peers.count < guestsMax }), add(accepted) != nil
        else {
            Glibc.close(accepted)
            return
        }
    }

    /// - Returns: Whether anybody has to know.
    private func close(_ number: Int) -> Bool {
        state.withLock { state in
            guard let peer = state.peers.removeValue(forKey: number) else { return false }
            Glibc.close(peer.descriptor)
            return !peer.isDropped
        }
    }

    private func closeAll() {
        state.withLock { state in
            for peer in state.peers.values { Glibc.close(peer.descriptor) }
            if let listener = state.listener { Glibc.close(listener) }
            if let waker = state.waker { Glibc.close(waker) }
            (state.peers, state.listener, state.waker) = ([:], nil, nil)
        }
    }
}
