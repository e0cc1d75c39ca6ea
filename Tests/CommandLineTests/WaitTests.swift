import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// How long commands wait for servers that take connections and say nothing.
@Suite(.serialized) struct WaitTests {
    @Test func everyCommandThatWaitsForAServerHasATimeout() async throws {
        let leaves = try await CommandDump.leaves(of: Program(name: "nephos"), values: [:])
        #expect(leaves.count > 30)
        // They are about what is here, and ask nobody.
        let local = [
            "whoami", "completions", "console", "docs evict", "docs cache", "docs pause", "backup verify",
            "backup list",
            "agent add", "agent list", "agent remove", "agent status", "agent allow", "agent restore",
            "agent pause", "agent resume", "agent policy", "agent check",
        ]
        for leaf in leaves where !local.contains(leaf.name) {
            #expect(leaf.options.contains("timeout"), "\(leaf.name)")
        }
    }

    /// Far from the ten seconds, and more, that each would wait otherwise; a busy machine needs room.
    private static let limit: Duration = .seconds(8)

    private func check(
        _ program: Program, _ command: [String], timeout: Int = 1
    ) async throws -> Program.Outcome {
        let start = ContinuousClock.now
        let outcome = try await program.run(command + ["--timeout", "\(timeout)"])
        #expect(start.duration(to: .now) < Self.limit, "\(command)")
        #expect(outcome.status == 5, "\(command): \(outcome)")
        return outcome
    }

    @Test func theTimeoutIsHeededWhereverACommandWaits() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.nephos.run("app", "create", "TEST.notes").status == 0)
            let fresh = try await house.anotherDevice("fresh")
            let stopped = try [ServiceName.identity, .keyValue, .documents, .records].map { try house.holder($0) }
            for pid in stopped { kill(pid, SIGSTOP) }
            defer { for pid in stopped { kill(pid, SIGCONT) } }

            let mirror = try await check(fresh, ["kv", "mirror", house.folder + "/defaults.json"], timeout: 3)
            #expect(mirror.output.contains("Waiting for the store: "), "\(mirror)")
            #expect(!mirror.output.contains("Mirroring"), "\(mirror)")
            for command in [["kv", "get", "k", "--app", "TEST.notes"], ["storage"], ["account", "password"]] {
                _ = try await check(house.person, command)
            }
            for command in [
                ["records", "ls"], ["records", "changes"], ["records", "explain"], ["records", "index"],
            ] {
                _ = try await check(fresh, command)
            }
            // Each has services started again, or waits for one.
            for command in [
                ["secrets", "rotate-signing-key"], ["secrets", "rotate-master-keys", "--service", "documents"],
                ["secrets", "rotate-master-keys", "--service", "documents", "--restarted"],
                ["secrets", "rotate-service-keys"], ["secrets", "rotate-operator-key"], ["advertise", "127.0.0.1"],
            ] {
                _ = try await check(house.nephos, command)
            }
        }
    }

    /// It waits for five seconds where nothing is said, and is done in any case.
    @Test func aSignOutWaitsAsLongAsItIsTold() async throws {
        try await withHousehold { house in
            try await house.begin()
            let other = try await house.anotherDevice("other")
            let identity = try house.holder(.identity)
            kill(identity, SIGSTOP)
            defer { kill(identity, SIGCONT) }
            func time(_ device: Program, _ timeout: Int) async throws -> Duration {
                let start = ContinuousClock.now
                let outcome = try await device.run("sign-out", "--timeout", "\(timeout)")
                #expect(outcome.status == 0, "\(outcome)")
                #expect(outcome.output.contains("The server could not be told"), "\(outcome)")
                return start.duration(to: .now)
            }
            let long = try await time(house.person, 10)
            let short = try await time(other, 1)
            #expect(long >= .seconds(10) && short < long - .seconds(6), "\(long), \(short)")
        }
    }
}
