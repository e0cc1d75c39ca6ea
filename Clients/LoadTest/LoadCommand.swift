import ArgumentParser
import NephosServiceKit

@main
struct LoadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nephos-load",
        abstract: "Measures a deployment: throughput, latency, fan-out; and kills it to see what is left.",
        discussion: """
            Without --deployment it makes one of its own in a temporary folder, on this machine's loopback, and \
            removes it afterwards; in a given one it removes the account and the app that it made. Every run has a warm-up that is not counted. Latencies are percentiles of all \
            requests, from HDR histograms.
            """,
        subcommands: [
            KVWriteCommand.self, KVPropagationCommand.self, FanOutCommand.self, CrashCommand.self,
            KVReadCommand.self, BulkCommand.self, QueryCommand.self, RecordsCommand.self, HostileCommand.self,
            ScopeCommand.self, ScopeDevice.self, CleanCommand.self,
        ]
    )

    static func main() {
        StandardStreams.occupy()
        // Before there is any load of our own.
        _ = RunEnvironment.atStart
        Cleanup.shared.begin()
        main(nil)
    }
}

/// What every scenario takes.
struct LoadOptions: ParsableArguments {
    @Option(help: "A running deployment's folder (default: one made for this run).", completion: .directory)
    var deployment: String?

    @Option(help: "Seconds to measure.") var seconds = 5.0
    @Option(help: "Seconds to warm up, not counted.") var warmUp = 1.0
    @Option(help: "Runs of each setting; the one of median throughput is reported.") var runs = 3
    @Option(help: "Bytes of a value.") var bytes = 100
    @Flag(name: .long, help: "Print one JSON document instead of tables.") var json = false
    @Flag(name: .long, help: "No progress on standard error.") var quiet = false

    func validate() throws {
        guard seconds > 0, warmUp >= 0, runs > 0, bytes >= 0 else {
            throw ValidationError("--seconds and --runs must be above zero, --warm-up and --bytes not below.")
        }
    }
}

/// A list of numbers: `1,16,64,256`.
struct Numbers: ExpressibleByArgument {
    var values: [Int]

    init(_ values: [Int]) { self.values = values }

    init?(argument: String) {
        let parts = argument.split(separator: ",").map { Int($0) }
        guard !parts.isEmpty, parts.allSatisfy({ ($0 ?? 0) > 0 }) else { return nil }
        values = parts.compactMap { $0 }
    }

    var defaultValueDescription: String { values.map(String.init).joined(separator: ",") }
}
