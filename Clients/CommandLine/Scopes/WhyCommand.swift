import ArgumentParser
import Foundation
import NephosCore
import NephosKit

struct WhyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "why",
        abstract: "Explain why changes are pending or rejected, and what blocks them.",
        discussion: """
            The server is asked first, so the reasons are current. Exit code 0: in sync. Exit code 6: a \
            change is pending or rejected.
            """)

    @Argument(help: "An item, such as a key (default: all pending and rejected changes).") var item: String?
    @OptionGroup var scopes: ScopeOptions
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
        /// How to write that again.
        var recovery: String?
        /// The file that has its content.
        var keptFile: String?

        var json: PropertyValue {
            var fields: [ItemName: PropertyValue] = [
                "keys": .array(keys.map { .string($0.rawValue) }), "state": .string(state), "reason": .string(reason),
                "blocker": .string(blocker), "attempts": .integer(Int64(attempts)), "operation": .string(operation),
            ]
            fields["next_attempt"] = nextAttempt.map { .integer(Int64(clamping: $0.milliseconds)) }
            fields["error"] = error.map { .string($0) }
            fields["value"] = value
            fields["recovery"] = recovery.map { .string($0) }
            fields["kept_file"] = keptFile.map { .string($0) }
            return .dictionary(fields)
        }
    }

    /// What there is to say of one scope.
    private struct Report {
        var scope: Scope
        var status: StoreStatus
        var standing: Standing
        var items: [Item]
        var leftBehind: [StoreStatus.LeftBehind]

        init(_ scope: Scope, _ asked: Asked, of name: String?) {
            self.scope = scope
            status = asked.status
            standing = Standing(status, failure: asked.failure)
            // Where the status knows of nothing, nothing was heard.
            let unheard = status.problem == nil ? asked.failure.map(Standing.words) : nil
            items = status.pending.map { pending in
                let reason = pending.state == .blocked || pending.state == .deferred ? nil : unheard
                return Item(
                    keys: pending.keys, state: pending.state.rawValue, reason: reason ?? pending.reason,
                    blocker: reason == nil ? pending.blocker.rawValue : Blocker.network.rawValue,
                    attempts: pending.attempts, nextAttempt: pending.nextAttempt,
                    operation: pending.id.description, error: pending.error.map(Standing.words))
            }
            items += status.refused.map { refused in
                Item(
                    keys: [refused.key], state: refused.isDropped ? "dropped" : "refused",
                    reason: refused.error.sentence,
                    blocker: refused.blocker.rawValue, attempts: refused.isDropped ? 0 : 1,
                    operation: "-", error: refused.error.sentence, value: refused.value, recovery: refused.recovery,
                    keptFile: refused.keptFile)
            }
            leftBehind = status.leftBehind
            guard let name = name.map(scope.itemName(typed:)) else { return }
            items = items.filter { $0.keys.contains { $0.rawValue == name } }
            leftBehind = leftBehind.filter { $0.names.contains { $0.rawValue == name } }
        }

        var json: PropertyValue {
            var report: [ItemName: PropertyValue] = [
                "state": .string(standing.state.rawValue), "in_sync": .boolean(standing.state == .inSync),
                "initial_sync_finished": .boolean(status.initialSyncFinished),
                "following": .boolean(status.isFollowing), "token": .string(status.head.description),
                "items": .array(items.map(\.json)),
                "left_behind": .array(
                    leftBehind.map { left in
                        [
                            "store": .string(left.place), "keys": .array(left.names.map { .string($0.rawValue) }),
                            "since": .integer(Int64(clamping: left.since.milliseconds)),
                        ]
                    }),
            ]
            report["problem"] = standing.cause.map { .string(Standing.words($0)) }
            report["following_problem"] = status.followingProblem.map { .string(Standing.words($0)) }
            return .dictionary(scope.names.merging(report) { $1 })
        }

        /// - Throws: ``ExitStatus`` unless there is nothing to say.
        func end(isOfItem: Bool) throws(ExitStatus) {
            if !isOfItem || standing.cause != nil { try standing.end() }
            if !items.isEmpty || !leftBehind.isEmpty { throw ExitStatus.outOfStep }
        }
    }

    func run() async throws {
        try await scopes.withScopes(within: wait.duration) { scopes, session in
            let (name, limit) = (item, wait.duration)
            let reports = try await scopes.each(in: session) {
                Report($0, try await Asked($0, within: limit), of: name)
            }
            if let name, reports.allSatisfy({ $0.items.isEmpty && $0.leftBehind.isEmpty && $0.standing.cause == nil }) {
                var isThere = false
                for scope in scopes where !isThere { isThere = try await scope.mayHave(name, session) }
                guard isThere else {
                    throw CloudError(.unknownItem, "There is no item \(inLine(name)).", details: ["item": name])
                }
            }
            let text = sections(
                reports.map { report in
                    let scope = report.scope
                    let (option, options) = (scope.option(session), scope.options(session))
                    return (scope, self.text(report, option: option, of: scopes.count > 1 ? options : option))
                })
            // Files that the agent cannot send are in no scope.
            let isOfAll = name == nil && self.scopes.isAll
            let folders = isOfAll ? try await FolderStatus.all(session).filter { !$0.isSettled } : []
            try output.print(
                .array(reports.map(\.json) + folders.map(\.whyJSON)),
                text: ([text] + folders.map(\.text)).joined(separator: "\n"))
            for report in reports { try report.end(isOfItem: name != nil) }
            if !folders.isEmpty { throw ExitStatus.outOfStep }
        }
    }

    /// Of what else there is, the count is said; JSON has all.
    private static let shownMax = 20

    /// - Parameters:
    ///   - option: What says in a command which app is meant.
    ///   - options: Which of all that is kept in step.
    private func text(_ report: Report, option: String, of options: String) -> String {
        let (status, standing) = (report.status, report.standing)
        var lines: [String] = []
        if standing.cause != nil { lines.append(standing.headline) }
        if !status.initialSyncFinished { lines.append("The store has not been fetched yet.") }
        let said = standing.cause.map(Standing.words)
        for item in report.items.prefix(Self.shownMax) { lines += self.lines(item, options, unless: said) }
        if report.items.count > Self.shownMax {
            lines.append("and \(report.items.count - Self.shownMax) more: nephos why --json")
        }
        for left in report.leftBehind { lines += self.lines(left, option) }
        if lines.isEmpty {
            if let item {
                lines.append("Nothing of \(inLine(item)) waits.")
            } else if standing.state == .inSync {
                lines += ["Nothing waits. It is at \(status.head)."] + standing.notes
            } else {
                lines.append(standing.text)
            }
        }
        return lines.joined(separator: "\n")
    }

    /// - Parameter said: A reason that need not be said again.
    private func lines(_ item: Item, _ options: String, unless said: String?) -> [String] {
        let keys = item.keys.map { inLine($0.rawValue) }
        var lines = ["\(listed(keys)): \(item.state == "refused" ? "rejected" : item.state)"]
        if item.reason != said { lines.append("  reason        \(item.reason)") }
        lines += ["  blocked by    \(item.blocker)", "  attempts      \(item.attempts)"]
        if let next = item.nextAttempt { lines.append("  next attempt  \(describe(next))") }
        guard item.state == "refused" || item.state == "dropped" else {
            return lines + ["  operation     \(item.operation)"]
        }
        if let value = item.value {
            lines.append("  value         \(self.item == nil ? value.line : inLine(value.text))")
        }
        if let file = item.keptFile { lines.append("  kept in       \(inLine(file))") }
        if let recovery = item.recovery {
            let isForRoom = item.blocker == Blocker.quota.rawValue
            lines.append("  set it again  \(isForRoom ? "make room (nephos storage), then: " : "")\(inLine(recovery))")
        }
        let names = ShellCommand.arguments(item.keys.map(\.rawValue))
        lines.append("  dismiss with  nephos discard\(options) \(names)")
        return lines
    }

    private func lines(_ left: StoreStatus.LeftBehind, _ option: String) -> [String] {
        [
            "\(listed(left.names.map { inLine($0.rawValue) })): left behind",
            "  reason        They were written for the store \(inLine(left.place)), which the app no longer has.",
            "  since         \(describe(left.since))",
            "  adopt with    nephos kv adopt\(option)",
            "  give up with  nephos discard\(option) --left-behind",
        ]
    }
}

