import ArgumentParser
import Foundation
import NephosCore
import NephosKit

struct ConflictsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "conflicts",
        abstract: "List conflicts, newest first, with the commands that decide them.",
        discussion: """
            A conflict arises when another device replaced a change without having seen it. nephos history \
            also lists ordinary overwrites. \(ConflictOptions.discussion)
            """)

    @OptionGroup var options: ConflictOptions

    func run() async throws { try await options.list(withHistory: false, none: "Nothing conflicts.") }
}

struct HistoryCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "history",
        abstract: "List overwritten values and conflicts, newest first, and how to restore them.",
        discussion:
            """
            For files only conflicts are listed; nephos docs versions lists former versions. \
            \(ConflictOptions.discussion)
            """)

    @OptionGroup var options: ConflictOptions

    func run() async throws { try await options.list(withHistory: true, none: "Nothing was overwritten.") }
}

/// What `conflicts` and `history` list.
struct ConflictOptions: ParsableArguments {
    static let discussion =
        "If one app or container does not answer, standard error names it, and the others are listed. The exit code is that of the first failure."

    @Argument(help: "An item, such as a key (default: all).") var item: String?
    @Option(help: "List at most this many for each app, up to 1000.") var limit = 20
    @OptionGroup var scopes: ScopeOptions
    @OptionGroup var wait: WaitOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        guard 1...1000 ~= limit else { throw ValidationError("--limit is from 1 to 1000.") }
    }

    /// - Parameter none: Printed where there is nothing.
    func list(withHistory: Bool, none: String) async throws {
        try await scopes.withScopes(within: wait.duration) { scopes, session in
            _ = try session.requireAccount()
            let (name, limit, wait) = (item, limit, wait.duration)
            let looked = try await scopes.each(in: session) {
                await Looked($0, of: name, withHistory: withHistory, limit: limit, within: wait)
            }
            // Nobody knows that there is none of what was not fetched.
            if looked.allSatisfy({ $0.failure == nil }) || looked.contains(where: { !$0.conflicts.isEmpty }) {
                let list = ConflictList(devices: await DeviceNames(session, within: wait))
                try list.print(looked.map { ($0.scope, $0.conflicts) }, output, none: none)
            }
            let failures = looked.compactMap { looked in looked.failure.map { (looked.scope, $0) } }
            guard let (scope, first) = failures.first else { return }
            for (scope, error) in failures.dropFirst() { Standard.error("\(scope.label): \(error.sentence)") }
            throw first.naming(scope)
        }
    }

    /// What there is to list of one scope.
    private struct Looked {
        var scope: Scope
        var conflicts: [ScopeConflict]
        /// Why there may be more.
        var failure: CloudError?

        init(_ scope: Scope, of name: String?, withHistory: Bool, limit: Int, within wait: Duration) async {
            self.scope = scope
            let name = name.map(scope.itemName(typed:))
            do throws(CloudError) {
                if try await scope.status().initialSyncFinished {
                    try await scope.waitUntilCurrent(within: min(wait, CopyRefresh.patience), isImpatient: true)
                } else {
                    try await scope.waitUntilCurrent(timeout: wait, isImpatient: true)
                }
                conflicts = try await scope.conflicts(
                    of: name, withHistory: withHistory, limit: limit, timeout: wait)
            } catch {
                // Conflicts of records and documents are on this device.
                let isHere = scope.id.service != .keyValue
                conflicts = isHere ? (try? await scope.conflicts(of: name, limit: limit)) ?? [] : []
                failure = error
            }
        }
    }
}

extension CloudError {
    /// Says of which scope it is.
    fileprivate func naming(_ scope: Scope) -> CloudError {
        var error = self
        error.details["app"] = scope.id.app.rawValue
        error.details["service"] = scope.id.service.rawValue
        if !scope.id.name.isEmpty { error.details["name"] = scope.id.name }
        return error
    }
}

/// What was overwritten or lost a conflict, as it is printed.
struct ConflictList {
    let devices: DeviceNames

    /// - Parameter none: What is said where there is nothing.
    func print(_ found: [(Scope, [ScopeConflict])], _ output: OutputOptions, none: String) throws {
        let json = found.flatMap { scope, conflicts in conflicts.map { self.json(scope, $0) } }
        let parts = found.filter { !$1.isEmpty }.map { scope, conflicts in (scope, text(conflicts)) }
        try output.print(.array(json), text: parts.isEmpty ? none : sections(parts))
    }

