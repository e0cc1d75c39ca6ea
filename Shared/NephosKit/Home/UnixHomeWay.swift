import Foundation
import Glibc
import NephosBus
import NephosCore
import NephosFiles
import Synchronization

/// A lock file in the home, and beside it a local socket of the one that has the lock.
///
/// One thread waits for all descriptors, and hands what arrives to the loop; whatever has not been looked at there
/// yet is bounded, since it reads no further then.
final class UnixHomeWay: HomeWay {
    private let home: String
    private let loop: any BusLoop
    private let descriptors: HomeDescriptors
    var onEvent: (HomeEvent) -> Void = { _ in }
    private var lock: FileLock?
    private var isReading = false

    /// - Parameters:
    ///   - home: The device's folder.
    ///   - guestsMax: More than these do for themselves.
    init(home: String, loop: any BusLoop, guestsMax: Int = 64) {
        self.home = home
        self.loop = loop
        descriptors = HomeDescriptors(guestsMax: guestsMax)
    }

    func join() -> HomeJoin {
        let taken: FileLock
        do { taken = try FileLock(home + "/engine.lock") } catch .held { return connectToHolder() } catch {
            return .impossible
        }
        // A lock without anybody who listens would keep the others waiting.
        guard read(), let listener = listen() else { return .impossible }
        lock = taken
        descriptors.listen(on: listener)
        return .holds
    }

    private func connectToHolder() -> HomeJoin {
        let descriptor = Self.makeSocket()
        guard descriptor >= 0 else { return .impossible }
        guard read(), withAddress({ connect(descriptor, $0, $1) }) == 0, let peer = descriptors.add(descriptor) else {
            close(descriptor)
            return .nobody
        }
        return .connected(peer)
    }

    private func listen() -> Int32? {
        let descriptor = Self.makeSocket()
        guard descriptor >= 0 else { return nil }
        // What a process left that ended without a word.
        unlink(home + "/engine.socket")
        guard withAddress({ bind(descriptor, $0, $1) }) == 0, Glibc.listen(descriptor, 16) == 0 else {
            close(descriptor)
            return nil
        }
        chmod(home + "/engine.socket", 0o600)
        return descriptor
    }

    private static func makeSocket() -> Int32 {
        socket(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
    }

    /// A socket's address has room for about a hundred bytes, and a home's path may be longer: so it is named by the
    /// folder's descriptor.
    private func withAddress(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        let folder = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard folder >= 0 else { return -1 }
        defer { close(folder) }
        let path = Array("/proc/self/fd/\(folder)/engine.socket".utf8)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
        }
    }

    func send(_ packet: Data, to peer: Int) { descriptors.send(packet, to: peer) }

    func drop(_ peer: Int) { descriptors.drop(peer) }

    func leave() {
        // First, so that whoever sees the connection end can have it. The socket's name stays: the next holder replaces
        // it, and removed here it might be the next holder's.
        lock = nil
        descriptors.end()
    }

    /// Starts the thread that waits for what arrives.
    private func read() -> Bool {
        guard !isReading else { return true }
        let (descriptors, handle) = (descriptors, loop.handle)
        let own = LoopBound(Weak(self), to: loop)
        isReading = descriptors.run { event, done in
            handle.execute { loop in
                own.withValue(on: loop) { $0.value?.onEvent(event) }
                done()
            }
        }
        return isReading
    }
}

/// Refers to what it keeps alive no longer than others do, from another thread.
final class Weak<Value: AnyObject> {
    private(set) weak var value: Value?
    init(_ value: Value) { self.value = value }
}
