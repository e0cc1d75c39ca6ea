import Core
import Foundation
import ServiceKit
import Testing

/// How long commands wait for servers that take connections and say nothing.
@Suite(.serialized) struct WaitTests {
    @Test func everyCommandThatWaitsForAServerHasATimeout() async throws {
        // It asks nobody. A sign-out waits for five seconds at most, and is done then in any case.
        let others: Set = ["whoami", "sign-out"]
        let leaves = try await CommandDump.leaves(of: Program(name: "nephos"), values: [:])
        #expect(leaves.count > 30)
        for leaf in leaves where !others.contains(leaf.name) {
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
            let stopped = try [ServiceName.identity, .keyValue, .documents].map { try house.holder($0) }
            for pid in stopped { kill(pid, SIGSTOP) }
            defer { for pid in stopped { kill(pid, SIGCONT) } }

            let mirror = try await check(fresh, ["kv", "mirror", house.folder + "/defaults.json"], timeout: 3)
            #expect(mirror.output.contains("Waiting for the store: "), "\(mirror)")
            #expect(!mirror.output.contains("Mirroring"), "\(mirror)")
            for command in [["kv", "get", "k", "--app", "TEST.notes"], ["storage"], ["account", "password"]] {
                _ = try await check(house.person, command)
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
}
