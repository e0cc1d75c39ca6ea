import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import NephosWire
import NephosZeroMQ

extension AccountCommand {
    struct AppPassword: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create, list and revoke passwords for programs that use WebDAV.",
            discussion: """
                Give each program a password of its own, and not the account's. It reaches the documents and \
                nothing else, and you can revoke it without changing anything for other programs. \
                How to connect a program: docs/web.md
                """,
            subcommands: [CreatePassword.self, ListPasswords.self, Revoke.self])

        enum Scope: String, CaseIterable, ExpressibleByArgument {
            case webdav

            var wire: WireAppPasswordScope { .webdav }
        }

        private struct Row: Encodable {
            var id: String
            var name: String
            var scope: String
            /// Milliseconds since 1970.
            var created: UInt64
            /// Nil: never.
            var lastUsed: UInt64?
            /// Only when it is created.
            var password: String?

            init(_ wire: WireAppPassword, password: String? = nil) {
                id = wire.passwordID
                name = wire.name
                scope = wire.scope == .webdav ? Scope.webdav.rawValue : "unknown"
                created = wire.createdAt
                lastUsed = wire.lastUsedAt == 0 ? nil : wire.lastUsedAt
                self.password = password
            }
        }

        private static func passwords(_ speaker: SpeakerOptions) async throws -> [WireAppPassword] {
            try await speaker.call(returning: WireListAppPasswordsReply.self) { account in
                var request = WireListAppPasswords()
                request.accountName = account
                return request
            }.appPasswords
        }

        struct CreatePassword: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "create", abstract: "Create an app password. It is shown once.")

            @Argument(help: "A name, such as the program's or the device's.") var name: String
            @Option(help: "The program's rights.") var scope = Scope.webdav
            @OptionGroup var speaker: SpeakerOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                let reply = try await speaker.call(returning: WireCreateAppPasswordReply.self) { account in
                    var request = WireCreateAppPassword()
                    (request.accountName, request.name, request.scope) = (account, name, scope.wire)
                    return request
                }
                let next = Terminal.hint("\nIt is not shown again. Use it with the account's name.")
                try output.print(
                    Row(reply.appPassword, password: reply.secret), text: reply.secret + next)
            }
        }

        struct ListPasswords: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "list", abstract: "List the account's app passwords.")

            @OptionGroup var speaker: SpeakerOptions
            @OptionGroup var columns: TableOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                let rows = try await AppPassword.passwords(speaker).map { Row($0) }
                let now = SystemClock().now
                try output.print(
                    rows,
                    text: rows.isEmpty
                        ? "The account has no app passwords."
                        : table(
                            ["NAME", "SCOPE", "CREATED", "LAST USED", "ID"],
                            rows.map {
                                [
                                    $0.name, $0.scope, tableTime(Timestamp(milliseconds: $0.created), now: now),
                                    $0.lastUsed.map { tableTime(Timestamp(milliseconds: $0), now: now) } ?? "never",
                                    $0.id,
                                ]
                            }))
            }
        }

        struct Revoke: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                abstract: "Revoke an app password: programs that use it are rejected within seconds.")

            @Argument(help: "Its name or id (nephos account app-password list).") var target: String
            @OptionGroup var speaker: SpeakerOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                let passwords = try await AppPassword.passwords(speaker)
                guard
                    let password = passwords.first(where: { $0.name == target })
                        ?? passwords.first(where: { $0.passwordID == target })
                else {
                    throw CloudError(
                        .unknownItem, "The account has no such app password. See: nephos account app-password list")
                }
                _ = try await speaker.call(returning: WireRevokeAppPasswordReply.self) { account in
                    var request = WireRevokeAppPassword()
                    (request.accountName, request.passwordID) = (account, password.passwordID)
                    return request
                }
                try output.print(Row(password), text: "Revoked \(password.name).")
            }
        }
    }
}
