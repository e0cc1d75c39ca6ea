internal import GRDB
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// What the server is asked for by itself.
extension RecordDatabase {
    func fetch(
        _ ids: [RecordID], _ desired: Set<String>?, _ timeout: Duration?
    ) async throws(CloudError) -> [RecordID: Record] {
        var found: [RecordID: Record] = [:]
        for (zone, ids) in Dictionary(grouping: ids, by: \.zone).sorted(by: { $0.key < $1.key }) {
            let zoneID = try id(of: zone)
            var left = Set(ids.map(\.name)).sorted()[...]
            while !left.isEmpty {
                var request = WireFetchRecords()
                request.container = container
                request.database = kind
                request.zoneID = zoneID
                request.records = Array(left.prefix(RecordLimits.itemsMax))
                request.desiredFields = (desired ?? []).sorted()
                let reply = try await session.call(
                    .records, request, as: WireFetchRecordsReply.self, app: app, timeout: timeout, account: account)
                guard !reply.records.isEmpty, reply.records.count <= left.count else { throw Self.misfit }
                left = left.dropFirst(reply.records.count)
                for change in reply.records where !change.deleted {
                    let id = RecordID(change.item, zone: zone)
                    found[id] = try record(id, change, desired)
                }
            }
        }
        return found
    }

    func record(_ id: RecordID, _ change: WireChange, _ desired: Set<String>?) throws(CloudError) -> Record {
        guard let wire = try? WireRecord(serializedBytes: change.body) else { throw Self.misfit }
        return Record(id, wire, desired: desired)
    }

    static let misfit = CloudError(.internalError, "The server's answer does not fit the request.")

    /// What the server calls a zone.
    ///
    /// - Throws: ``CloudError`` `.zoneNotFound`, `.storeOutOfStep`.
    func id(of zone: String) throws(CloudError) -> String {
        if isPublic {
            guard zone == RecordZone.defaultName else { throw RecordNames.noZone(zone) }
            return RecordLimits.defaultZone
        }
        return try read { database in
            let zones = try zones(database)
            if let id = try zones.id(of: zone) { return id }
            guard try zones.rows.state().synced else {
                throw Self.zonesNotDownloaded(container)
            }
            throw RecordNames.noZone(zone)
        }
    }
}
