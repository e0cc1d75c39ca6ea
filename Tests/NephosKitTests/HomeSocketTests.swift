import Foundation
import Glibc
import NephosBus
import NephosCore
import NephosZeroMQ
import Synchronization
import Testing

@testable import NephosKit

/// How the processes of a home find and hear each other, on real locks and sockets: each has a loop of its own.
@Suite struct HomeSocketTests {
    private let folder = Folder()

    @Test func oneHoldsAndTheNextFollows() async throws {
        let (first, second, third) = try (folder.process(), folder.process(), folder.process())
        #expect(await first.role == .holder)
        #expect(await eventually { await [second.isWelcome, third.isWelcome] == [true, true] })
        await second.say(.written)
        await second.say(.endWait(7))
        #expect(await eventually { await first.heard.suffix(2) == [.written, .endWait(7)] })
        await first.say(.fetched(Self.key))
        #expect(
            await eventually {
                await [second.heard.last, third.heard.last] == [.fetched(Self.key), .fetched(Self.key)]
            })
        first.close()
        #expect(
            await eventually {
                let roles = await [second.role, third.role]
                let welcome = await [second.isWelcome, third.isWelcome]
                return roles.contains(.holder) && roles.contains(.guest) && welcome.contains(true)
            })
        #expect(folder.lockCount == 1)
        second.close()
        third.close()
        #expect(await eventually { folder.lockCount == 0 })
    }

    @Test func allThatIsSaidAtOnceArrives() async throws {
        let (first, second) = try (folder.process(), folder.process())
        #expect(await eventually { await second.isWelcome })
        let count = 5000
        for process in [second, first] {
            await process.perform { line in
                for number in 0..<count { line.line.broadcast(.waited(number, session: nil, error: Data(count: 100))) }
            }
        }
        for process in [first, second] {
            #expect(
                await eventually {
                    await process.heard.compactMap { if case .waited(let number, _, _) = $0 { number } else { nil } }
                        == Array(0..<count)
                })
        }
        #expect(await second.welcomes == 1)
    }

    @Test func whoHasNoRoomDoesForItself() async throws {
        let first = try folder.process(guestsMax: 1)
        let second = try folder.process()
        #expect(await eventually { await second.isWelcome })
        let third = try folder.process()
        #expect(await eventually { await third.role == .alone })
        second.close()
        #expect(await eventually { await [third.isWelcome, third.role == .guest] == [true, true] })
        first.close()
        third.close()
    }

    /// The folder was replaced by a copy, and the holder still has what was there before.
    @Test func theHolderOfAnotherDatabaseIsNone() async throws {
        let first = try folder.process(database: "before")
        let second = try folder.process(database: "after")
        #expect(await eventually { await second.role == .alone })
        await second.say(.written)
        #expect(await first.heard.isEmpty)
        first.close()
        #expect(await eventually { await second.role == .holder })
        second.close()
    }

    @Test func whoDoesNotReadOrSaysWhatNobodyUnderstandsHoldsNobodyUp() async throws {
        let (first, second) = try (folder.process(), folder.process())
        #expect(await eventually { await second.isWelcome })
        let silent = try folder.connect()
        let hello = HomeMessage.hello(version: HomeMessage.version, home: "database").packet
        #expect(hello.withUnsafeBytes { send(silent, $0.baseAddress, $0.count, 0) } == hello.count)
        #expect(await eventually { await first.guests == 2 })
        let loud = try folder.connect()
        var generator = SystemRandomNumberGenerator()
        for length in [1, 17, 4096, 100_000, 200_000] {
            let garbage = (0..<length).map { _ in UInt8.random(in: 0...255, using: &generator) }
            _ = garbage.withUnsafeBytes { send(loud, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
        }
        for text in [
            "{\"hello\":{\"version\":1}}", "{\"wait\":{\"_0\":1e300}}", "[]", "{}", "{\"pong\":{}}",
            String(repeating: "[", count: 50_000),
        ] {
            _ = Data(text.utf8).withUnsafeBytes { send(loud, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
        }
        // More than waits for one.
        for _ in 0..<60 {
            await first.perform { process in
                for _ in 0..<10 { process.line.broadcast(.waited(1, session: nil, error: Data(count: 10_000))) }
            }
        }
        #expect(await eventually { await first.guests == 1 })
        await first.say(.fetched(Self.key))
        await second.say(.written)
        #expect(await eventually { await [second.heard.last, first.heard.last] == [.fetched(Self.key), .written] })
        #expect(await second.welcomes == 1)
        for descriptor in [silent, loud] { Glibc.close(descriptor) }
        first.close()
        second.close()
    }

    /// On a full disk a process has a copy in memory, of which the others hear nothing: it must not hold them up.
    @Test func whoCannotWriteTakesNoPart() async throws {
        _ = try LocalStore(path: folder.path + "/device.sqlite")
        var full = DeviceOptions()
        full.fault = { if $0 == "open" { throw POSIXError(.ENOSPC) } }
        let reader = try await Session.open(home: URL(fileURLWithPath: folder.path), options: full)
        let writer = try await Session.open(home: URL(fileURLWithPath: folder.path))
        func role(_ session: Session) async throws -> HomeRole {
            try await session.engine.perform { engine, completion in completion(.success(engine.home.role)) }
        }
        #expect(try await role(reader) == .alone)
        #expect(try await role(writer) == .holder)
        reader.close()
        writer.close()
    }

    private static let key = ScopeID(app: AppID("app"), service: .keyValue)
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

    func process(database: String = "database", guestsMax: Int = 64) throws -> Process {
        let path = path
        return try Process(database) { UnixHomeWay(home: path, loop: $0, guestsMax: guestsMax) }
    }

    /// A connection of somebody who follows no rules.
    func connect() throws -> Int32 {
        let descriptor = socket(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue), 0)
        let folder = open(path, O_RDONLY | O_DIRECTORY)
        defer { Glibc.close(folder) }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) {
            $0.copyBytes(from: "/proc/self/fd/\(folder)/engine.socket".utf8)
        }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(result == 0)
        return descriptor
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

/// What takes part in a home, as a process of it does.
private final class Process: Sendable {
    final class Parts {
        let line: HomeLine
        var heard: [HomeMessage] = []
        var welcomes = 0
        init(_ line: HomeLine) { self.line = line }
    }

    private let handle: any LoopHandle
    private let parts: LoopBound<Parts>

    init(_ database: String, _ makeWay: @escaping @Sendable (any BusLoop) -> any HomeWay) throws {
        let made = Mutex<LoopBound<Parts>?>(nil)
        handle = try ZeroMQTransport().startLoop(named: "home-test") { loop in
            let parts = Parts(HomeLine(makeWay(loop), database, loop))
            parts.line.onMessage = { [unowned parts] message, _ in
                switch message {
                case .ping, .pong, .hello: break
                case .welcome: parts.welcomes += 1
                default: parts.heard.append(message)
                }
            }
            parts.line.start()
            made.withLock { $0 = LoopBound(parts, to: loop) }
        }
        parts = try #require(made.withLock { $0 })
    }

    @discardableResult
    func perform<Value: Sendable>(_ body: @escaping @Sendable (Parts) -> Value) async -> Value {
        await withCheckedContinuation { continuation in
            handle.execute { [parts] loop in
                parts.withValue(on: loop) { continuation.resume(returning: body($0)) }
            }
        }
    }

    func say(_ message: HomeMessage) async { await perform { $0.line.broadcast(message) } }

    var role: HomeRole { get async { await perform { $0.line.role } } }
    var isWelcome: Bool { get async { await perform { $0.line.isWelcome } } }
    var guests: Int { get async { await perform { $0.line.guests.count } } }
    var heard: [HomeMessage] { get async { await perform { $0.heard } } }
    var welcomes: Int { get async { await perform { $0.welcomes } } }

    func close() {
        handle.execute { [parts] loop in parts.withValue(on: loop) { $0.line.stop() } }
        handle.stop()
    }
}
