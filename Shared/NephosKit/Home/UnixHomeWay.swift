import Foundation
import Glibc
import NephosBus
import NephosCore
import NephosFiles
import Synchronization

/// A lock file in the home, and a folder `processes` in which each process has a datagram socket. A datagram says
/// nothing but that there is something to look at.
final class UnixHomeWay: HomeWay {
    let name: String
    var onLook: () -> Void = {}
    private let home: String
    private let loop: any BusLoop
    /// The home, whatever becomes of its path. By `/proc/self/fd` it also has a path that fits into a socket's address.
    private var folder: Int32 = -1
    private var socket: HomeSocket?
    private var taken: FileLock?

    /// - Parameter home: The device's folder, which is its user's alone.
    init(home: String, loop: any BusLoop) {
        self.home = home
        self.loop = loop
        name = UUID().uuidString.replacing("-", with: "").lowercased()
    }

    deinit { if folder >= 0 { close(folder) } }

    private var path: String { "/proc/self/fd/\(folder)" }
    private var lockPath: String { path + "/engine.lock" }
    private var processes: String { path + "/processes" }

    // MARK: The lock

    func lock() -> HomeLock {
        // A lock of a process that hears nothing would keep the others waiting.
        guard socket != nil || listen() else { return .impossible }
        guard taken == nil else { return .taken }
        do {
            taken = try FileLock(lockPath)
            return .taken
        } catch .held {
            return .held(
                note: String(decoding: FileManager.default.contents(atPath: lockPath) ?? Data(), as: UTF8.self))
        } catch { return .impossible }
    }

    /// In place and without a flush: it is of no use after a crash, and a full disk does not keep it from being renewed.
    func renew(_ note: String) {
        let file = open(lockPath, O_WRONLY | O_CLOEXEC | O_NOFOLLOW)
        guard file >= 0 else { return }
        defer { close(file) }
        let bytes = Array(note.utf8)
        _ = pwrite(file, bytes, bytes.count, 0)
        ftruncate(file, off_t(bytes.count))
    }

    // MARK: The bell

    private func listen() -> Bool {
        if folder < 0 { folder = open(home, O_RDONLY | O_DIRECTORY | O_CLOEXEC) }
        guard folder >= 0, mkdir(processes, 0o700) == 0 || errno == EEXIST else { return false }
        let (handle, own) = (loop.handle, LoopBound(Weak(self), to: loop))
        // Under another name until it can be reached: it would be taken for one whose process has ended.
        guard let socket = HomeSocket(at: "\(processes)/\(name).new"),
            rename("\(processes)/\(name).new", "\(processes)/\(name)") == 0
        else { return false }
        self.socket = socket
        socket.run { done in
            handle.execute { loop in
                done()
                own.withValue(on: loop) { $0.value?.onLook() }
            }
        }
        return true
    }

    var others: Set<String>? {
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: processes) else { return nil }
        return Set(names.filter { $0 != name && !$0.contains(".") })
    }

    func ring() {
        for name in others ?? [] {
            let path = "\(processes)/\(name)"
            // Its process has ended without a word.
            if socket?.ring(path) == ECONNREFUSED { unlink(path) }
        }
    }

    func leave() {
        // First, so that a process that looks now can have it.
        taken = nil
        guard let socket else { return }
        unlink("\(processes)/\(name)")
        ring()
        socket.end()
        self.socket = nil
    }
}

/// A datagram socket, and the thread that reads it. Safe to use from any thread.
private final class HomeSocket: Sendable {
    private let descriptor: Int32
    private let isEnded = Atomic<Bool>(false)
    /// It was rung, and the loop has not looked yet.
    private let isRung = Atomic<Bool>(false)

    /// Nil: there cannot be one there.
    init?(at path: String) {
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return nil }
        guard Self.withAddress(path, { bind(descriptor, $0, $1) }) == 0, chmod(path, 0o600) == 0 else { return nil }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    private static func withAddress(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            errno = ENAMETOOLONG
            return -1
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
        }
    }

    /// Rings a process; one that does not read has something to look at already.
    ///
    /// - Returns: Why it could not be, or 0.
    func ring(_ path: String) -> Int32 {
        var byte: UInt8 = 0
        let sent = Self.withAddress(path) {
            Int32(sendto(descriptor, &byte, 1, Int32(MSG_DONTWAIT | MSG_NOSIGNAL), $0, $1))
        }
        return sent < 0 ? errno : 0
    }

    /// Starts the thread.
    ///
    /// - Parameter deliver: Gets what to call before it is looked.
    func run(_ deliver: @escaping @Sendable (_ done: @escaping @Sendable () -> Void) -> Void) {
        let thread = Thread { [self] in
            var byte: UInt8 = 0
            while true {
                let length = recv(descriptor, &byte, 1, 0)
                if isEnded.load(ordering: .acquiring) || length < 0 && errno != EINTR { return }
                guard length > 0, !isRung.exchange(true, ordering: .acquiringAndReleasing) else { continue }
                deliver { [weak self] in self?.isRung.store(false, ordering: .releasing) }
            }
        }
        thread.name = "nephos-home"
        thread.stackSize = 256 << 10
        thread.start()
    }

    func end() {
        isEnded.store(true, ordering: .releasing)
        // The thread wakes up, and the descriptor is closed when it is gone.
        shutdown(descriptor, Int32(SHUT_RDWR))
    }
}

/// Refers to what it keeps alive no longer than others do, from another thread.
final class Weak<Value: AnyObject> {
    private(set) weak var value: Value?
    init(_ value: Value) { self.value = value }
}
