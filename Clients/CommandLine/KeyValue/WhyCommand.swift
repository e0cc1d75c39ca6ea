import ArgumentParser
import Core
import Foundation
import NephosKit

struct WhyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "why",
        abstract: "Why a key is not in sync, or everything that waits: state, reason, who blocks it.",
        discussion: "Asks the server first, so that the reason is the one of now. The exit code is that of kv sync.")

    @Argument(help: "A key (default: everything that waits or was refused).") var key: String?
    @OptionGroup var store: StoreOptions
    @OptionGroup var wait: WaitOptions
    @OptionGroup var output: OutputOptions

    private struct Report: Encodable {
        struct Item: Encodable {
            var keys: [ItemName]
            var state: String
            var reason: String
            var blocker: String
            var attempts: Int
            var nextAttempt: UInt64?
            var operation: String
            /// What became of the last attempt.
            var error: String?
        }
        var state: String
        var inSync: Bool
        var initialSyncFinished: Bool
        var following: Bool
        var token: String
        var problem: String?
        var items: [Item]
    }

    func run() async throws {
        try await store.withStore { store, _ in
            let silence = try await Self.ask(store, within: wait.duration)
            let status = try await store.status()
            let standing = Standing(status, failure: silence)
            // Where the status knows of nothing, nothing was heard.
            let unheard = status.problem == nil ? silence.map(Standing.words) : nil
            var items = status.pending.map { pending in
                let reason = pending.state == .blocked || pending.state == .deferred ? nil : unheard
                return Report.Item(
                    keys: pending.keys, state: pending.state.rawValue, reason: reason ?? pending.reason,
                    blocker: reason == nil ? pending.blocker.rawValue : Blocker.network.rawValue,
                    attempts: pending.attempts, nextAttempt: pending.nextAttempt?.milliseconds,
                    operation: pending.id.description, error: pending.error.map(Standing.words))
            }
            items += status.refused.map { refused in
                Report.Item(
                    keys: [refused.key], state: "refused", reason: refused.error.message, blocker: "quota", attempts: 1,
                    nextAttempt: nil, operation: "-", error: refused.error.message)
            }
            if let key { items = items.filter { $0.keys.contains { $0.rawValue == key } } }
            let report = Report(
                state: standing.state.rawValue, inSync: standing.state == .inSync,
                initialSyncFinished: status.initialSyncFinished,
                following: status.isFollowing, token: status.head.description,
                problem: standing.cause.map(Standing.words), items: items)
            try output.print(report, text: Self.text(report, standing, key: key))
            if standing.cause != nil { try standing.end() }
            if !items.isEmpty { throw ExitStatus.outOfStep }
        }
    }

    /// Lets what waits be sent, as any command does, so that what is in the way of that is known.
    ///
    /// - Returns: Why the server was not heard; nil: it was.
    private static func ask(_ store: KeyValueStore, within limit: Duration) async throws -> CloudError? {
        do throws(CloudError) {
            try await store.waitUntilCurrent(timeout: limit, isImpatient: true)
            try await store.waitUntilSent(timeout: limit, isImpatient: true)
            return nil
        } catch {
            return ExitStatus.of(error) == .unreachable ? error : nil
        }
    }

    private static func text(_ report: Report, _ standing: Standing, key: String?) -> String {
        var lines: [String] = []
        if standing.cause != nil { lines.append(standing.headline) }
        if !report.initialSyncFinished { lines.append("The store has not been fetched yet.") }
        for item in report.items {
            let keys = item.keys.map { inLine($0.rawValue) }
            lines.append("\(keys.joined(separator: ", ")): \(item.state)")
            lines.append("  reason        \(item.reason)")
            lines.append("  blocked by    \(item.blocker)")
            lines.append("  attempts      \(item.attempts)")
            if let next = item.nextAttempt {
                lines.append("  next attempt  \(describe(Timestamp(milliseconds: next)))")
            }
            if item.state == "refused" {
                lines.append("  dismiss with  nephos kv discard \(keys.joined(separator: " "))")
            } else {
                lines.append("  operation     \(item.operation)")
            }
        }
        if lines.isEmpty {
            lines.append(
                key.map { "Nothing holds \(inLine($0)) up." } ?? "Nothing waits. The store is at \(report.token).")
        }
        return lines.joined(separator: "\n")
    }
}

struct VerifyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify", abstract: "Prove that this device has what the server has, or say what differs.",
        discussion: """
            Exit code 6: something differs or waits, or the server refused a write that nobody has dismissed \
            (nephos kv discard).
            """)

    @OptionGroup var store: StoreOptions
    @OptionGroup var wait: WaitOptions
    @OptionGroup var output: OutputOptions

    private struct Report: Encodable {
        var state: String
        var inSync: Bool
        var token: String
        var localDigest: String
        var serverDigest: String
        var pending: Int
        /// Keys of writes that the server refused and nobody has dismissed.
        var refused: [String]
        var differences: [String: String]
    }

    func run() async throws {
        try await store.withStore { store, _ in
            try await store.waitUntilCurrent(timeout: wait.duration, isImpatient: true)
            // What still waits then is reported, whatever holds it up.
            try? await store.waitUntilSent(timeout: wait.duration, isImpatient: true)
            let proof = try await store.verify(timeout: wait.duration)
            let status = try await store.status()
            let standing = Standing(status, proof: proof)
            let report = Report(
                state: standing.state.rawValue, inSync: standing.state == .inSync, token: proof.token.description,
                localDigest: proof.localDigest.description, serverDigest: proof.serverDigest.description,
                pending: proof.pending, refused: status.refused.map(\.key.rawValue),
                differences: Dictionary(proof.differences.map { ($0.key.rawValue, $0.kind.rawValue) }) { $1 })
            var lines = [standing.text, "  here    \(report.localDigest)", "  server  \(report.serverDigest)"]
            for difference in proof.differences {
                lines.append("  \(inLine(difference.key.rawValue)): \(difference.kind.rawValue)")
            }
            try output.print(report, text: lines.joined(separator: "\n"))
            try standing.end()
        }
    }
}
