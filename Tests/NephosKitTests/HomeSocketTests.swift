import Foundation
import Glibc
import NephosBus
import NephosCore
import NephosFiles
import NephosZeroMQ
import Synchronization
import Testing

@testable import NephosKit

/// How the processes of a home find and ring each other, on real locks and sockets.
@Suite struct HomeSocketTests {
    private let folder = Folder()

    @Test func oneLeadsAndTheNextFollows() async throws {
        let (first, second, third) = try (folder.process(), folder.process(), folder.process())
        #expect(await first.perform { $0.way.lock() } == .taken)
        await first.perform { $0.way.renew("a note") }
        for other in [second, third] { #expect(await other.perform { $0.way.lock() } == .held(note: "a note")) }
        #expect(await first.perform { $0.way.lock() } == .taken)
        await first.perform { $0.way.renew("short") }
        #expect(await second.perform { $0.way.lock() } == .held(note: "short"))
        #expect(await first.others == [second.name, third.name])
        #expect(await third.others == [first.name, second.name])
        await second.perform { $0.way.ring() }
        #expect(await eventually { await [first.looks, third.looks] == [1, 1] })
        #expect(await second.looks == 0)
        first.close()
        #expect(await eventually { await [second.looks, third.looks] == [1, 2] })
        #expect(await second.others == [third.name])
        #expect(await third.perform { $0.way.lock() } == .taken)
        #expect(folder.lockCount == 1)
        second.close()
        third.close()
        #expect(await eventually { folder.lockCount == 0 })
        #expect(try folder.sockets.isEmpty)
    }

    @Test func aProcessThatWasKilledIsNoneOfTheOthers() async throws {
        let first = try folder.process()
        #expect(await first.perform { $0.way.lock() } == .taken)
        let killed = try folder.bind("0123456789abcdef")
        #expect(await first.others == ["0123456789abcdef"])
        Glibc.close(killed)
        #expect(await first.others.isEmpty)
        #expect(try folder.sockets == [first.name])
        first.close()
    }

    @Test func aSilentOrNoisyProcessHoldsNobodyUp() async throws {
        let (first, second) = try (folder.process(), folder.process())
        for process in [first, second] { _ = await process.perform { $0.way.lock() } }
        // One that never reads, and is noisy.
        let noisy = try folder.bind("0123456789abcdef")
        for _ in 0..<1000 { await first.perform { $0.way.ring() } }
        #expect(await eventually { await second.looks > 0 })
        let garbage = [UInt8](repeating: 7, count: 100_000)
        for length in [0, 1, 17, 100_000] {
            for _ in 0..<100 { folder.send(Array(garbage.prefix(length)), to: first.name, from: noisy) }
        }
        let looks = await second.looks
        await first.perform { $0.way.ring() }
        #expect(await eventually { await second.looks > looks })
        Glibc.close(noisy)
        first.close()
        second.close()
    }

    @Test func theLockAndTheSocketsAreTheUsersAlone() async throws {
        let process = try folder.process()
        _ = await process.perform { $0.way.lock() }
        func mode(_ name: String) throws -> Int? {
            try FileManager.default.attributesOfItem(atPath: folder.path + name)[.posixPermissions] as? Int
        }
        #expect(try mode("/engine.lock") == 0o600 && mode("/processes") == 0o700)
        #expect(try mode("/processes/\(process.name)") == 0o600)
        process.close()
    }

    /// The database was replaced by a copy, and the leader still has what was there before.
    @Test func theLeaderOfAnotherDatabaseIsNone() async throws {
        let first = try await session()
        #expect(try await role(first) == .leader)
        for name in try FileManager.default.contentsOfDirectory(atPath: folder.path)
        where name.hasPrefix("device.sqlite") {
            try FileManager.default.moveItem(atPath: "\(folder.path)/\(name)", toPath: "\(folder.path)/old-\(name)")
        }
        let second = try await session()
        #expect(try await eventually { try await role(second) == .alone })
        first.close()
        #expect(try await eventually { try await role(second) == .leader })
        second.close()
    }

    @Test func aLeaderThatIsNotUnderstoodOrSilentIsDoneWithout() async throws {
        // Of another release.
        var lock: FileLock? = try FileLock(folder.path + "/engine.lock")
        func note(_ text: String) throws {
            try Data(text.utf8).write(to: URL(fileURLWithPath: folder.path + "/engine.lock"))
        }
        try note("99 something else")
        let process = try await session()
        #expect(try await eventually { try await role(process) == .alone })
        // One that says something, and then nothing more.
        let mark = "\(HomeProcesses.format) \(process.local.identity ?? "") "
        try note(mark + "1")
        #expect(try await eventually { try await role(process) == .client })
        #expect(try await eventually { try await role(process) == .alone })
        try note(mark + "2")
        #expect(try await eventually { try await role(process) == .client })
        lock = nil
        #expect(try await eventually { try await role(process) == .leader })
        withExtendedLifetime(lock) {}
        process.close()
    }

    /// On a full disk a process has a copy in memory, of which the others hear nothing: it must not hold them up.
    @Test func whoCannotWriteTakesNoPart() async throws {
        _ = try LocalStore(path: folder.path + "/device.sqlite")
        var full = DeviceOptions()
        full.fault = { if $0 == "open" { throw POSIXError(.ENOSPC) } }
        let reader = try await session(full)
        let writer = try await session()
        #expect(try await role(reader) == .alone)
        #expect(try await role(writer) == .leader)
        reader.close()
        writer.close()
    }

    private func session(_ options: DeviceOptions? = nil) async throws -> Session {
        try await Session.open(home: URL(fileURLWithPath: folder.path), options: options)
    }

    private func role(_ session: Session) async throws -> HomeRole {
        try await session.engine.perform { engine, completion in completion(.success(engine.home.role)) }
    }
}

/// Counts tries, not time: tests beside it may keep this one from its thread for long.
private func eventually(_ condition: () async throws -> Bool) async rethrows -> Bool {
    for _ in 0..<3000 {
        if try await condition() { return true }
        try? await Task.sleep(for: .milliseconds(10))
    }
    return false
}

/// A home's folder, whose path is longer than a socket's address may be.
private final class Folder: Sendable {
    let path: String

