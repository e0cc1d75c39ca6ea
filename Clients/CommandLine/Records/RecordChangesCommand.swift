import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import Synchronization

extension RecordsCommand {
    struct Changes: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Fetch what other devices have changed in a zone, and print it, a line each.",
            discussion: """
                What this device has fetched before is not printed again. + is saved, - deleted, ! was refused. With \
                --follow it goes on until Ctrl-C.
                """)

        @Flag(help: "Go on, and print what changes.") var follow = false
        @Option(help: "With --follow: end after so many lines.") var exitAfter: Int?
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard (exitAfter ?? 1) >= 1 else { throw ValidationError("--exit-after is at least 1.") }
            guard follow || exitAfter == nil else { throw ValidationError("--exit-after goes with --follow.") }
        }

        func run() async throws {
            try await database.withDatabase { database, _ in
                // Before anything else, so that nothing arrives unseen.
                let changes = database.changes(in: zone.zone)
                let limit = wait.duration
                let lines = LineCount()
                try await withThrowingTaskGroup(of: Bool.self) { group in
                    group.addTask {
                        try await self.print(changes, database, lines)
                        return true
                    }
                    group.addTask {
                        do {
                            try await database.waitUntilCurrent(in: zone.zone, timeout: limit, isImpatient: true)
                        } catch {
                            // It goes on, and says what keeps it from coming.
                            let error = CloudError(wrapping: error)
                            guard follow, ExitStatus.of(error) == .unreachable else { throw error }
                            Standard.error("nephos: \(Standing.words(error))")
                        }
                        if follow { return false }
                        // What was told of it before is printed by now, or in a moment.
                        try await Task.sleep(for: .milliseconds(300))
                        return true
                    }
                    while let isOver = try await group.next(), !isOver {}
                    group.cancelAll()
                }
                if !output.json, lines.value == 0 { try StandardOutput.line("Nothing is new.") }
            }
        }

        private func print(
            _ changes: some AsyncSequence<RecordChanges, Never>, _ database: RecordDatabase, _ count: LineCount
        ) async throws {
            for await change in changes {
                for line in try await lines(change, database) {
                    try StandardOutput.write(line + "\n")
                    let printed = count.next()
                    if let exitAfter, printed >= exitAfter { return }
                }
            }
        }

        private func lines(_ change: RecordChanges, _ database: RecordDatabase) async throws -> [String] {
            guard !change.isAll else {
                return [output.json ? "{\"event\":\"all\"}" : "* everything may be new: nephos records ls"]
            }
            guard change.reason != .quotaViolationChange else { return try await refusals(change, database) }
            let there = try await database.known(change.changed, within: wait.duration).records
            return (change.changed + change.deleted).sorted { $0.name < $1.name }.map { id in
                let name = RecordValue.string(id.name).json
                guard let record = there[id] else {
                    let type = change.deletedTypes[id]
                    let member = type.map { ",\"type\":\(RecordValue.string($0).json)" } ?? ""
                    return output.json
                        ? printableJSON("{\"event\":\"deleted\",\"name\":\(name)\(member)}")
                        : "- \(inLine(id.name))\(type.map { " (\(inLine($0)))" } ?? "")"
                }
                return output.json
                    ? "{\"event\":\"saved\",\"record\":\(record.row)}"
                    : "+ \(inLine(id.name)) (\(inLine(record.type)))  \(shortened(record.fieldsLine, to: 100))"
            }
        }

        /// What was told is why one of them was refused; each may have its own reason.
        private func refusals(_ change: RecordChanges, _ database: RecordDatabase) async throws -> [String] {
            let conflicts = Set(try await database.conflicts(in: change.zone).map(\.id))
            let errors = Dictionary(
                try await database.refused(in: change.zone).map { ($0.id, $0.error) }
            ) { $1 }
            return change.changed.sorted { $0.name < $1.name }.map { id in
                let reason =
                    conflicts.contains(id)
                    ? "a conflict, see: nephos records conflicts" : (errors[id] ?? change.error)?.sentence ?? ""
                return output.json
                    ? printableJSON(
                        "{\"event\":\"refused\",\"name\":\(RecordValue.string(id.name).json),"
                            + "\"reason\":\(RecordValue.string(reason).json)}")
                    : "! \(inLine(id.name)): \(inLine(reason))"
            }
        }
    }
}

/// How many lines were printed.
private final class LineCount: Sendable {
    private let count = Mutex(0)

    var value: Int { count.withLock { $0 } }

    func next() -> Int {
        count.withLock { count in
            count += 1
            return count
        }
    }
}
