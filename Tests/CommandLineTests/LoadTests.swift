import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// A measurement that is ended leaves nothing behind; and what a device needs to read very much is measured.
@Suite(.serialized) struct LoadTests {
    private let folder = NSTemporaryDirectory() + "nephos-load-test-" + UUID().uuidString

    init() throws {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    }

    private var load: Program { Program(name: "nephos-load", environment: ["TMPDIR": folder + "/"]) }
    private static let endless = ["kv-write", "--seconds", "600", "--writers", "1", "--quiet"]

    private func left() throws -> [String] { try FileManager.default.contentsOfDirectory(atPath: folder) }

    /// The deployment of the run, once it serves.
    private func waitForDeployment() async throws -> RunFolder {
        try await eventually("it runs") {
            guard let name = try left().first(where: { $0.hasPrefix("nephos-load-") }) else { return false }
            let run = RunFolder(deployment: "\(folder)/\(name)")
            return RunFolder.Place.ofServices.allSatisfy { run.holder(of: $0) != nil }
        }
        let name = try #require(try left().first { $0.hasPrefix("nephos-load-") })
        return RunFolder(deployment: "\(folder)/\(name)")
    }

    /// Each of them, and however it is ended.
    @Test(
        arguments: [SIGINT, SIGTERM, SIGHUP].map { (endless, $0) }
            + [
                ["kv-propagation", "--seconds", "600"], ["kv-read"], ["fan-out"], ["bulk"], ["query"], ["records"],
                ["scope"], ["crash"], ["hostile"],
            ].map { ($0, SIGTERM) })
    func anEndedRunLeavesNothing(command: [String], signal: Int32) async throws {
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let run = try load.start(command)
        var pids: [pid_t] = []
        if command == ["query"] {
            // It needs no services.
            try await eventually("it runs") { try !left().isEmpty }
        } else {
            let deployment = try await waitForDeployment()
            pids = RunFolder.Place.all.compactMap { deployment.holder(of: $0) }
        }
        run.signal(signal)
        #expect(await run.outcome().status == 128 + signal)
        #expect(try left().isEmpty)
        #expect(!pids.contains(where: isRunning))
    }

    private struct ScopeRow: Decodable {
        var items: Int
        var step: String
        var device_megabytes: Double
    }

    /// In memory all at once the items of the larger scope take more than twice the bound.
    @Test func aScopeOfAnySizeIsReadInBoundedMemory() async throws {
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let (few, many) = (500, 20_000)
        let outcome = try await load.run(
            "scope", "--items", "\(few),\(many)", "--changed", "\(many)", "--bytes", "2000", "--json", "--quiet")
        #expect(outcome.status == 0, "\(outcome.errors)")
        let rows = try JSONDecoder().decode(ScopeFigures.self, from: Data(outcome.output.utf8)).rows
        #expect(outcome.output.contains("\"env\"") && outcome.output.contains("\"load_before\""))
        #expect(rows.map(\.step) == ["whole scope", "one change", "verify", "whole scope", "one change", "verify"])
        for step in Set(rows.map(\.step)) {
            let row = try [few, many].map { items in
                try #require(rows.first { $0.items == items && $0.step == step })
            }
            let device = row[1].device_megabytes - row[0].device_megabytes
            // What others change meanwhile is told besides, and waits in queues that have bounds of their own.
            #expect(device < (step == "one change" ? 120 : 70), "\(step)")
        }
    }

    private struct ScopeFigures: Decodable {
        var rows: [ScopeRow]
    }

    @Test func whatAKilledRunLeftTheNextCommandRemoves() async throws {
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let run = try load.start(Self.endless)
        let deployment = try await waitForDeployment()
        run.signal(SIGKILL)
        _ = await run.outcome()
        try await eventually("its services end with it") {
            RunFolder.Place.all.allSatisfy { deployment.holder(of: $0) == nil }
        }
        #expect(try await load.run("clean").status == 0)
        #expect(try left().isEmpty)
    }

    @Test func aRealDeploymentKeepsNoAccountOfAnEndedRun() async throws {
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try await withHousehold { house in
            #expect(try await house.nephos.run("up").status == 0)
            func accounts() async throws -> String { try await house.nephos.run("account", "list", "--json").output }
            let run = try load.start(Self.endless + ["--deployment", house.deployment])
            while try await !accounts().contains("load.") {}
            run.signal(SIGTERM)
            #expect(await run.outcome().status == 128 + SIGTERM)
            #expect(try await accounts().trimmingCharacters(in: .whitespacesAndNewlines) == "[]")
            #expect(try await !house.nephos.run("app", "list", "--json").output.contains("LOAD."))

            let killed = try load.start(Self.endless + ["--deployment", house.deployment])
            while try await !accounts().contains("load.") {}
            killed.signal(SIGKILL)
            _ = await killed.outcome()
            #expect(try await load.run("clean", "--deployment", house.deployment).status == 0)
            #expect(try await accounts().trimmingCharacters(in: .whitespacesAndNewlines) == "[]")
        }
    }
}
