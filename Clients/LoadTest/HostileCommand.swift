import ArgumentParser
import Foundation
import NephosCore

struct HostileCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "hostile", abstract: "Measures an honest device while ten others do what costs most.",
        discussion: """
            A deployment of its own, with the budgets that it has by default. Ten devices of two accounts ask as \
            often as their budgets let them: four pull a full store of 1 MiB again and again, one asks for it and \
            reads nothing, two push 1.27 MB that is refused, one deletes 2048 keys that never were at a time, one \
            overwrites 1000 keys at a time, one loses to values of 100 KB. Their threads have a low priority: such \
            devices have machines of their own. A device of a third account writes 50 small values a second \
            meanwhile, and before. Its 99th percentile has to stay below --p99, and no service may grow by more \
            than --growth; else the exit code is 1.
            """)

    @Option(help: "Seconds to measure, once alone and once with the others.") var seconds = 15.0
    @Option(name: .customLong("p99"), help: "Milliseconds.") var p99Max = 20.0
    @Option(help: "Megabytes.") var growth = 200.0
    @Flag(name: .customLong("rude"), help: "The hostile devices ask again at once when they are told to wait.")
    var isRude = false
    @Option(
        help: ArgumentHelp(
            "Only those who do this, to see what it alone costs an honest device.",
            discussion: "unread-health: strangers ask 100,000 times for health, and read nothing; not among the ten."))
    var only: HostileRun.Kind?
    @Flag(name: .long, help: "Print one JSON document.") var json = false
    @Flag(name: .long, help: "No progress on standard error.") var quiet = false

    func validate() throws {
        guard seconds >= 1, seconds <= 600 else { throw ValidationError("--seconds is from 1 to 600.") }
    }

    func run() throws {
        let deployment = try LoadDeployment(directory: nil, hasBudgets: true)
        defer { deployment.close() }
        let progress = Progress(quiet: quiet)
        let summary = try HostileRun(deployment, isRude: isRude, only: only, progress: progress)
            .run(for: .seconds(seconds))
        progress.done()
        try report(summary, json: json)
        let missed = missed(summary)
        guard missed.isEmpty else {
            FileHandle.standardError.write(Data("nephos-load: \(missed.joined(separator: "; ")).\n".utf8))
            throw ExitCode(1)
        }
    }

    /// What was not within its bounds.
    private func missed(_ summary: HostileSummary) -> [String] {
        var missed: [String] = []
        if summary.attacked.p99 >= p99Max {
            missed.append("attacked, the p99 is not under \(p99Max) ms (--p99)")
        }
        for service in summary.services where service.after - service.before > growth {
            missed.append("\(service.name) has grown by more than \(growth) MB (--growth)")
        }
        if !summary.failures.isEmpty { missed.append("writes of the honest device failed") }
        return missed
    }
}

extension HostileRun.Kind: ExpressibleByArgument {}

struct HostileSummary: RunSummary {
    struct Service: Encodable {
        var name: String
        /// Resident megabytes: after the honest device alone, and after all.
        var before, after: Double
    }

    var alone: LatencySummary
    var attacked: LatencySummary
    /// How many of the honest device's writes failed, by the code of their error.
    var failures: [String: Int]
    /// What the hostile devices were answered, by what they did: done, and refused.
    var hostile: [String: [Int]]
    var services: [Service]

    var text: String {
        func line(_ name: String, _ figures: LatencySummary) -> String {
            "  " + name + String(format: "  p50 %.2f  p99 %.2f  slowest %.2f ms", figures.p50, figures.p99, figures.max)
        }
        let doings = hostile.sorted { $0.key < $1.key }.map {
            "  \($0.key): \($0.value[0]) done, \($0.value[1]) refused"
        }
        let memory = services.map { "  \($0.name): " + String(format: "%.0f MB, then %.0f MB", $0.before, $0.after) }
        let failed =
            failures.isEmpty
            ? "none failed"
            : failures.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
        return
            (["The honest device's writes (\(failed))", line("alone   ", alone), line("attacked", attacked)]
            + ["The ten others"] + doings + ["Memory"] + memory).joined(separator: "\n")
    }
}
