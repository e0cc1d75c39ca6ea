import ArgumentParser
import Foundation
import NephosCore
import NephosWire

extension AppCommand {
    struct Token: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create and revoke tokens that let devices without an account read a public database.",
            discussion: """
                You ship the token with your app. A device exchanges it for access tokens that are bound to its \
                key and live for minutes. They allow reading the records of one container that everyone may \
                read, and nothing else. The token is not a secret, because everyone who has the app can extract \
                it. If it is misused, revoke it and ship another one.
                """,
            subcommands: [CreateToken.self, ListTokens.self, Revoke.self])

        private struct Row: Encodable {
            var id: String
            var app: String
            var container: String
            /// Milliseconds since 1970.
            var created: UInt64
            var token: String?

            init(_ token: WireAppToken, text: String? = nil) {
                id = token.tokenID
                app = token.appID
                container = token.containerID
                created = token.createdAt
                self.token = text
            }
        }

        struct CreateToken: ParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "create", abstract: "Create a token for an app. It is shown once.")

            @Argument(help: "The app's id.") var app: String
            @Option(help: "One of the app's containers (default: the first).") var container: String?
            @OptionGroup var deployment: DeploymentOptions
            @OptionGroup var output: OutputOptions

            func run() throws {
                var request = WireCreateAppToken()
                request.appID = app
                request.containerID = container ?? ""
                let reply = try OperatorConnection(directory: deployment.directory)
                    .call(.identity, request, returning: WireCreateAppTokenReply.self)
                try output.print(Row(reply.token, text: reply.secret), text: reply.secret)
            }
        }

        struct ListTokens: ParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "list", abstract: "List an app's valid tokens.")

            @Argument(help: "The app's id.") var app: String
            @OptionGroup var deployment: DeploymentOptions
            @OptionGroup var columns: TableOptions
            @OptionGroup var output: OutputOptions

            func run() throws {
                var request = WireListAppTokens()
                request.appID = app
                let reply = try OperatorConnection(directory: deployment.directory)
                    .call(.identity, request, returning: WireListAppTokensReply.self)
                let rows = reply.tokens.map { Row($0) }
                try output.print(
                    rows,
                    text: rows.isEmpty
                        ? "The app has no tokens."
                        : table(
                            ["ID", "CONTAINER", "MADE"],
                            rows.map {
                                [
                                    $0.id, $0.container,
                                    Date(timeIntervalSince1970: Double($0.created) / 1000).ISO8601Format(),
                                ]
                            }))
            }
        }

        struct Revoke: ParsableCommand {
            static let configuration = CommandConfiguration(
                abstract: "Revoke a token: devices that use it are rejected within seconds.")

            @Argument(help: "The token's id (nephos app token list).") var id: String
            @OptionGroup var deployment: DeploymentOptions
            @OptionGroup var output: OutputOptions

            func run() throws {
                var request = WireRevokeAppToken()
                request.tokenID = id
                _ = try OperatorConnection(directory: deployment.directory)
                    .call(.identity, request, returning: WireRevokeAppTokenReply.self)
                try output.print(["id": id], text: "Revoked \(id).")
            }
        }
    }
}
