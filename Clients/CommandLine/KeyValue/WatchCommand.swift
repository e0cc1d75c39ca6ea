import ArgumentParser
import Core
import Foundation
import NephosKit
import Synchronization
import Wire

struct WatchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch", abstract: "Print changes by other devices as they arrive, until Ctrl-C.",
        discussion: """
            Prints what this device missed first, then "in sync", or what keeps it from that; and again when that \
            changes. With --bus it is an operator's tap on the events \
            of all services; it needs the operator's secret.
            """)

    @Flag(help: "The services' events instead of this device's notifications.") var bus = false
    @Option(help: "With --bus: only this service's events.") var service: String?
    @Option(help: "End after so many notifications of changes by other devices.") var exitAfter: Int?
    @OptionGroup var store: StoreOptions
    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        guard (exitAfter ?? 1) >= 1 else { throw ValidationError("--exit-after is at least 1.") }
    }

    func run() async throws {
        if bus {
            try await BusTap(deployment: deployment, service: service, output: output, exitAfter: exitAfter).run()
        } else {
            try await watchStore()
        }
    }

    private func watchStore() async throws {
        try await store.withStore { store, session in
            // Before anything else, so that nothing arrives unseen.
            let events = store.events
            let notices = session.storageNotices
            _ = try session.requireAccount()
            let said = Said()
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await printEvents(events, store, session, said) }
                group.addTask {
                    while try await !Self.becameCurrent(store) {}
                    try await waitUntilTurnedAway(store, said)
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

    private func printEvents(
        _ events: some AsyncSequence<StoreEvent, Never>, _ store: KeyValueStore, _ session: Session, _ said: Said
    ) async throws {
        var names: [String: String] = [:]
        var printed = 0
        for await event in events {
            switch event {
            case .change(let change):
                if let device = change.device?.rawValue, names[device] == nil {
                    names = await Self.deviceNames(session)
                }
                try show(change, names)
                if change.reason == .serverChange { printed += 1 }
                if let exitAfter, printed >= exitAfter { return }
                if change.reason == .quotaViolationChange { try await show(store.status(), said) }
            case .didFetchChanges(let status): try show(status, said)
            }
        }
    }

    /// Says where the store stands, once for each change of that.
    private func show(_ status: StoreStatus, _ said: Said) throws {
        let standing = Standing(status)
        guard said.isNews(standing) else { return }
        var facts = [
            "state": standing.state.rawValue, "token": status.head.description, "digest": status.digest.description,
        ]
        facts["reason"] = standing.reason
        try output.print(
            facts, text: (["\(Self.time) \(standing.line)"] + standing.notes.map { "  \($0)" }).joined(separator: "\n"))
    }

    /// Ends the watch when nothing can arrive any more: the device was revoked or signed out.
    ///
    /// - Throws: ``CloudError`` with the reason.
    private func waitUntilTurnedAway(_ store: KeyValueStore, _ said: Said) async throws {
        while !Task.isCancelled {
            let status = try await store.status()
            if let problem = status.problem, ExitStatus.of(problem) == .refused { throw problem }
            // No fetch tells that a write was sent, or a refused one dismissed.
            if said.isDue { try show(status, said) }
            try await Task.sleep(for: .milliseconds(500))
        }
    }

    /// Waits on while nobody can be reached: offline is normal, and no reason to end.
    private static func becameCurrent(_ store: KeyValueStore) async throws -> Bool {
        do {
            try await store.waitUntilCurrent(timeout: .seconds(10), isImpatient: true)
            return true
        } catch {
            guard ExitStatus.of(error) == .unreachable else { throw error }
        }
        // Not within the wait itself, which nothing can cancel.
        try await Task.sleep(for: .seconds(1))
        return false
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

    private func show(_ change: ChangeNotification, _ names: [String: String]) throws {
        let device = change.device?.rawValue
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
        report["device"] = device.map { .string($0) }
        report["device_name"] = device.flatMap { names[$0] }.map { .string($0) }
        report["error"] = change.error.map { .string($0.description) }
        let origin = device.map { " by " + printable(names[$0] ?? $0, keepsLines: false) } ?? ""
        var lines = ["\(Self.time) \(Self.name(change.reason)) (reason \(change.reason.rawValue))\(origin)"]
        let known = Dictionary(change.items.map { ($0.key, $0) }) { $1 }
        for key in change.changedKeys {
            let text = known[key].map { $0.value?.text ?? "(deleted)" }
            lines.append(printable("  \(key)" + (text.map { " = \($0)" } ?? ""), keepsLines: false))
        }
        if let error = change.error { lines.append("  \(error)") }
        try output.print(.dictionary(report), text: lines.joined(separator: "\n"))
    }

    private static func name(_ reason: ChangeReason) -> String {
        switch reason {
        case .serverChange: "server change"
        case .initialSyncChange: "initial sync"
        case .quotaViolationChange: "quota violation"
        case .accountChange: "account change"
        }
    }

    /// Names of the account's devices; none while offline.
    private static func deviceNames(_ session: Session) async -> [String: String] {
        let devices = (try? await session.devices()) ?? []
        return Dictionary(devices.map { ($0.id.rawValue, $0.name) }) { first, _ in first }
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

/// What a watch has said of where the store stands.
private final class Said: Sendable {
    private let last = Mutex<(standing: Standing?, isDue: Bool)>((nil, false))

    /// Whether it was not in sync when it was looked at last, so that somebody waits to hear that it is.
    var isDue: Bool { last.withLock { $0.isDue } }

    /// Whether this has to be said. What only passes is no news: a write on its way, a comparison that goes on.
    func isNews(_ standing: Standing) -> Bool {
        last.withLock { last in
            last.isDue = standing.state != .inSync
            guard [.inSync, .refused, .outOfStep].contains(standing.state),
                last.standing?.state != standing.state || last.standing?.notes != standing.notes
            else { return false }
            last.standing = standing
            return true
        }
    }
}