    init() {
        path = NSTemporaryDirectory() + "/" + String(repeating: "long-", count: 30) + UUID().uuidString
        try? FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func process() throws -> Process {
        let path = path
        return try Process { UnixHomeWay(home: path, loop: $0) }
    }

    var sockets: [String] {
        get throws { try FileManager.default.contentsOfDirectory(atPath: path + "/processes") }
    }

    /// A socket of a process that follows no rules.
    func bind(_ name: String) throws -> Int32 {
        let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
        try #require(withAddress(name) { Glibc.bind(descriptor, $0, $1) } == 0)
        return descriptor
    }

    func send(_ bytes: [UInt8], to name: String, from descriptor: Int32) {
        _ = withAddress(name) { Int32(sendto(descriptor, bytes, bytes.count, Int32(MSG_DONTWAIT), $0, $1)) }
    }

    private func withAddress(_ name: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        let folder = open(path + "/processes", O_RDONLY | O_DIRECTORY)
        defer { Glibc.close(folder) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: "/proc/self/fd/\(folder)/\(name)".utf8) }
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
        }
    }

    /// Descriptors of the lock that this process has open.
    var lockCount: Int {
        let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        return descriptors.filter {
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\($0)"))?
                .hasSuffix(folderName + "/engine.lock") == true
        }.count
    }

    private var folderName: String { String(path.split(separator: "/").last ?? "") }
}

/// A way into a home on a loop of its own, as a process has it.
private final class Process: Sendable {
    final class Parts {
        let way: any HomeWay
        var looks = 0
        init(_ way: any HomeWay) { self.way = way }
    }

    let name: String
    private let handle: any LoopHandle
    private let parts: LoopBound<Parts>

    init(_ makeWay: @escaping @Sendable (any BusLoop) -> any HomeWay) throws {
        let made = Mutex<(LoopBound<Parts>, String)?>(nil)
        handle = try ZeroMQTransport().startLoop(named: "home-test") { loop in
            let parts = Parts(makeWay(loop))
            parts.way.onLook = { [unowned parts] in parts.looks += 1 }
            made.withLock { $0 = (LoopBound(parts, to: loop), parts.way.name) }
        }
        (parts, name) = try #require(made.withLock { $0 })
    }

    @discardableResult
    func perform<Value: Sendable>(_ body: @escaping @Sendable (Parts) -> Value) async -> Value {
        await withCheckedContinuation { continuation in
            handle.execute { [parts] loop in
                parts.withValue(on: loop) { continuation.resume(returning: body($0)) }
            }
        }
    }

    var looks: Int { get async { await perform { $0.looks } } }
    var others: Set<String> { get async { await perform { $0.way.others } } }

    func close() {
        handle.execute { [parts] loop in parts.withValue(on: loop) { $0.way.leave() } }
        handle.stop()
    }
}
