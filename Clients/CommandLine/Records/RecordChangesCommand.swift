import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import Synchronization

extension RecordsCommand {
    struct Changes: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Fetch and print other devices' changes in a zone, one a line.",
            discussion: """
                Changes that this device has fetched before are not printed again. + is a saved record, - a \
                deleted one; ! is a change of this device that the server rejected. With --follow the command \
                continues until Ctrl-C.
                """)

        @Flag(help: "Continue, and print changes.") var follow = false
        @Option(help: "With --follow: end after this many lines.") var exitAfter: Int?
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
                let changes = database.changes(zone: zone.zone)
                let limit = wait.duration
                let lines = PrintedLines()
                try await withThrowingTaskGroup(of: Bool.self) { group in
                    group.addTask {
                        try await self.print(changes, database, lines)
                        return true
                    }
                    group.addTask {
                        do {
                            try await database.waitUntilCurrent(zone: zone.zone, timeout: limit, isImpatient: true)
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
                if !output.json, lines.count == 0 { try StandardOutput.line("Nothing is new.") }
            }
        }

        private func print(
            _ changes: some AsyncSequence<RecordChanges, Never>, _ database: RecordDatabase, _ printed: PrintedLines
        ) async throws {
            for await change in changes {
                for line in try await lines(change, database) where printed.isNews(line) {
                    try StandardOutput.write(line.text + "\n")
                    let count = printed.next()
                    if let exitAfter, count >= exitAfter { return }
                }
            }
        }

        private func lines(_ change: RecordChanges, _ database: RecordDatabase) async throws -> [ChangeLine] {
            guard !change.isAll else {
                return [ChangeLine(output.json ? "{\"event\":\"all\"}" : "* everything may be new: nephos records ls")]
            }
            guard change.reason != .quotaViolationChange else { return try await refusals(change, database) }
            // What waits here is of this device: others have not made it, and it may be refused.
            let there = try await database.heardRecords(change.changed)
            let here = try await database.known(change.changed, within: wait.duration).records
            return (change.changed + change.deleted).sorted { $0.name < $1.name }.map { id in
                there[id].map { saved(id, $0) } ?? deleted(id, type: change.deletedTypes[id] ?? here[id]?.type)
            }
        }

        private func saved(_ id: RecordID, _ record: Record) -> ChangeLine {
            ChangeLine(
                output.json
                    ? "{\"event\":\"saved\",\"record\":\(record.row)}"
                    : "+ \(inLine(id.name)) (\(inLine(record.type)))  \(record.fieldsLine.cut(toCells: 100))", of: id)
        }

        private func deleted(_ id: RecordID, type: String?) -> ChangeLine {
            let name = RecordValue.string(id.name).json
            let member = type.map { ",\"type\":\(RecordValue.string($0).json)" } ?? ""
            return ChangeLine(
                output.json
                    ? printableJSON("{\"event\":\"deleted\",\"name\":\(name)\(member)}")
                    : "- \(inLine(id.name))\(type.map { " (\(inLine($0)))" } ?? "")", of: id)
        }

        /// What was told is why one of them was refused; each may have its own reason.
        /// What a conflict was lost to may have come with the answer alone, of which nobody is told otherwise.
        private func refusals(_ change: RecordChanges, _ database: RecordDatabase) async throws -> [ChangeLine] {
            let conflicts = Dictionary(try await database.conflicts.list(zone: change.zone).map { ($0.id, $0) }) { $1 }
            let errors = Dictionary(
                try await database.conflicts.rejected(zone: change.zone).map { ($0.id, $0.error) }
            ) { $1 }
            return change.changed.sorted { $0.name < $1.name }.flatMap { id -> [ChangeLine] in
                let conflict = conflicts[id]
                let reason =
                    conflict != nil
                    ? "a conflict, see: nephos records conflicts" : (errors[id] ?? change.error)?.sentence ?? ""
                let refused = ChangeLine(
                    output.json
                        ? printableJSON(
                            "{\"event\":\"refused\",\"name\":\(RecordValue.string(id.name).json),"
                                + "\"reason\":\(RecordValue.string(reason).json)}")
                        : "! \(inLine(id.name)): \(inLine(reason))")
                guard let conflict else { return [refused] }
                var winner = conflict.server.map { saved(id, $0) } ?? deleted(id, type: conflict.client?.type)
                winner.isRepeated = true
                return [winner, refused]
            }
        }
    }
}

/// A line, and the record that it tells as the server has it; nil: none.
private struct ChangeLine {
    var text: String
    var record: RecordID?
    /// Said for another line's sake, if it was not said before.
    var isRepeated = false

    init(_ text: String, of record: RecordID? = nil) {
        self.text = text
        self.record = record
    }
}

/// What was printed.
private final class PrintedLines: Sendable {
    private let state = Mutex((count: 0, last: [RecordID: String]()))

    var count: Int { state.withLock { $0.count } }

    func next() -> Int {
        state.withLock { state in
            state.count += 1
            return state.count
        }
    }

    /// Whether it is to be printed.
    func isNews(_ line: ChangeLine) -> Bool {
        guard let record = line.record else { return true }
        return state.withLock { state in
            defer { state.last[record] = line.text }
            return !line.isRepeated || state.last[record] != line.text
        }
    }
}
