internal import NephosCore
internal import NephosWire

/// For people: what did not become, or is no longer, what everybody sees.
extension RecordZoneModel {
    /// Conflicts that nobody has resolved, which are here, and then what saves by force have overwritten, which is the
    /// server's to keep.
    func conflicts(
        of name: String?, withHistory: Bool, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void
    ) {
        do throws(CloudError) {
            let (found, zoneID) = try engine.local.read { database in
                let rows = ScopeTransaction(database, place(in: engine.session))
                let zones = ZoneTransaction(
                    ScopeTransaction(database, RecordPlace.database(container).scope(of: rows.scope.account)))
                let records = records(in: rows)
                guard try place.isPublic || records.isKnown(isMade: zones.isMade(zone)) else {
                    throw RecordDatabase.notDownloaded(zone)
                }
                return (
                    try undecidedConflicts(of: name, limit: limit, in: rows),
                    try place.isPublic ? RecordLimits.defaultZone : zones.id(of: zone)
                )
            }
            guard withHistory, let zoneID, found.count < limit else { return completion(.success(found)) }
            var request = WireListRecordHistory()
            request.container = container
            request.database = place.isPublic ? .public : .private
            request.zoneID = zoneID
            request.record = name ?? ""
            history(request, found, limit: limit, timeout: timeout, completion)
        } catch { completion(.failure(error)) }
    }

    private func undecidedConflicts(of name: String?, limit: Int, in rows: ScopeTransaction) throws -> [ScopeConflict] {
        try records(in: rows).conflicts(of: name).sorted { $0.found > $1.found }.prefix(limit).map(conflict)
    }

    func conflictCount(in rows: ScopeTransaction) throws -> Int { try records(in: rows).conflictCount() }

    private func history(
        _ request: WireListRecordHistory, _ found: [ScopeConflict], limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void
    ) {
        var request = request
        request.limit = UInt32(clamping: min(limit - found.count, RecordLimits.itemsMax))
        let asked = request
        engine.call(
            service, asked, as: WireListRecordHistoryReply.self, app: app, timeout: timeout, endsWhenRefused: true
        ) { [weak self] result, _ in
            guard let self else { return }
            do throws(CloudError) {
                let reply = try result.get()
                let all = found + reply.entries.map(conflict)
                guard reply.more, !reply.entries.isEmpty, all.count < limit else { return completion(.success(all)) }
                var next = asked
                next.skip += UInt32(clamping: reply.entries.count)
                history(next, all, limit: limit, timeout: timeout, completion)
            } catch { completion(.failure(error)) }
        }
    }

    private func conflict(_ conflict: RecordConflict) -> ScopeConflict {
        let server = conflict.server?.modified
        let own = engine.session?.deviceID ?? DeviceID("")
        var told = ScopeConflict(
            name: ItemName(conflict.id.name), outcome: .lost, written: conflict.found, device: own,
            winner: server?.device ?? DeviceID(""),
            won: server.flatMap { Timestamp(nanoseconds: $0.time.nanoseconds) } ?? conflict.found)
        told.content = conflict.client?.plainFields
        told.replacement = conflict.server.map { .content($0.plainFields) } ?? .deletion
        // Which keeps this one comes before which keeps the server's.
        told.resolutions = ["client", "server"].map { kept in
            "nephos records resolve\(options) --keep=\(kept) --conflict=\(conflict.number) "
                + ShellCommand.arguments([conflict.id.name])
        }
        return told
    }

    private func conflict(_ entry: WireRecordHistoryEntry) -> ScopeConflict {
        let record = Record(RecordID(entry.name, zone: zone), entry.record)
        let time = { (stamp: WireRecordStamp) in Timestamp(nanoseconds: stamp.time) ?? Timestamp(milliseconds: 0) }
        var told = ScopeConflict(
            name: ItemName(entry.name), outcome: .overwritten, written: time(entry.record.modified),
            device: DeviceID(entry.record.modified.deviceID), winner: DeviceID(entry.winner.deviceID),
            won: time(entry.winner))
        told.isDamaged = entry.damaged
        if !entry.damaged {
            told.content = record.plainFields
            let line = RecordJSON.line(record)
            if line.utf8.count <= Self.lineBytesMax {
                told.recovery =
                    "nephos records save\(options) --json-line=\(ShellCommand.word(line))"
            }
        }
        return told
    }

    /// How a person saves again what was refused in the zone, all of it.
    var recoveryOfRefused: String {
        "nephos records retry\(options)"
    }

    /// What is longer is no line for a person to copy.
    private static let lineBytesMax = 1000

    /// How a command line names the zone, where another would be meant by itself.
    private var options: String {
        let containers = engine.session?.containers(of: app)
        var options = ShellCommand.options(
            app: app, isDefault: app == engine.session?.defaultApp, home: engine.local.home)
        if containers?.first != container { options += " --container=\(ShellCommand.word(container))" }
        if place.isPublic { options += " --public" }
        if zone != RecordZone.defaultName { options += " --zone=\(ShellCommand.word(zone))" }
        return options
    }
}

extension Record {
    /// Its fields, for a person to read.
    var plainFields: PropertyValue {
        .dictionary(Dictionary(fields.map { (ItemName($0.key), $0.value.plain) }) { $1 })
    }
}

extension RecordValue {
    /// For a person to read; what a property list does not have as its JSON.
    fileprivate var plain: PropertyValue {
        switch self {
        case .string(let value): .string(value)
        case .integer(let value): .integer(value)
        case .real(let value): .real(value)
        case .data(let value): .data(value)
        case .date(let value): .string(value.description)
        case .reference(let value): .string(value.record)
        case .asset(let value): .string("\(value)")
        case .location, .encrypted, .unknown: .string(json)
        case .strings, .integers, .reals, .dates, .datas, .locations, .references, .assets:
            .array((elements ?? []).map(\.plain))
        }
    }
}
