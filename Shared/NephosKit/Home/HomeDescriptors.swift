import Foundation
import Synchronization

#if canImport(Musl)
    import Musl
#else
    import Glibc
#endif

/// The sockets of one process of a home, and the thread that reads them. Safe to use from any thread.
///
/// Only that thread closes a descriptor, so that none is used under a number that has become another's.
final class HomeDescriptors: Sendable {
    /// Larger ones are not sent; nobody sends any.
    static let packetBytesMax = 192 << 10
    /// Packets that were read and that the loop has not looked at.
    private static let unreadMax = 256

    private struct State {
        var listener: Int32?
        var peers: [Int: Int32] = [:]
        /// To be closed; not told.
        var dropped: Set<Int> = []
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
            state.peers[state.count] = descriptor
            return state.count
        }
        wake()
        return number
    }

    func send(_ packet: Data, to peer: Int) {
        state.withLock { state in
            guard let descriptor = state.peers[peer], !state.dropped.contains(peer) else { return }
            let sent = packet.withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_DONTWAIT | MSG_NOSIGNAL))
            }
            // One that does not read would keep what is sent to it for ever. It connects again when it goes on.
            if sent != packet.count { shutdown(descriptor, Int32(SHUT_RDWR)) }
        }
    }

    func drop(_ peer: Int) {
        state.withLock { state in
            guard let descriptor = state.peers[peer] else { return }
            state.dropped.insert(peer)
            shutdown(descriptor, Int32(SHUT_RDWR))
        }
    }

    /// The thread closes everything.
    func end() {
        let hasThread = state.withLock { state in
            state.isEnded = true
            // Whoever waits for this process to end sees it now.
            for descriptor in state.peers.values { shutdown(descriptor, Int32(SHUT_RDWR)) }
            if let listener = state.listener { shutdown(listener, Int32(SHUT_RDWR)) }
            return state.waker != nil
        }
        if hasThread { wake() } else { closeAll() }
    }

    private func wake() {
        state.withLock { state in
            guard let waker = state.waker else { return }
            var one: UInt8 = 1
            // A pipe that is full wakes it too.
            _ = write(waker, &one, 1)
        }
    }

    /// Starts the thread.
    ///
    /// - Parameter deliver: Gets what has happened, and what to call when it has been looked at.
    /// - Returns: False: there is no descriptor left for it.
    func run(_ deliver: @escaping @Sendable (HomeEvent, _ done: @escaping @Sendable () -> Void) -> Void) -> Bool {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { return false }
        let woken = ends[0]
        for end in ends { Self.prepare(end) }
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
            let (listener, peers, isEnded) = state.withLock { state in
                (state.listener, state.unread < Self.unreadMax ? state.peers : [:], state.isEnded)
            }
            if isEnded { return closeAll() }
            let numbers = peers.keys.sorted()
            var waiting = [pollfd(fd: woken, events: Int16(POLLIN), revents: 0)]
            waiting.append(pollfd(fd: listener ?? -1, events: Int16(POLLIN), revents: 0))
            for number in numbers { waiting.append(pollfd(fd: peers[number] ?? -1, events: Int16(POLLIN), revents: 0)) }
            guard poll(&waiting, nfds_t(waiting.count), -1) >= 0 else { continue }
            if waiting[0].revents != 0 {
                var bytes = [UInt8](repeating: 0, count: 64)
                _ = Glibc.read(woken, &bytes, bytes.count)
            }
            if waiting[1].revents != 0, let listener { admit(listener) }
            for (number, found) in zip(numbers, waiting.dropFirst(2)) where found.revents != 0 {
                let length = recv(found.fd, &buffer, buffer.count, Int32(MSG_DONTWAIT))
                if length > 0 {
                    give(.packet(Data(buffer[..<length]), from: number), deliver)
                } else if length == 0 || errno != EAGAIN && errno != EINTR {
                    if close(number) { give(.left(number), deliver) }
                }
            }
        }
    }

    private func give(
        _ event: HomeEvent, _ deliver: @Sendable (HomeEvent, _ done: @escaping @Sendable () -> Void) -> Void
    ) {
        state.withLock { $0.unread += 1 }
        deliver(event) {
            let wasFull = self.state.withLock { state in
                state.unread -= 1
                return state.unread == Self.unreadMax - 1
            }
            if wasFull { self.wake() }
        }
    }

    private func admit(_ listener: Int32) {
        let accepted = accept(listener, nil, nil)
        guard accepted >= 0 else {
            // Without a descriptor left it would be ready at once, again and again.
            if errno != EAGAIN { usleep(100_000) }
            return
        }
        Self.prepare(accepted)
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

    /// Neither waits nor passes to another program.
    private static func prepare(_ descriptor: Int32) {
        _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    }

    /// - Returns: Whether anybody has to know.
    private func close(_ number: Int) -> Bool {
        state.withLock { state in
            guard let descriptor = state.peers.removeValue(forKey: number) else { return false }
            Glibc.close(descriptor)
            return state.dropped.remove(number) == nil
        }
    }

    private func closeAll() {
        state.withLock { state in
            for descriptor in state.peers.values { Glibc.close(descriptor) }
            if let listener = state.listener { Glibc.close(listener) }
            if let waker = state.waker { Glibc.close(waker) }
            (state.peers, state.listener, state.waker) = ([:], nil, nil)
        }
    }
}
