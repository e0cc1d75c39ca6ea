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

    private struct Item {
        var keys: [ItemName]
        var state: String
        var reason: String
        var blocker: String
        var attempts: Int
        var nextAttempt: Timestamp?
        var operation: String
        /// What became of the last attempt.
        var error: String?
        /// What the server refused.
        var value: PropertyValue?

        var json: PropertyValue {
            var fields: [ItemName: PropertyValue] = [
                "keys": .array(keys.map { .string($0.rawValue) }), "state": .string(state), "reason": .string(reason),
                "blocker": .string(blocker), "attempts": .integer(Int64(attempts)), "operation": .string(operation),
            ]
            fields["next_attempt"] = nextAttempt.map { .integer(Int64(clamping: $0.milliseconds)) }
            fields["error"] = error.map { .string($0) }
            fields["value"] = value
            return .dictionary(fields)
        }
    }

    func run() async throws {
        try await store.withStore(within: wait.duration) { store, _ in
            let asked = try await Asked(store, within: wait.duration)
            let status = asked.status
            let standing = Standing(status, failure: asked.failure)
            // Where the status knows of nothing, nothing was heard.
            let unheard = status.problem == nil ? asked.failure.map(Standing.words) : nil
            var items = status.pending.map { pending in
                let reason = pending.state == .blocked || pending.state == .deferred ? nil : unheard
                return Item(
                    keys: pending.keys, state: pending.state.rawValue, reason: reason ?? pending.reason,
                    blocker: reason == nil ? pending.blocker.rawValue : Blocker.network.rawValue,
                    attempts: pending.attempts, nextAttempt: pending.nextAttempt,
                    operation: pending.id.description, error: pending.error.map(Standing.words))
            }
            items += status.refused.map { refused in
                Item(
                    keys: [refused.key], state: "refused", reason: refused.error.message, blocker: "quota", attempts: 1,
                    operation: "-", error: refused.error.message, value: refused.value)
            }
            if let key { items = items.filter { $0.keys.contains { $0.rawValue == key } } }
            var report: [ItemName: PropertyValue] = [
                "state": .string(standing.state.rawValue), "in_sync": .boolean(standing.state == .inSync),
                "initial_sync_finished": .boolean(status.initialSyncFinished),
                "following": .boolean(status.isFollowing), "token": .string(status.head.description),
                "items": .array(items.map(\.json)),
            ]
            report["problem"] = standing.cause.map { .string(Standing.words($0)) }
            try output.print(.dictionary(report), text: text(items, status, standing))
            if key == nil || standing.cause != nil { try standing.end() }
            if !items.isEmpty { throw ExitStatus.outOfStep }
        }
    }

    /// Of what else there is, the count is said; JSON has all.
    private static let shownMax = 20
    private static let valueMax = 60

    private func text(_ items: [Item], _ status: StoreStatus, _ standing: Standing) -> String {
        var lines: [String] = []
        if standing.cause != nil { lines.append(standing.headline) }
        if !status.initialSyncFinished { lines.append("The store has not been fetched yet.") }
        for item in items.prefix(Self.shownMax) { lines += self.lines(item) }
        if items.count > Self.shownMax {
            lines.append("and \(items.count - Self.shownMax) more: nephos why --json")
        }
        if lines.isEmpty {
            if let key {
                lines.append("Nothing holds \(inLine(key)) up.")
            } else if standing.state == .inSync {
                lines.append("Nothing waits. The store is at \(status.head).")
            } else {
                lines.append(standing.text)
            }
        }
        return lines.joined(separator: "\n")
    }

    private func lines(_ item: Item) -> [String] {
        let keys = item.keys.map { inLine($0.rawValue) }
        var lines = [
            "\(listed(keys)): \(item.state)",
            "  reason        \(item.reason)",
            "  blocked by    \(item.blocker)",
            "  attempts      \(item.attempts)",
        ]
        if let next = item.nextAttempt { lines.append("  next attempt  \(describe(next))") }
        guard item.state == "refused" else { return lines + ["  operation     \(item.operation)"] }
        if let value = item.value {
            let text = inLine(value.text)
            lines.append("  value         \(key == nil ? shortened(text, to: Self.valueMax) : text)")
        }
        let name = keys.joined(separator: " ")
        lines.append("  set it again  make room (nephos storage), then: nephos kv set \(name) VALUE")
        lines.append("  dismiss with  nephos kv discard \(name)")
        return lines
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
        try await store.withStore(within: wait.duration) { store, _ in
            let asked = try await Asked(store, within: wait.duration)
            // What was fetched is compared, whatever holds up what still waits.
            if asked.isInVain, !asked.isHeard, let cause = Standing(asked.status, failure: asked.failure).cause {
                throw asked.details(for: cause)
            }
            let proof = try await store.verify(timeout: wait.duration)
            let status = try await store.status()
            let standing = Standing(status, proof: proof, failure: asked.failure)
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
