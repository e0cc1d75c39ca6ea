import ArgumentParser
import Core
import Foundation
import Wire

struct SecretsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "secrets", abstract: "Replace a deployment's keys (needs the operator's secret).",
        subcommands: [RotateSigningKey.self])

    struct RotateSigningKey: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Sign access tokens with a new key. No restart; devices notice nothing.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let reply = try OperatorConnection(directory: deployment.directory)
                .call(.identity, WireRotateSigningKey(), returning: WireRotateSigningKeyReply.self)
            let from = Timestamp(milliseconds: reply.signsFrom)
            let until = Timestamp(milliseconds: reply.previousUntil)
            try output.print(
                [
                    "key_id": reply.keyID, "signs_from": "\(reply.signsFrom)",
                    "previous_until": "\(reply.previousUntil)",
                ],
                text: """
                    The key \(reply.keyID) signs from \(describe(from)) on.
                    The keys before it are void from \(describe(until)) on.
                    """)
        }
    }
}
