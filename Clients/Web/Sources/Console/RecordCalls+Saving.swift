internal import Foundation
internal import NephosCore
internal import NephosKit

/// The calls that change records.
extension RecordCalls {
    /// How long a change may take to get to the server.
    private static let patience: Duration = .seconds(15)

    struct Save: RecordPlaceArguments {
        struct Field: Decodable {
            var type: String
            var value: String
            /// Of a reference.
            var deletesSelf: Bool?
        }
        var container: String?
        var database: String?
        var zone: String?
        /// Nil: a new record gets one.
        var name: String?
        /// Of a new record.
        var type: String?
        /// Those to set; nil removes one. The others stay.
        var fields: [String: Field?]
        /// As the page has the record; nil: it is new.
        var changeTag: String?
    }

    /// - Throws: ``CloudError`` `.serverRecordChanged` where the record is another by now: the detail `server` has its
    ///   ``RecordRow`` in JSON, or is missing if the record was deleted.
    static func save(_ user: WebUser, _ arguments: Save) async throws -> Answer {
        let database = try await user.readableRecords(arguments)
        let id = arguments.name.map { RecordID($0, zone: arguments.zoneName) } ?? .unique(zone: arguments.zoneName)
        let known = try await database.record(id)
        try require(known, changeTag: arguments.changeTag, id)
        guard var record = known ?? arguments.type.map({ Record(id, type: $0) }) else {
            throw CloudError(.invalidArguments, "A new record needs a type.", details: ["record": id.name])
        }
        for (name, field) in arguments.fields {
            do throws(CloudError) { record.fields[name] = try field?.recordValue } catch {
                var error = error
                error.details["field"] = name
                throw error
            }
        }
        let changed = record
        let saved = try await change(id, in: database, of: user) { () throws(CloudError) in
            try await database.save(changed)
        }
        let stored = try await database.record(id) ?? saved
        return Answer(record: RecordRow(stored, devices: await user.deviceNames()))
    }

    /// - Throws: ``CloudError`` as ``save(_:_:)`` does.
    static func delete(_ user: WebUser, _ arguments: OfRecord) async throws -> ConsoleDone {
        let database = try await user.readableRecords(arguments)
        let id = RecordID(arguments.name, zone: arguments.zoneName)
        guard let record = try await database.record(id) else { throw unknown(id) }
        if let changeTag = arguments.changeTag { try require(record, changeTag: changeTag, id) }
        try await change(id, in: database, of: user) { () throws(CloudError) in try await database.delete(record) }
        return ConsoleDone()
    }

    private static func require(_ record: Record?, changeTag: String?, _ id: RecordID) throws {
        guard record?.changeTag?.base64EncodedString() == changeTag else { throw otherRecord(record, id) }
    }

    private static func otherRecord(_ record: Record?, _ id: RecordID) -> CloudError {
        var error = CloudError(
            .serverRecordChanged, "The record was changed elsewhere meanwhile. Compare both, and decide.",
            details: ["record": id.name])
        let json = record.flatMap { try? ConsoleJSON.encode(RecordRow($0)) }
        error.details["server"] = json.map { String(decoding: $0, as: UTF8.self) }
        return error
    }

    /// Runs a change, and waits until the server has it. A change that the server rejects is not kept.
    @discardableResult
    private static func change<Result: Sendable>(
        _ id: RecordID, in database: RecordDatabase, of user: WebUser,
        _ body: () async throws(CloudError) -> Result
    ) async throws -> Result {
        let conflictsBefore = Set(try await database.conflicts.list(zone: id.zone).map(\.number))
        let rejectedBefore = Set(try await database.conflicts.rejected(zone: id.zone).map(\.number))
        let result = try await body()
        guard !user.isOwn else { return result }
        try await database.waitUntilSent(zone: id.zone, timeout: patience, isImpatient: true)
        let conflict = try await database.conflicts.list(zone: id.zone)
            .first { $0.id == id && !conflictsBefore.contains($0.number) }
        if let conflict {
            try await database.conflicts.resolve(conflict, keeping: .server)
            throw otherRecord(conflict.server, id)
        }
        let rejected = try await database.conflicts.rejected(zone: id.zone)
            .first { $0.id == id && !rejectedBefore.contains($0.number) }
        if let rejected {
            try await database.conflicts.dismissRejected([rejected])
            throw rejected.error
        }
        return result
    }

    // MARK: Conflicts

    struct Conflicts: Encodable {
        struct Row: Encodable {
            /// Names the conflict.
            var number: String
            var name: String
            var zone: String
            var found: UInt64
            /// Nil: it was deleted there.
            var server: RecordRow?
            /// This device's; nil: it was deleted here.
            var client: RecordRow?
        }
        var conflicts: [Row]
    }

    static func conflicts(_ user: WebUser, _ arguments: Place) async throws -> Conflicts {
        let database = try await user.records(arguments)
        return Conflicts(
            conflicts: try await database.conflicts.list().map { conflict in
                Conflicts.Row(
                    number: "\(conflict.number)", name: conflict.id.name, zone: conflict.id.zone,
                    found: conflict.found.milliseconds,
                    server: conflict.server.map { RecordRow($0, isShort: true) },
                    client: conflict.client.map { RecordRow($0, isShort: true) })
            })
    }

    struct Resolve: RecordPlaceArguments {
        var container: String?
        var database: String?
        var zone: String?
        var number: String
        /// `server` or `client`.
        var keep: String
    }

    /// Resolves a conflict, and waits until the server has the record.
    ///
    /// - Throws: ``CloudError`` `.serverRecordChanged` when there is a new conflict; a rejection's error. Both keep the
    ///   chosen record in their list.
    static func resolve(_ user: WebUser, _ arguments: Resolve) async throws -> ConsoleDone {
        let database = try await user.records(arguments)
        let all = try await database.conflicts.list()
        guard let conflict = all.first(where: { "\($0.number)" == arguments.number }) else {
            throw CloudError(.unknownItem, "The conflict was resolved already, or has become another. Look again.")
        }
        let kept: RecordResolution? = ["server": .server, "client": .client][arguments.keep]
        guard let kept else { throw CloudError(.invalidArguments, "Keep the server's record, or the client's.") }
        let id = conflict.id
        let rejectedBefore = Set(try await database.conflicts.rejected(zone: id.zone).map(\.number))
        try await database.conflicts.resolve(conflict, keeping: kept)
        guard !user.isOwn, arguments.keep != "server" else { return ConsoleDone() }
        try await database.waitUntilSent(zone: id.zone, timeout: patience, isImpatient: true)
        if try await database.conflicts.list(zone: id.zone).contains(where: { $0.id == id }) {
            throw CloudError(
                .serverRecordChanged,
                "The record was changed elsewhere meanwhile. The conflict is listed again with both records.",
                details: ["record": id.name])
        }
        let rejected = try await database.conflicts.rejected(zone: id.zone)
            .first { $0.id == id && !rejectedBefore.contains($0.number) }
        if var error = rejected?.error {
            error.message += " Your choice is kept among the rejected changes, on the page Sync status."
            throw error
        }
        return ConsoleDone()
    }
}

extension RecordCalls.Save.Field {
    var recordValue: RecordValue {
        get throws(CloudError) {
            let found = try TypedText(type: type, text: value).fieldValue
            guard case .reference(var reference) = found else { return found }
            reference.deletesSelf = deletesSelf ?? false
            return .reference(reference)
        }
    }
}
