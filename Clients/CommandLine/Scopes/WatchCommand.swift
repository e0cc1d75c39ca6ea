import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import NephosWire
import Synchronization

struct WatchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch", abstract: "Print other devices' changes as they arrive, until Ctrl-C.",
        discussion: """
            First come the changes that this device missed, then "in sync", or the reason against it (no \
            answer from the server, a full disk). The line comes again when the state changes. With --bus \
            the operator sees the events of the identity service. Events of other services go to their \
            owners' devices only.
            """)

    @Flag(help: "Show identity's events instead of this device's changes (operator only).") var bus = false
    @Option(help: "End after this many notifications of other devices' changes.") var exitAfter: Int?
    @OptionGroup var scopes: ScopeOptions
    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        guard (exitAfter ?? 1) >= 1 else { throw ValidationError("--exit-after is at least 1.") }
        guard !bus || scopes.isAll else {
            throw ValidationError("--bus shows identity's events, and --app and --service this device's.")
        }
    }

    func run() async throws {
        if bus {
            try await BusTap(deployment: deployment, output: output, exitAfter: exitAfter).run()
        } else {
            try await watchScopes()
        }
    }

    private func watchScopes() async throws {
        try await scopes.withScopes(within: deployment.wait.duration) { scopes, session in
            // Before anything else, so that nothing arrives unseen.
            let watched = scopes.map { ($0, $0.events, Said($0, isOneOfMany: scopes.count > 1)) }
            let notices = session.storageNotices
            _ = try session.requireAccount()
            let names = WatchedNames(session, within: deployment.wait.duration)
            let printed = Mutex(0)
            let isLast = { @Sendable in
                let count = printed.withLock { count in
                    count += 1
                    return count
                }
                return exitAfter.map { count >= $0 } ?? false
            }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for (scope, events, said) in watched {
                    group.addTask { try await printEvents(events, scope, session, names, said, isLast) }
                    group.addTask {
                        try await Looking(scope: scope, said: said) { try show($0, said, failure: $1) }.run()
                    }
                }
                group.addTask {
                    for await notice in notices { try show(notice) }
                    // The session has ended, and the events with it.
                    try await Task.sleep(for: .seconds(3600))
                }
                // Whichever ends first ends the watch.
                try await group.next()
                group.cancelAll()
            }
        }
    }

    /// - Parameter isLast: Counts a change by another device, and says whether it was the last to wait for.
    private func printEvents(
        _ events: some AsyncSequence<StoreEvent, Never>, _ scope: Scope, _ session: Session, _ names: WatchedNames,
        _ said: Said, _ isLast: @Sendable () -> Bool
    ) async throws {
        for await event in events {
            switch event {
            case .change(let change):
                var name: String?
                if let device = change.device { name = await names.name(of: device) }
                try show(change, name, await documents(change.changedKeys, in: scope, session), said)
                if change.reason == .serverChange, isLast() { return }
                if change.reason == .quotaViolationChange {
                    try await show(scope.status(), said, isInOrder: true)
                }
            case .didFetchChanges(let status): try show(status, said, isInOrder: true)
            }
        }
    }

    /// Documents by their ids, which say nothing to a person; nil: the scope has none.
    private func documents(
        _ items: [ItemName], in scope: Scope, _ session: Session
    ) async -> [ItemName: DocumentEntry]? {
        guard scope.id.service == .documents,
            let container = try? await session.container(scope.id.name, app: scope.id.app)
        else { return nil }
        var documents: [ItemName: DocumentEntry] = [:]
        for item in items {
            guard let id = DocumentID(item) else { continue }
            documents[item] = try? await container.item(id)
        }
        return documents
    }

    /// Says where the scope stands, once for each change of that.
    ///
    /// - Parameter isInOrder: What came before it has been printed.
    private func show(
        _ status: StoreStatus, _ said: Said, failure: CloudError? = nil, isInOrder: Bool = false
    ) throws {
        let standing = Standing(status, failure: failure)
        guard said.isNews(standing, isInOrder: isInOrder) else { return }
        var report: [ItemName: PropertyValue] = [
            "state": .string(standing.state.rawValue), "token": .string(status.head.description),
            "digest": .string(status.digest.description), "following": .boolean(status.isFollowing),
        ]
        report["reason"] = standing.reason.map { .string($0) }
        report["following_problem"] = status.followingProblem.map { .string(Standing.words($0)) }
        let lines = ["\(Self.time) \(said.label)\(standing.line)"] + standing.notes.map { "  \($0)" }
        try output.print(.dictionary(said.scope.names.merging(report) { $1 }), text: lines.joined(separator: "\n"))
    }

    private func show(_ notice: StorageNotice) throws {
        let used = "\(describe(bytes: notice.usedBytes)) of \(describe(bytes: notice.planBytes)) used"
        let text =
            switch notice.level {
            case 0: "the plan has room again"
            case 100: "the plan is full"
            default: "the plan is more than \(notice.level) % full"
            }
        try output.print(
            [
                "storage_level": notice.level, "used_bytes": Int(clamping: notice.usedBytes),
                "plan_bytes": Int(clamping: notice.planBytes),
            ], text: "\(Self.time) \(text), \(used)")
    }

    /// - Parameters:
    ///   - name: Of the device that made the change, if it was one.
    ///   - documents: Those of the items that are there; nil: they are none.
    private func show(
        _ change: ChangeNotification, _ name: String?, _ documents: [ItemName: DocumentEntry]?, _ said: Said
    ) throws {
        let items = change.items.map { item in
            var entry: [ItemName: PropertyValue] = [
                "key": .string(item.key.rawValue), "deleted": .boolean(item.value == nil),
            ]
            entry["value"] = item.value
            return PropertyValue.dictionary(entry)
        }
        var report: [ItemName: PropertyValue] = [
            "reason": .integer(Int64(change.reason.rawValue)), "reason_name": .string("\(change.reason)"),
            "keys": .array(change.changedKeys.map { .string($0.rawValue) }), "items": .array(items),
            "token": .string(change.token.description),
        ]
        report["paths"] = documents.map { .dictionary($0.mapValues { .string($0.path) }) }
        report["device"] = change.device.map { .string($0.rawValue) }
        report["device_name"] = name.map { .string($0) }
        report["error"] = change.error.map { .string($0.sentence) }
        let known = Dictionary(change.items.map { ($0.key, $0) }) { $1 }
        let places = change.changedKeys.map { key in
            if let documents {
                // An item that was removed forever has no path.
                return documents[key].map { inLine($0.path) + ($0.isTrashed ? " (in the trash)" : "") }
                    ?? "id:\(inLine(key.rawValue)) (deleted)"
            }
            let text = known[key].map { $0.value.map { " = \($0.line)" } ?? " (deleted)" }
            return inLine(key.rawValue) + (text ?? "")
        }
        let isDeletion =
            change.reason == .serverChange && documents == nil && places.count == 1
            && change.items.contains { $0.value == nil }
        let device = change.device.map { inLine(name ?? $0.rawValue) } ?? "another device"
        let event = Self.words(change.reason, device, isDeletion: isDeletion)
        var lines = ["\(Self.time) \(said.label)\(event)"]
        // One change fits into the line.
        if places.count == 1 {
            let place = isDeletion ? inLine(change.items[0].key.rawValue) : places[0]
            lines[0] += (change.reason == .serverChange ? " " : ": ") + place
        }
        if places.count > 1 { lines = ["\(lines[0]) \(places.count) items:"] + places.map { "  \($0)" } }
        if let error = change.error { lines.append("  \(error.sentence)") }
        try output.print(
            .dictionary(said.scope.names.merging(report) { $1 }), text: lines.joined(separator: "\n"))
    }

    private static func words(_ reason: ChangeReason, _ device: String, isDeletion: Bool) -> String {
        switch reason {
        case .serverChange: "\(device) \(isDeletion ? "deleted" : "changed")"
        case .initialSyncChange: "first download finished"
        case .quotaViolationChange: "rejected by a limit"
        case .accountChange: "account changed"
        }
    }

    static var time: String {
        let now = Date()
        return now.formatted(
            Date.VerbatimFormatStyle(
                format:
                    "\(hour: .twoDigits(clock: .twentyFourHour, hourCycle: .zeroBased)):\(minute: .twoDigits):\(second: .twoDigits)",
                timeZone: .current, calendar: .current))
    }
}