    private func json(_ scope: Scope, _ conflict: ScopeConflict) -> PropertyValue {
        var entry = scope.names
        entry["item"] = .string(conflict.name.rawValue)
        entry["outcome"] = .string(conflict.outcome.rawValue)
        entry["written_at"] = .integer(Int64(clamping: conflict.written.milliseconds))
        entry["device"] = .string(conflict.device.rawValue)
        entry["device_name"] = devices.known(conflict.device).map { .string($0) }
        entry["winner_written_at"] = .integer(Int64(clamping: conflict.won.milliseconds))
        entry["winner_device"] = .string(conflict.winner.rawValue)
        entry["winner_device_name"] = devices.known(conflict.winner).map { .string($0) }
        entry["content"] = conflict.content
        switch conflict.replacement {
        case .content(let value): entry["replacement"] = value
        case .deletion: entry["replacement_deleted"] = true
        case .unknown: break
        }
        if conflict.isDamaged { entry["damaged"] = true }
        entry["recovery"] = conflict.recovery.map { .string($0) }
        entry["dismissal"] = conflict.dismissal.map { .string($0) }
        if !conflict.resolutions.isEmpty { entry["resolutions"] = .array(conflict.resolutions.map { .string($0) }) }
        return .dictionary(entry)
    }

    private func text(_ conflicts: [ScopeConflict]) -> String {
        conflicts.flatMap { conflict in
            let what = conflict.outcome == .lost ? "lost to       " : "overwritten   "
            let content = conflict.content.map { $0.line } ?? (conflict.isDamaged ? "(damaged)" : "(deleted)")
            return [
                "\(inLine(conflict.name.rawValue)) = \(content)",
                "  written       \(describe(conflict.written)) by \(inLine(devices[conflict.device]))",
                "  \(what)\(describe(conflict.replacementWritten ?? conflict.won)) by \(inLine(devices[conflict.winner]))",
                "  replaced by   \(replacement(conflict))",
            ]
                + (recovery(conflict).map { ["  get it back   \(inLine($0))"] } ?? [])
                + (conflict.dismissal.map { ["  or keep this  \(inLine($0))"] } ?? [])
                + resolutions(conflict)
        }.joined(separator: "\n")
    }

    private func resolutions(_ conflict: ScopeConflict) -> [String] {
        let labels = [
            label(conflict.device, conflict.sizes?.lost, conflict.written),
            label(conflict.winner, conflict.sizes?.won, conflict.replacementWritten ?? conflict.won),
            "keep both",
        ]
        let width = labels.map(\.cellCount).max() ?? 0
        return zip(labels, conflict.resolutions).map { label, line in
            "  \(label.padded(toCells: width))  \(inLine(line))"
        }
    }

    /// `keep phone's (10 B, 18:00)`.
    private func label(_ device: DeviceID, _ size: UInt64?, _ time: Timestamp) -> String {
        let (day, hour) = (describe(time).prefix(10), describe(time).dropFirst(11).prefix(5))
        let isToday =
            describe(Timestamp(milliseconds: UInt64(max(0, Date().timeIntervalSince1970) * 1000))).prefix(10) == day
        let facts = [size.map { describe(bytes: $0) }, isToday ? "\(hour)" : "\(day) \(hour)"].compactMap { $0 }
        return "keep \(inLine(devices[device]))'s (\(facts.joined(separator: ", ")))"
    }

    /// Nil: there are ways to decide it.
    private func recovery(_ conflict: ScopeConflict) -> String? {
        if let recovery = conflict.recovery { return recovery }
        guard !conflict.isDamaged else { return "The server cannot read it any more." }
        return conflict.resolutions.isEmpty ? "It is too long for a line: nephos conflicts --json has it." : nil
    }

    private func replacement(_ conflict: ScopeConflict) -> String {
        switch conflict.replacement {
        case .content(let value): value.line
        case .deletion: "(deleted)"
        case .unknown: "(not known any more)"
        }
    }
}

/// What the account's devices are called; they go by their ids while offline.
struct DeviceNames {
    private let names: [DeviceID: String]

    /// Of devices that nobody was asked about.
    init() { names = [:] }

    init(_ session: Session, within limit: Duration) async {
        // What a device has written keeps its name after it has signed out.
        self.init(of: (try? await session.devices(withSignedOut: true, timeout: limit)) ?? [], session)
    }

    /// - Parameter devices: Those that the server lists.
    init(of devices: [DeviceInformation], _ session: Session) {
        var names = Dictionary(devices.map { ($0.id, $0.name) }) { first, _ in first }
        // A server that was brought back from before this device's sign-in does not know it.
        if let own = try? session.account { names[own.deviceID] = names[own.deviceID] ?? own.deviceName }
        self.names = names
    }

    func known(_ device: DeviceID) -> String? { names[device] }
    /// In a public database nobody is told of which device a change is.
    subscript(device: DeviceID) -> String {
        device.rawValue.isEmpty ? "another device" : names[device] ?? device.rawValue
    }
}
