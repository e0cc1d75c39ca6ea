import ArgumentParser
import Foundation
import NephosCore

struct CrashCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "crash", abstract: "Kills each service under load, again and again, and looks for what is gone.",
        discussion: """
            Writers push transactions of three keys, and renew tokens that live ten seconds, while real devices \
            follow the store. In each round every service gets a SIGKILL in its turn. After each, all writers have \
            to be served; the last transactions of each have to be there, and no half one, on the server and on the \
            devices; and no two may have been acknowledged with the same place in the feed. In the end all digests have to be equal. Anything else is exit code 1.
            """)

    @Option(help: "Rounds: how often each service is killed.") var kills = 20
    @Option(help: "Writers, each with one transaction in flight.") var writers = 64
    @Option(help: "Devices that follow the store.") var followers = 4
    @Flag(help: "SIGTERM instead of SIGKILL: each stops in good order, under load until its end.") var orderly = false
    @Flag(name: .long, help: "Print one JSON document.") var json = false
    @Flag(name: .long, help: "No progress on standard error.") var quiet = false

    func validate() throws {
        guard kills > 0, followers >= 0, (1...68).contains(writers) else {
            throw ValidationError("--kills must be above zero, and --writers at most 68 (15 keys each of 1024).")
        }
    }

    func run() throws {
        let deployment = try LoadDeployment(directory: nil, tokenLifetime: CrashRun.tokenLifetime)
        defer { deployment.close() }
        let progress = Progress(quiet: quiet)
        let run = try CrashRun(
            deployment, writers: writers, followers: followers, signal: orderly ? SIGTERM : SIGKILL, progress: progress)
        defer { run.close() }
        let summary = try run.run(kills: kills)
        progress.done()
        if json {
            try printJSON(summary)
            return
        }
        print(
            """
            \(summary.kills) \(orderly ? "stops" : "kills") under \(writers) writers: nothing lost.
              \(summary.transactions) transactions acknowledged, all there, each as a whole (\(summary.checkedStates) states looked at)
              all \(followers) followers ended with the server's digest
              served again after \(Int(summary.recoveryMedian)) ms (median), \(Int(summary.recoveryMax)) ms (longest)\(orderly ? "\n  each had ended after \(Int(summary.stopMedian)) ms (median), \(Int(summary.stopMax)) ms (longest)" : "")
            """)
    }
}
