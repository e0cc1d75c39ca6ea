import Foundation
import NephosCore
import NephosKit

/// Waits for the server's word on what was saved and deleted, and says how it went.
struct SentRecords {
    private struct Report: Encodable {
        var state: String
        var records: [String]
        var zone: String
        /// Of a deletion: the records that this device had not. Whether anybody else had, it does not know.
        var notOnThisDevice: [String]?
        var reason: String?
    }

    private let database: RecordDatabase
    private let zone: String
    /// What was a conflict, and what was refused, before.
    private let conflicts: Set<RecordConflict>
    private let refused: Set<Int64>

    init(_ database: RecordDatabase, zone: String) async throws {
        self.database = database
        self.zone = zone
        conflicts = try await Set(database.conflicts.list(zone: zone))
        refused = try await Set(database.conflicts.rejected(zone: zone).map(\.number))
    }

    /// What became of records that were not taken: of each the error.
    func failures(of names: Set<String>) async throws -> [String: CloudError] {
        var failures: [String: CloudError] = [:]
        for one in try await database.conflicts.rejected(zone: zone)
        where names.contains(one.id.name) && !refused.contains(one.number) { failures[one.id.name] = one.error }
        for conflict in try await database.conflicts.list(zone: zone)
        where names.contains(conflict.id.name) && !conflicts.contains(conflict) {
            failures[conflict.id.name] = CloudError(
                .serverRecordChanged,
                "The record was saved otherwise meanwhile. Decide: nephos records conflicts",
                details: ["record": conflict.id.name])
        }
        return failures
    }

    /// - Parameters:
    ///   - names: Of what was changed.
    ///   - done: What was done here.
    /// - Throws: ``CloudError`` of a refusal, or a conflict.
    func wait(
        _ names: [String], unknown: [String] = [], _ network: RecordsCommand.NetworkOptions,
        _ output: OutputOptions, done: String
    ) async throws {
        var report = Report(
            state: "queued", records: names, zone: zone, notOnThisDevice: unknown.isEmpty ? nil : unknown)
        if network.offline {
            return try output.print(report, text: "\(done) It is kept here, and sent later.")
        }
        Interrupt.sayThatItIsKept()
        do {
            if let unsent = try await unsent(within: network.duration, shows: !output.json) {
                report.reason = unsent.reason
                return try output.print(report, text: unsent.text(done))
            }
        } catch {
            // It waits for a person, who has to hear of it.
            report.state = "blocked"
            try output.print(report, text: "\(done) It is kept on this device.")
            throw error
        }
        let failures = try await failures(of: Set(names))
        if let name = names.first(where: { failures[$0] != nil }), var error = failures[name] {
            let taken = names.filter { failures[$0] == nil }
            if !taken.isEmpty { Standard.error("nephos: The others were taken: \(listed(taken.map(inLine)))") }
            error.details["record"] = name
            if failures.count > 1 { error.details["refused"] = "\(failures.count)" }
            throw error
        }
        // What was saved before, and not taken: this is over what the server had instead.
        if try await database.conflicts.list(zone: zone).contains(where: { names.contains($0.id.name) }) {
            Standard.error("nephos: There is an undecided conflict. See: nephos records conflicts")
        }
        if try await database.conflicts.rejected(zone: zone).contains(where: { names.contains($0.id.name) }) {
            Standard.error("nephos: An earlier rejected change of it is still listed. See: nephos records rejected")
        }
        report.state = "sent"
        try output.print(report, text: done)
    }

    /// There was nothing to change.
    func sayNothing(_ output: OutputOptions, _ text: String) throws {
        try output.print(Report(state: "sent", records: [], zone: zone), text: text)
    }

    /// Waits for as long as assets move.
    ///
    /// - Returns: Why not all of it was sent; nil: it was.
    /// - Throws: ``CloudError`` of what needs a person.
    func unsent(within limit: Duration, shows: Bool = false) async throws -> Unsent? {
        let line = ProgressLine("sending", isShown: shows)
        defer { line.clear() }
        do {
            try await database.waitUntilSentWhileItMoves(zone: zone, within: limit) { line.show(done: $0, total: $1) }
            return nil
        } catch {
            guard ExitStatus.of(error) == .unreachable else { throw error }
            return Unsent(try await database.status(zone: zone).problem ?? error)
        }
    }
}
