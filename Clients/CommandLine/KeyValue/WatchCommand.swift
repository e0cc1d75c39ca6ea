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
            Prints what this device missed first, then "in sync", or what keeps it from that (nobody answers at the \
            server's address, the disk is full); and again when that changes. With --bus it is an operator's tap on \
            identity's events, and needs the operator's secret; what the other services publish is its owners', and \
            goes to notifications alone.
            """)

    @Flag(help: "Identity's events instead of this device's notifications.") var bus = false
    @Option(help: "End after so many notifications of changes by other devices.") var exitAfter: Int?
    @OptionGroup var store: StoreOptions
    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        guard (exitAfter ?? 1) >= 1 else { throw ValidationError("--exit-after is at least 1.") }
    }

    func run() async throws {
        if bus {
            try await BusTap(deployment: deployment, output: output, exitAfter: exitAfter).run()
        } else {
            try await watchStore()
        }
    }

    private func watchStore() async throws {
        try await store.withStore(within: deployment.wait.duration) { store, session in
            // Before anything else, so that nothing arrives unseen.
            let events = store.events
            let notices = session.storageNotices
            _ = try session.requireAccount()
            let said = Said()
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await printEvents(events, store, session, said) }
                group.addTask { try await keepLooking(at: store, said) }
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
                    names = await deviceNames(session)
                }
                try show(change, names)
                if change.reason == .serverChange { printed += 1 }
                if let exitAfter, printed >= exitAfter { return }
                if change.reason == .quotaViolationChange { try await show(store.status(), said, isInOrder: true) }
            case .didFetchChanges(let status): try show(status, said, isInOrder: true)
            }
        }
    }

    /// Says where the store stands, once for each change of that.
    ///
    /// - Parameter isInOrder: What came before it has been printed.
    private func show(
        _ status: StoreStatus, _ said: Said, failure: CloudError? = nil, isInOrder: Bool = false
    ) throws {
        let standing = Standing(status, failure: failure)
        guard said.isNews(standing, isInOrder: isInOrder) else { return }
        var facts = [
            "state": standing.state.rawValue, "token": status.head.description, "digest": status.digest.description,
        ]
        facts["reason"] = standing.reason
        try output.print(
            facts, text: (["\(Self.time) \(standing.line)"] + standing.notes.map { "  \($0)" }).joined(separator: "\n"))
    }

    /// How often the server is asked, which may be gone without a word.
    private static let askPause: Duration = .seconds(5)
    /// A server that answers later than this is one that does not.
    private static let silenceMax: Duration = .seconds(8)

    /// Says what no event tells: that the server is gone, that a write was sent or a refused one dismissed. Offline is
    /// normal, and so is a disk without room; both are said, and waited for.
    ///
    /// - Throws: ``CloudError`` with the reason when nothing can arrive any more: the device was revoked or signed out.
    private func keepLooking(at store: KeyValueStore, _ said: Said) async throws {
        var askAt = ContinuousClock.now
        var silence: (since: ContinuousClock.Instant, error: CloudError)?
        while !Task.isCancelled {
            let problem = try await store.status().problem
            // What else is wrong is tried again by itself, as seldom as the server has asked for.
            if askAt <= .now, problem.map({ ExitStatus.of($0) == .unreachable }) ?? true {
                let start = ContinuousClock.now
                // Short, since nothing can cancel it.
                do throws(CloudError) {
                    try await store.waitUntilCurrent(timeout: .seconds(3), isImpatient: true)
                    silence = nil
                } catch {
                    if ExitStatus.of(error) == .unreachable { silence = (silence?.since ?? start, error) }
                }
                askAt = .now + Self.askPause
            }
            let status = try await store.status()
            if let problem = status.problem, ExitStatus.of(problem) == .refused { throw problem }
            if let since = silence?.since, said.hasFetched(since: since) { silence = nil }
            let failure = silence.flatMap { $0.since.duration(to: .now) >= Self.silenceMax ? $0.error : nil }
            if said.isDue || status.problem != nil || failure != nil { try show(status, said, failure: failure) }
            try await Task.sleep(for: .milliseconds(500))
        }
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
    private func deviceNames(_ session: Session) async -> [String: String] {
        let devices = (try? await session.devices(timeout: deployment.wait.duration)) ?? []
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
    private struct Last {
        var said: Standing?
        /// What it was when it was looked at last, and since when.
        var seen: (standing: Standing, since: ContinuousClock.Instant)?
        var fetched: ContinuousClock.Instant?
    }

    private let last = Mutex(Last())

    /// Whether it was not in sync when it was looked at last, or is so unsaid: somebody waits to hear that it is.
    var isDue: Bool {
        last.withLock { last in
            guard let seen = last.seen?.standing else { return false }
            return seen.state != .inSync || last.said?.state != .inSync
        }
    }

    /// Whether the server has been heard since.
    func hasFetched(since time: ContinuousClock.Instant) -> Bool {
        last.withLock { $0.fetched.map { $0 > time } ?? false }
    }

    /// Whether this has to be said. What only passes is no news: a write on its way, a comparison that goes on.
    ///
    /// - Parameter isInOrder: All that came before it has been printed; else events may still be on their way.
    func isNews(_ standing: Standing, isInOrder: Bool) -> Bool {
        last.withLock { last in
            if isInOrder { last.fetched = .now }
            if last.seen?.standing.isSameCause(as: standing) != true { last.seen = (standing, .now) }
            let age = last.seen.map { $0.since.duration(to: .now) } ?? .zero
            let patience: Duration =
                switch standing.state {
                case .refused, .outOfStep, .problem: .zero
                case .inSync: isInOrder ? .zero : .milliseconds(400)
                case .pending, .notFetched, .notCompared: .seconds(3)
                }
            guard age >= patience, last.said?.isSameCause(as: standing) != true else { return false }
            last.said = standing
            return true
        }
    }
}
