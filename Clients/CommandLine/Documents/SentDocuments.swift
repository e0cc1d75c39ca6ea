import Foundation
import NephosCore
import NephosKit

/// Waits for the server's word on changes, and says how it went.
struct SentDocuments {
    private struct Report: Encodable {
        var state: String
        var items: [DocumentRow]
        /// Folders that were to be made, and were there.
        var existing: [String]?
        /// What was deleted in one go.
        var batch: String?
        var reason: String?
        /// Paths of items that another device has made or changed too: both contents are kept.
        var conflicts: [String]?
        /// What could not be done.
        var failures: [ItemFailures.Row]?
        /// Of what was put: how much was new, changed, and so on.
        var put: PutSummary?
    }

    /// A refusal: of one path there may be several.
    private struct Refusal: Hashable {
        var path: String
        var at: Timestamp

        init(_ write: RefusedWrite) { (path, at) = (write.key.rawValue, write.at) }
    }

    private let container: UbiquityContainer
    /// What was refused before, and what waited: of that somebody else may hear.
    private let refused: Set<Refusal>
    private let waiting: [String: [DocumentID: DocumentID]]
    private let waitingNames: [DocumentID: WaitingName]
    /// What waited, by the requests' places.
    private let requests: Set<Int64>

    init(_ container: UbiquityContainer) async throws {
        self.container = container
        let status = try await container.scope.status()
        refused = Set(status.refused.map(Refusal.init))
        requests = Set(status.pending.map(\.position))
        waiting = try await container.outbox.paths()
        waitingNames = try await container.outbox.names()
    }

    /// - Parameters:
    ///   - items: What was changed, as it is here.
    ///   - existing: Paths of those that were so already; nil: that is not what the command is about.
    ///   - failures: What of it could not be done.
    ///   - removed: Paths of what was ended by it, and is no item any more.
    ///   - isPut: Whether the items were to have contents that they may have had already, unsent.
    ///   - then: Done once the server has all of it; says what a person should know of that.
    ///   - put: What was put, if the command has put files.
    ///   - others: What was changed in other containers besides, and what waits for that there.
    ///   - done: What was done here.
    /// - Throws: ``CloudError`` of a refusal; ``ExitStatus`` `.outOfStep` for conflicts, and for what had waited and got
    ///   another name, once all is printed.
    func wait(
        _ items: [DocumentEntry], _ network: DocumentsCommand.NetworkOptions, _ output: OutputOptions,
        existing: [String]? = nil, batch: DocumentID? = nil, failures: ItemFailures = ItemFailures(),
        removed: [String] = [],
        isPut: Bool = false, then: (() async throws -> [String])? = nil,
        put: PutSummary? = nil, leaving others: [(items: [DocumentEntry], sent: SentDocuments)] = [],
        done: String
    ) async throws {
        var report = Report(
            state: "queued", items: items.map(DocumentRow.init), existing: existing, batch: batch?.description,
            failures: failures.isEmpty ? nil : failures.rows, put: put)
        /// Prints the report. Conflicts are told of as soon as they are known: before the files are sent, too.
        func end(_ text: String) async throws {
            let own =
                put?.versions
                ?? items.reduce(into: [:]) { versions, item in versions[item.id] = item.version }
            let versions = waiting.values.reduce(into: own) { $0.merge($1) { first, _ in first } }
            let known = put?.known ?? []
            let found = try await container.outbox.conflicting(versions)
            let conflicts = known + found.filter { entry in !known.contains { $0.id == entry.id } }
            if !conflicts.isEmpty { report.conflicts = conflicts.map(\.path) }
            let changed = Set(items.map(\.id))
            let renamed = try await container.outbox.renamed(
                since: waitingNames.filter { !changed.contains($0.key) })
            try output.print(report, text: text)
            try Self.tell(ofConflicts: conflicts, renamed: renamed)
        }
        guard failures.isEmpty || !items.isEmpty else {
            report.state = "failed"
            return try await end("Nothing was changed.")
        }
        // Nobody removes them later.
        let stays = then == nil ? "" : " The local files stay: the server does not have them yet."
        if network.offline {
            return try await end(put?.isSent == false ? done : "\(done) It is kept here, and sent later.\(stays)")
        }
        Interrupt.sayThatItIsKept()
        var unsent: Unsent?
        do {
            unsent = try await self.unsent(within: network.duration, shows: !output.json)
            for other in others where unsent == nil {
                unsent = try await other.sent.unsent(within: network.duration, shows: !output.json)
            }
        } catch {
            // It waits for a person, who has to hear of it.
            report.state = "blocked"
            try output.print(report, text: "\(done) It is kept on this device.")
            throw error
        }
        if let unsent {
            var waits = try await isWaiting()
            // The same may have waited already. What goes to the trash goes past that.
            if batch == nil, !waits {
                waits = try await container.outbox.refreshed(items).contains { $0.pending != .none && !$0.isPaused }
            }
            for other in others where !waits { waits = try await other.sent.isWaiting() }
            guard !waits else {
                try await requireAccepted(items.map(\.path) + removed)
                report.reason = unsent.reason
                return try await end(unsent.text(done, consequence: stays))
            }
            // It went past what waited.
            Standard.error("nephos: What was changed before is still kept on this device: \(unsent.reason)")
        }
        try await requireAccepted(items.map(\.path) + removed)
        for other in others { try await other.sent.requireAccepted(other.items.map(\.path)) }
        let paused = try await paused(items, isPut: isPut)
        // What was changed may be no item any more.
        let holdsAll = try await items.isEmpty ? !held().isEmpty : paused.count == items.count
        if holdsAll {
            report.state = "paused"
            return try await end("\(done) It is kept here: its sync is paused.\(stays)")
        }
        if !paused.isEmpty {
            let names = listed(paused.map { inLine($0.path) })
            Standard.error("nephos: kept here, since their sync is paused: \(names)")
        }
        report.state = "sent"
        for line in try await then?() ?? [] { Standard.error("nephos: \(line)") }
        let now = try await container.outbox.refreshed(items)
        if output.json { report.items = now.map(DocumentRow.init) }
        // What was put into the trash has no place.
        let renamed = batch == nil ? renamed(items, now) : []
        return try await end(([done] + renamed).joined(separator: "\n"))
    }

