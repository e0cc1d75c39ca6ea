import ArgumentParser
import Core
import Foundation
import NephosKit

struct WhyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "why",
        abstract: "Why a key is not in sync, or everything that waits: state, reason, who blocks it.")

    @Argument(help: "A key (default: everything that waits or was refused).") var key: String?
    @OptionGroup var store: StoreOptions
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
            var error: String?
        }
        var inSync: Bool
        var initialSyncFinished: Bool
        var following: Bool
        var token: String
        var problem: String?
        var items: [Item]
    }

    func run() async throws {
        try await store.withStore { store, _ in
            let status = try await store.status()
            var items = status.pending.map { pending in
                Report.Item(
                    keys: pending.keys, state: pending.state.rawValue, reason: pending.reason,
                    blocker: pending.blocker.rawValue, attempts: pending.attempts,
                    nextAttempt: pending.nextAttempt?.milliseconds, operation: pending.id.description,
                    error: pending.error?.description)
            }
            items += status.refused.map { refused in
                Report.Item(
                    keys: [refused.key], state: "refused", reason: refused.error.message, blocker: "quota", attempts: 1,
                    nextAttempt: nil, operation: "-", error: refused.error.description)
            }
            if let key { items = items.filter { $0.keys.contains { $0.rawValue == key } } }
            let report = Report(
                inSync: status.isInSync, initialSyncFinished: status.initialSyncFinished,
                following: status.isFollowing, token: status.head.description,
                problem: status.problem?.description, items: items)
            try output.print(report, text: Self.text(report, key: key))
            if let problem = status.problem { throw ExitStatus.of(problem) }
            if !items.isEmpty { throw ExitStatus.outOfStep }
        }
    }

    private static func text(_ report: Report, key: String?) -> String {
        var lines: [String] = []
        if let problem = report.problem { lines.append("The store: \(problem)") }
        if !report.initialSyncFinished { lines.append("The store has not been fetched yet.") }
        for item in report.items {
            lines.append("\(item.keys.map(\.rawValue).joined(separator: ", ")): \(item.state)")
            lines.append("  reason        \(item.reason)")
            lines.append("  blocked by    \(item.blocker)")
            lines.append("  attempts      \(item.attempts)")
            if let next = item.nextAttempt {
                lines.append("  next attempt  \(describe(Timestamp(milliseconds: next)))")
            }
            if item.state == "refused" {
                lines.append("  dismiss with  nephos kv discard \(item.keys.map(\.rawValue).joined(separator: " "))")
            } else {
                lines.append("  operation     \(item.operation)")
            }
        }
        if lines.isEmpty {
            lines.append(key.map { "Nothing holds \($0) up." } ?? "Nothing waits. The store is at \(report.token).")
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
            for difference in proof.differences { lines.append("  \(difference.key): \(difference.kind.rawValue)") }
            try output.print(report, text: lines.joined(separator: "\n"))
            try standing.end()
        }
    }
}