extension Scope {
    /// Whether this device's copy has an item of this name, as `why` takes one: a key, a path, a record or a zone. True
    /// where that is not known.
    fileprivate func mayHave(_ name: String, _ session: Session) async throws -> Bool {
        guard try await status().initialSyncFinished else { return true }
        switch id.service {
        case .keyValue: return try session.keyValueStore(app: id.app).read(name).value != nil
        case .documents:
            // What can be no path is none.
            let container = try await session.container(id.name, app: id.app)
            return (try? await container.item(at: DocumentArgument(name))) ?? nil != nil
        case .records:
            let parts = id.name.split(separator: "/", maxSplits: 1).map(String.init)
            guard let container = parts.first, parts.last?.hasPrefix("_public") != true else { return true }
            let database = try await session.recordContainer(container, app: id.app).privateDatabase
            guard parts.count > 1 else { return try await database.zones.zone(name) != nil }
            return try await !database.records([RecordID(name, zone: parts[1])], from: .localOnly).isEmpty
        default: return true
        }
    }
}

extension PropertyValue {
    private static let lineMax = 60

    /// One line of a terminal: what is longer is cut, and its size said.
    var line: String {
        let text = text
        let start = inLine(String(text.prefix(Self.lineMax + 1)))
        guard start.count > Self.lineMax else { return start }
        return start.prefix(Self.lineMax - 1) + "… (\(describe(bytes: UInt64(text.utf8.count))))"
    }
}