    /// Names the items that another device has changed too, and those that had waited and got another name.
    ///
    /// - Parameter renamed: Their paths, as they were and as they are.
    /// - Throws: ``ExitStatus`` `.outOfStep`, if there are any.
    static func tell(
        ofConflicts items: [DocumentEntry], renamed: [(before: String, now: String)] = []
    ) throws {
        guard !items.isEmpty || !renamed.isEmpty else { return }
        for (before, now) in renamed {
            Standard.error("nephos: \(inLine(before)) is \(inLine(now)) now: the name was taken.")
        }
        for path in items.map(\.path) {
            Standard.error(
                "nephos: conflict: \(inLine(path)) has another version in the container. Both versions are kept. "
                    + "Decide with: nephos docs resolve \(ShellCommand.arguments([path]))")
        }
        throw ExitStatus.outOfStep
    }

    /// What something else had the name of by the time that the server heard of it.
    private func renamed(_ items: [DocumentEntry], _ now: [DocumentEntry]) -> [String] {
        let paths = Dictionary(now.map { ($0.id, $0.path) }) { $1 }
        return items.compactMap { item in
            guard let path = paths[item.id], path != item.path else { return nil }
            return "\(inLine(item.path)) is \(inLine(path)) now: the name was taken, or another device has moved it."
        }
    }

    /// Waits for as long as something moves, for what a command has done with these items.
    ///
    /// - Returns: Why it is only kept here; nil: the server has it.
    /// - Throws: ``CloudError`` of a refusal, and of what needs a person.
    func kept(_ items: [DocumentEntry], within patience: Duration, shows: Bool) async throws -> Unsent? {
        if let unsent = try await unsent(within: patience, shows: shows), try await isWaiting() { return unsent }
        try await requireAccepted(items.map(\.path))
        return nil
    }

    /// Those of the items of which a pause keeps here what was changed since. What does not rest on their contents, such as
    /// a new name, is sent.
    private func paused(_ items: [DocumentEntry], isPut: Bool) async throws -> [DocumentEntry] {
        if isPut { return try await container.outbox.refreshed(items).filter { $0.isPaused && $0.pending != .none } }
        let names = Set(try await held().flatMap(\.keys).map(\.rawValue))
        return names.isEmpty ? [] : items.filter { names.contains($0.id.description) || names.contains($0.path) }
    }

    /// As many requests that wait are told of, at most.
    private static let pendingMax = 1000

    /// Whether something waits that this command has asked for, as far as that is known.
    private func isWaiting() async throws -> Bool {
        let pending = try await container.scope.status().pending
        return pending.count >= Self.pendingMax || pending.contains { !requests.contains($0.position) }
    }

    /// What this command has asked for, and a pause keeps here.
    private func held() async throws -> [StoreStatus.Pending] {
        try await container.scope.status().pending.filter { $0.isByChoice && !requests.contains($0.position) }
    }

    /// - Throws: ``CloudError`` of the first refusal of what this command has done. The others, and those of what waited
    ///   before, are listed.
    private func requireAccepted(_ paths: [String]) async throws {
        let news = try await container.scope.status().refused.filter { !refused.contains(Refusal($0)) }
        guard !news.isEmpty else { return }
        let own = Set(paths)
        var first: CloudError?
        var count = 0
        for write in news {
            let path = write.key.rawValue
            let isOwn = own.contains(path) || waiting[path] == nil
            if isOwn { count += 1 }
            guard isOwn, first == nil else {
                Standard.error(
                    "nephos: rejected\(isOwn ? "" : ", which was pending"): \(inLine(path)): \(write.error.message)")
                continue
            }
            first = write.error
            first?.details["path"] = path
        }
        if count > 1 { first?.details["refused"] = "\(count)" }
        if let first { throw first }
    }

    /// Waits for as long as something moves.
    ///
    /// - Returns: Why not all of it was sent; nil: it was.
    /// - Throws: ``CloudError`` of what needs a person.
    private func unsent(within patience: Duration, shows: Bool) async throws -> Unsent? {
        let line = ProgressLine("sending", isShown: shows)
        defer { line.clear() }
        do {
            try await container.outbox.waitUntilSent(within: patience) { line.show(done: $0, total: $1) }
            return nil
        } catch {
            guard ExitStatus.of(error) == .unreachable else { throw error }
            return Unsent(try await container.scope.status().problem ?? error)
        }
    }
}
