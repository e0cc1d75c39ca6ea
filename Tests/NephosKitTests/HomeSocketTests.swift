import Foundation
import GRDB
import Glibc
import NephosBus
import NephosCore
import NephosFiles
import Testing

@testable import NephosKit

/// How the processes of a home find and ring each other, on real locks and sockets: each session is one.
@Suite struct HomeSocketTests {
    private let folder = Folder()

    @Test func oneLeadsAndTheNextFollows() async throws {
        let first = try await folder.open()
        let (second, third) = (try await folder.open(), try await folder.open())
        #expect(try await folder.roles(first, second, third) == [.leader, .client, .client])
        #expect(try folder.sockets.count == 3 && folder.lockCount == 1)
        // Well before any of them looks by itself.
        let clock = ContinuousClock()
        for process in [first, second] {
            let began = clock.now
            try process.local.write { try Facts($0).set("said", "by \(began)") }
            for other in [first, second, third] where other !== process {
                #expect(try await eventually { try await folder.hasSeenEverything(other) })
            }
            #expect(clock.now - began < .seconds(1))
        }
        first.close()
        #expect(
            try await eventually { try await Set([.leader, .client]) == Set(folder.roles(second, third)) })
        #expect(folder.lockCount == 1)
        second.close()
        third.close()
        #expect(try await eventually { try folder.sockets.isEmpty && folder.lockCount == 0 })
    }

    @Test func whatAKilledProcessWantedIsForgotten() async throws {
        let leader = try await folder.open()
        let killed = try folder.bind("0123456789abcdef")
        let want = Want(
            process: "0123456789abcdef", reader: 1, waiter: 0, scope: ScopeID(app: AppID("app"), service: .keyValue),
            goal: .open)
        try leader.local.write { try want.insert($0) }
        func scopes() async throws -> Int {
            try await leader.engine.perform { $1(.success($0.scopes.count)) }
        }
        try folder.ring(leader)
        #expect(try await eventually { try await scopes() == 1 })
        #expect(try await eventually { try leader.local.read { try LeaderStanding.fetchCount($0) } == 1 })
        Glibc.close(killed)
        #expect(try await eventually { try await scopes() == 0 })
        #expect(
            try await eventually {
                try leader.local.read { try Want.fetchCount($0) + LeaderStanding.fetchCount($0) } == 0
            })
        #expect(try folder.sockets.count == 1)
        leader.close()
    }

    @Test func aSilentOrNoisyProcessHoldsNobodyUp() async throws {
        let (first, second) = (try await folder.open(), try await folder.open())
        // It never reads.
        let noisy = try folder.bind("0123456789abcdef")
        for length in [0, 1, 17, 100_000] {
            for _ in 0..<1000 { try folder.ring(first, length, from: noisy) }
        }
        try second.local.write { try Facts($0).set("said", "something") }
        #expect(try await eventually { try await folder.hasSeenEverything(first) })
        #expect(try await folder.roles(first, second) == [.leader, .client])
        Glibc.close(noisy)
        first.close()
        second.close()
    }

    @Test func theLockAndTheSocketsAreTheUsersAlone() async throws {
        let process = try await folder.open()
        for (name, mode) in [
            ("engine.lock", 0o600), ("processes", 0o700), (try "processes/" + folder.sockets[0], 0o600),
        ] {
            let attributes = try FileManager.default.attributesOfItem(atPath: "\(folder.path)/\(name)")
            #expect(attributes[.posixPermissions] as? Int == mode)
        }
        process.close()
    }

    /// The database was replaced by a copy, and the leader still has what was there before.
    @Test func theLeaderOfAnotherDatabaseIsNone() async throws {
        let first = try await folder.open()
        let files = FileManager.default
        for name in try files.contentsOfDirectory(atPath: folder.path) where name.hasPrefix("device.sqlite") {
            try files.moveItem(atPath: "\(folder.path)/\(name)", toPath: "\(folder.path)/old-\(name)")
        }
        let second = try await folder.open()
        #expect(try await folder.roles(first, second) == [.leader, .alone])
        first.close()
        #expect(try await eventually { try await folder.roles(second) == [.leader] })
        second.close()
    }

    @Test func aLeaderOfAnotherReleaseOrASilentOneIsDoneWithout() async throws {
        var lock: FileLock? = try FileLock(folder.path + "/engine.lock")
        func leave(_ note: String) throws {
            try Data(note.utf8).write(to: URL(fileURLWithPath: folder.path + "/engine.lock"))
        }
        try leave("99 something else")
        let process = try await folder.open()
        #expect(try await folder.roles(process) == [.alone])
        for note in ["1", "2"] {
            try leave("\(HomeProcesses.format) \(process.local.identity ?? "") \(note)")
            #expect(try await eventually { try await folder.roles(process) == [.client] })
            #expect(try await eventually { try await folder.roles(process) == [.alone] })
        }
        withExtendedLifetime(lock) {}
        lock = nil
        #expect(try await eventually { try await folder.roles(process) == [.leader] })
        process.close()
    }

    /// On a full disk a process has a copy in memory, of which the others hear nothing: it must not hold them up.
    @Test func whoCannotWriteTakesNoPart() async throws {
        _ = try LocalStore(path: folder.path + "/device.sqlite")
        var full = DeviceOptions()
        full.fault = { if $0 == "open" { throw POSIXError(.ENOSPC) } }
        let (reader, writer) = (try await folder.open(full), try await folder.open())
        #expect(try await folder.roles(reader, writer) == [.alone, .leader])
        reader.close()
        writer.close()
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
    private let name = UUID().uuidString
    let path: String

    init() {
        path = NSTemporaryDirectory() + "/" + String(repeating: "long-", count: 30) + name
        try? FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func open(_ options: DeviceOptions? = nil) async throws -> Session {
        try await Session.open(home: URL(fileURLWithPath: path), options: options)
    }

    func roles(_ sessions: Session...) async throws -> [HomeRole] {
        var roles: [HomeRole] = []
        for session in sessions { roles.append(try await session.engine.perform { $1(.success($0.home.role)) }) }
        return roles
    }

    /// Whether the session has looked since others have written.
    func hasSeenEverything(_ session: Session) async throws -> Bool {
        try await session.engine.perform { engine, completion in
            completion(
                Result { try engine.local.foreignVersion() == engine.foreignVersion }.mapError(
                    CloudError.init(wrapping:)))
        }
    }

    var sockets: [String] {
        get throws { try FileManager.default.contentsOfDirectory(atPath: path + "/processes") }
    }

    /// A socket of a process that follows no rules.
    func bind(_ name: String) throws -> Int32 {
        // Programs that tests beside this one start would keep it.
        let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        try #require(withAddress(name) { Glibc.bind(descriptor, $0, $1) } == 0)
        return descriptor
    }

    /// Has all sessions look.
    func ring(_ session: Session, _ length: Int = 1, from descriptor: Int32? = nil) throws {
        let sender = descriptor ?? socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0)
        defer { if descriptor == nil { Glibc.close(sender) } }
        let bytes = [UInt8](repeating: 7, count: length)
        for name in try sockets {
            _ = withAddress(name) { Int32(sendto(sender, bytes, length, Int32(MSG_DONTWAIT), $0, $1)) }
        }
    }

    private func withAddress(_ name: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32) -> Int32 {
        let folder = Glibc.open(path + "/processes", O_RDONLY | O_DIRECTORY)
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
                .hasSuffix(name + "/engine.lock") == true
        }.count
    }
}
