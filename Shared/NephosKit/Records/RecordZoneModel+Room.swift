internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// What goes past others while the server's disk is full.
extension RecordZoneModel {
    func makingRoom(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> Set<Int64> {
        let records = records(in: rows)
        var before = RecordsBefore(records)
        var found: Set<Int64> = []
        for operation in operations {
            let pending = try records.pending(at: operation.position)
            let request = try WireZoneChanges(serializedBytes: rows.payload(at: operation.position))
            let named = Set(pending.map(\.change.record) + request.conditions.map(\.record))
            if !pending.isEmpty, pending.allSatisfy(\.isDeletion), try !before.concern(named, request) {
                found.insert(operation.position)
            } else {
                before.add(named, pending, request)
            }
        }
        return found
    }
}

/// What requests are about that a deletion is to go past. With a record those go that refer to it, however far up: so it
/// passes nothing that is about one of those.
private struct RecordsBefore {
    /// So many references are followed: what may be about more is passed by nothing.
    private static let followedMax = 4096

    private let records: RecordTransaction
    private var known: Set<String> = []
    private var unfollowed: [String] = []
    private var isEndless = false
    /// One of them leaves something for the app: the newest is what stays.
    private var leavesToken = false

    init(_ records: RecordTransaction) { self.records = records }

    mutating func add(_ names: Set<String>, _ pending: [RecordTransaction.Pending], _ request: WireZoneChanges) {
        leavesToken = leavesToken || !request.clientToken.isEmpty
        note(names)
        let referenced = pending.flatMap { change in
            (change.ancestor?.referenced ?? []) + (change.save?.fields.flatMap(\.referenced) ?? [])
                + (change.save.map { $0.parent.isEmpty ? [] : [$0.parent] } ?? [])
        }
        note(referenced)
        // Where there is no copy nobody here knows what those refer to.
        if !records.hasCopy, !referenced.isEmpty { isEndless = true }
    }

    /// Whether a request about these passes none of them.
    mutating func concern(_ names: Set<String>, _ request: WireZoneChanges) throws -> Bool {
        if leavesToken, !request.clientToken.isEmpty { return true }
        try follow()
        return isEndless || !known.isDisjoint(with: names)
    }

    private mutating func note(_ names: some Sequence<String>) {
        for name in names where known.insert(name).inserted { unfollowed.append(name) }
    }

    private mutating func follow() throws {
        while !isEndless, let name = unfollowed.popLast() {
            guard known.count <= Self.followedMax else {
                isEndless = true
                return
            }
            // As the server has it, and as it becomes.
            if let record = try records.items.item(ItemName(name))?.record { note(record.referenced) }
            if let record = try records.visible(name).record { note(record.referenced) }
        }
    }
}

extension WireRecord {
    /// Names of records that it refers to.
    fileprivate var referenced: [String] { fields.flatMap(\.referenced) + (parentName.map { [$0] } ?? []) }
}

extension WireRecordField {
    /// Names of records that it refers to.
    var referenced: [String] {
        switch value {
        case .reference(let reference): [reference.record]
        case .references(let list): list.values.map(\.record)
        default: []
        }
    }
}
