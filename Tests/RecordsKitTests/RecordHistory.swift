import Foundation
import NephosCore
import NephosSimulation

@testable import NephosKit

/// One seeded history of records: devices save, delete and resolve; they lose their connection and are restarted,
/// services crash, messages and replies are lost. Then everything heals, and what was accepted is held against what the
/// devices and the service have.
final class RecordHistory {
    private static let zones = [RecordZone.defaultName, "one", "-two '/"]
    /// Odd ones among them.
    private static let names = ["r0", "r1", "r2", "r3", "a/b", "-x", "~ \"q' %", String(repeating: "n", count: 255)]
    let cloud: RecordCloud
    private var generator: SplitMix64
    private var devices: [RecordCloud.Device] = []
    private var offline: Set<Int> = []
    private var isCrashed = false
    private var counter: Int64 = 0
    private var trace: [String] = []

    /// Which saves each save was made from, by change tags.
    private var parents: [Data: [Data]] = [:]
    /// Of which record each save was.
    private var saves: [(id: RecordID, tag: Data)] = []
    /// Dropped by whoever resolved a conflict.
    private var dropped: Set<Data> = []
    private var deleted: Set<RecordID> = []
    private var ended: [RecordID: Set<Data>] = [:]
    /// What each device saved last of its own field of a record that all save by force.
    private var own: [RecordID: [String: Int64]] = [:]
    private(set) var conflictCount = 0
    /// What the service once had on disk; and whether it comes back from that.
    private var copies: [StorageCopy] = []
    private let hasRestores: Bool
    /// What the service once said of each save, and of which zone it was: by its change tag.
    private var stamps: [Data: (zone: String?, stamps: [RecordStamp?])] = [:]
    /// Change tags that all devices knew the deletion of.
    private var gone: [RecordID: Set<Data>] = [:]

    init(seed: UInt64) throws {
        var generator = SplitMix64(seed: seed)
        hasRestores = Double.random(in: 0..<1, using: &generator) < 0.5
        self.generator = generator
        cloud = try RecordCloud(seed: seed)
    }

    func run() async throws {
        defer { cloud.close() }
        do {
            for _ in 0..<3 { devices.append(try await cloud.open()) }
            // One is a day behind, and one an hour ahead.
            if flip(0.5) {
                for (device, offset) in zip(devices, [Duration.seconds(-86_400), .seconds(3600)]) {
                    cloud.simulation.use { $0.network.setClockOffset(device.name, offset) }
                }
            }
            for _ in 0..<Int.random(in: 20...50, using: &generator) {
                try await step()
                cloud.simulation.pass(.milliseconds(Int64.random(in: 0...2000, using: &generator)))
            }
            try heal()
            try await settle()
            try await observe()
            try await checkEnd()
        } catch { throw Violation("\(error)" + trace.map { "\n\($0)" }.joined()) }
    }

    // MARK: What happens

    private func flip(_ probability: Double) -> Bool { Double.random(in: 0..<1, using: &generator) < probability }

    private func step() async throws {
        let number = Int.random(in: 0..<devices.count, using: &generator)
        let device = devices[number]
        let id = RecordID(
            Self.names.randomElement(using: &generator) ?? "", zone: Self.zones.randomElement(using: &generator) ?? "")
        try await ask(device, id.zone, .local)
        if flip(0.05) { await changeIndexes(number) }
        switch Double.random(in: 0..<1, using: &generator) {
        case ..<0.35: try await save([id], on: device, number)
        case ..<0.45:
            let ids = (0..<3).map { RecordID("r\($0)", zone: id.zone) }
            try await save(ids, on: device, number)
        case ..<0.62: try await saveByForce(RecordID("k", zone: id.zone), on: device, number)
        case ..<0.67: try await delete(id, on: device, number)
        case ..<0.75: try await resolve(in: id.zone, on: device, number)
        case ..<0.85:
            let isOffline = offline.remove(number) == nil
            if isOffline { offline.insert(number) }
            device.setOffline(isOffline)
            trace.append("\(number) offline: \(isOffline)")
        case ..<0.88 where hasRestores && !isCrashed:
            if let copy = copies.randomElement(using: &generator), flip(0.5) {
                try cloud.simulation.use { try $0.restore(copy, of: .records) }
                trace.append("records restored")
            } else {
                copies.append(try cloud.simulation.use { try $0.copyStorage(of: .records) })
                trace.append("records copied")
            }
        case ..<0.91 where hasRestores && !isCrashed && offline.isEmpty:
            try cloud.simulation.use { try $0.faults.clear() }
            try await settle()
            try await observe()
            trace.append("all settle")
        case ..<0.93:
            isCrashed.toggle()
            try cloud.simulation.use { if isCrashed { $0.crash(.records) } else { try $0.start(.records) } }
            trace.append("records crashed: \(isCrashed)")
        default:
            let place =
                [
                    "records.send", "records.receive", "records.commit", "records.publish", "notifications.send",
                    "records.commit",
                ]
                .randomElement(using: &generator) ?? ""
            try cloud.simulation.use { try $0.faults.fail(place) }
            trace.append("fails once: \(place)")
        }
    }

    /// - Returns: False: nobody here knows what is in the zone yet.
    private func hasZone(_ zone: String, on device: RecordCloud.Device) async throws -> Bool {
        if try await device.database.zones.zone(zone) == nil { try await device.database.zones.make(zone) }
        do { _ = try await device.database.recordCount(zone: zone) } catch { return error.code != .storeOutOfStep }
        return true
    }

    private func save(_ ids: [RecordID], on device: RecordCloud.Device, _ number: Int) async throws {
        guard let zone = ids.first?.zone, try await hasZone(zone, on: device) else { return }
        var records: [Record] = []
        for id in ids {
            var record = try await device.database.record(id) ?? Record(id, type: "Note")
            counter += 1
            // No two saves have the same content: that would be no conflict, and one save.
            record["v"] = .integer(counter)
            record["t"] = flip(0.5) ? .string(PlainQuery.texts.randomElement(using: &generator) ?? "") : record["t"]
            record["tags"] = flip(0.3) ? .strings(["x", "y", "z"].filter { _ in flip(0.5) }) : record["tags"]
            // It need not be there.
            record["ref"] =
                flip(0.3)
                ? .reference(RecordReference(Self.names.randomElement(using: &generator) ?? "")) : record["ref"]
            if try await hasRoot(zone, on: device) { record.parent = flip(0.3) ? Self.root : record.parent }
            records.append(record)
        }
        let before = records.map(\.changeTag)
        let saved = try await device.database.modify(saving: records, deleting: [], atomically: false)
        for (record, base) in zip(saved, before) {
            guard let tag = record.changeTag else { throw Violation("A saved record has no change tag.") }
            parents[tag] = [base].compactMap { $0 }
            saves.append((record.id, tag))
        }
        trace.append("\(number) saves \(ids) up to \(counter)")
    }

    /// A record that all make alike, which is no conflict, and nobody deletes: parents have to be there.
    private static let root = "root"

    private func hasRoot(_ zone: String, on device: RecordCloud.Device) async throws -> Bool {
        let id = RecordID(Self.root, zone: zone)
        if try await device.database.record(id) != nil { return true }
        guard flip(0.5) else { return false }
        try await device.database.save(Record(id, type: "Root", fields: ["is": "above"]))
        return true
    }

    /// Indexes of the server's, which come and go; devices do without.
    private func changeIndexes(_ number: Int) async {
        let indexes = [
            RecordIndex(type: "Note", fields: [RecordIndex.Field("v")]),
            RecordIndex(type: "Note", fields: [RecordIndex.Field("t"), RecordIndex.Field("v")]),
            RecordIndex(type: "Note", fields: [RecordIndex.Field("tags")]),
            RecordIndex(type: "Note", fields: [RecordIndex.Field("ref"), RecordIndex.Field("v", ascending: false)]),
        ].shuffled(using: &generator)
        // It may be out of reach.
        _ = try? await devices[number].database.indexes.modify(
            saving: [indexes[0], indexes[1]], deleting: [indexes[2]], timeout: .seconds(5))
        trace.append("\(number) makes indexes of \(indexes[0].fields), \(indexes[1].fields)")
    }

    private func saveByForce(_ id: RecordID, on device: RecordCloud.Device, _ number: Int) async throws {
        guard try await hasZone(id.zone, on: device) else { return }
        var record = try await device.database.record(id) ?? Record(id, type: "Count")
        counter += 1
        record["d\(number)"] = .integer(counter)
        try await device.database.save(record, policy: .changedKeys)
        own[id, default: [:]]["d\(number)"] = counter
        trace.append("\(number) saves \(id) by force: \(counter)")
    }

    private func delete(_ id: RecordID, on device: RecordCloud.Device, _ number: Int) async throws {
        guard try await hasZone(id.zone, on: device), try await device.database.record(id) != nil else { return }
        let tag = try await device.database.record(id)?.changeTag
        try await device.database.delete(id)
        deleted.insert(id)
        if let tag { ended[id, default: []].insert(tag) }
        trace.append("\(number) deletes \(id)")
    }

    private func resolve(in zone: String, on device: RecordCloud.Device, _ number: Int) async throws {
        guard try await device.database.zones.zone(zone) != nil,
            let conflict = try await device.database.conflicts.list(zone: zone).first
        else { return }
        conflictCount += 1
        let client = conflict.client?.changeTag
        switch Int.random(in: 0..<3, using: &generator) {
        case 0:
            try await device.database.conflicts.resolve(conflict, keeping: .server)
            dropped.formUnion(client.map { lineage(of: $0) } ?? [])
        case 1 where conflict.client != nil:
            let kept = try await device.database.conflicts.resolve(conflict, keeping: .client)
            note(kept, from: [client, conflict.server?.changeTag])
        default:
            guard var merged = conflict.server ?? conflict.client else { return }
            counter += 1
            merged["v"] = .integer(counter)
            let kept = try await device.database.conflicts.resolve(conflict, keeping: .merged(merged))
            note(kept, from: [client, conflict.server?.changeTag])
        }
        trace.append("\(number) resolves \(conflict.id)")
    }

    private func note(_ record: Record?, from bases: [Data?]) {
        guard let record, let tag = record.changeTag else { return }
        parents[tag] = bases.compactMap { $0 }
        saves.append((record.id, tag))
    }

    private func lineage(of tag: Data) -> Set<Data> {
        var (found, left): (Set<Data>, [Data]) = ([], [tag])
        while let next = left.popLast() {
            if found.insert(next).inserted { left += parents[next] ?? [] }
        }
        return found
    }

    // MARK: Queries

    /// What is found is what a plain reading of all records finds; both in the order of names, and page by page.
    private func ask(_ device: RecordCloud.Device, _ zone: String, _ source: RecordSource) async throws {
        do {
            let all = try await device.database.records(matching: RecordQuery(), in: zone)
            guard all.map(\.id.name) == all.map(\.id.name).sorted() else { throw Violation("Not in order: \(all)") }
            for query in PlainQuery.all(Int64.random(in: 0...max(1, counter), using: &generator)) {
                var asked = RecordQuery(type: flip(0.5) ? "Note" : nil, try QueryPredicate(parsing: query.text))
                var expected = all.filter { (asked.type == nil || $0.type == asked.type) && query.holds($0) }
                if let order = PlainOrder.all.randomElement(using: &generator) {
                    asked.sort = order.sort
                    // Stable: what is alike stays in the order of names.
                    expected = order.sorted(expected)
                }
                if flip(0.2) {
                    asked.limit = 3
                    expected = Array(expected.prefix(3))
                }
                let found = try await device.database.records(matching: asked, in: zone, from: source)
                guard found == expected else {
                    throw Violation(
                        "\(query.text) by \(asked.sort) of \(device.name) finds \(found) and not \(expected).")
                }
                guard source == .local else { continue }
                var paged: [Record] = []
                for try await page in device.database.pages(matching: asked, in: zone, size: 2) { paged += page }
                guard paged == expected else { throw Violation("\(query.text) in pages finds \(paged).") }
            }
        } catch let error as CloudError where error.code == .storeOutOfStep || error.code == .zoneNotFound {}
    }

    // MARK: What all see

    /// Where all have the same: what the service has said of a save stays so, and what is gone stays gone.
    private func observe() async throws {
        for zone in try await devices[0].database.zones.list() {
            for device in devices { try await ask(device, zone.name, .server) }
            let records = try await devices[0].database.records(matching: RecordQuery(), in: zone.name)
            for record in records where !record.isPending {
                guard let tag = record.changeTag else { throw Violation("A record has no change tag.") }
                guard gone[record.id]?.contains(tag) != true else {
                    throw Violation("\(record.id) is there again, as it was deleted.")
                }
                let said = [record.created, record.modified]
                guard let former = stamps[tag], former.zone == zone.id else {
                    stamps[tag] = (zone.id, said)
                    continue
                }
                guard former.stamps == said else {
                    throw Violation("\(record.id) was \(former.stamps), and is \(said).")
                }
            }
            let names = Set(records.map(\.id))
            for (id, tags) in ended where id.zone == zone.name && !names.contains(id) {
                for tag in tags { gone[id, default: []].formUnion(lineage(of: tag)) }
            }
        }
    }

    // MARK: The end

    private func heal() throws {
        try cloud.simulation.use { test in
            try test.faults.clear()
            if isCrashed { try test.start(.records) }
        }
        for device in devices { device.setOffline(false) }
    }

    private func settle() async throws {
        // What one sends the others have to hear of, and a zone's records begin once the zone is known.
        for _ in 0..<4 {
            for device in devices {
                try await device.database.waitUntilCurrent(timeout: .seconds(300))
                for zone in try await device.database.zones.list() { try await device.settle(zone.name) }
            }
        }
    }

    private func checkEnd() async throws {
        let first = devices[0].database
        for device in devices {
            guard try await device.database.zones.list() == first.zones.list() else { throw Violation("Zones differ.") }
            guard try await device.database.scope.verify(timeout: .seconds(60)).agrees else {
                throw Violation("\(device.name) has other zones than the service.")
            }
        }
        for zone in try await first.zones.list().map(\.name) {
            let records = try await first.records(matching: RecordQuery(), in: zone)
            var kept: [RecordID: Set<Data>] = [:]
            var listed: [String: [Record]] = [:]
            for device in devices {
                guard try await device.database.records(matching: RecordQuery(), in: zone) == records else {
                    throw Violation("\(device.name) and the first differ in \(zone).")
                }
                guard try await device.proves(zone) else {
                    throw Violation("\(device.name) and the service differ in \(zone).")
                }
                let refused = try await device.database.conflicts.rejected(zone: zone)
                guard refused.isEmpty || hasRestores else {
                    throw Violation("\(device.name) lists as refused: \(refused)")
                }
                listed[zone, default: []] += refused.compactMap(\.record)
                for conflict in try await device.database.conflicts.list(zone: zone) {
                    conflictCount += 1
                    listed[zone, default: []] += [conflict.client].compactMap { $0 }
                    guard let tag = conflict.client?.changeTag else { continue }
                    kept[conflict.id, default: []].formUnion(lineage(of: tag))
                }
            }
            for record in records { kept[record.id, default: []].formUnion(record.changeTag.map(lineage) ?? []) }
            for (id, tag) in saves where id.zone == zone && !deleted.contains(id) && !dropped.contains(tag) {
                // A record that a lost deletion brought back, or that came back as it once was, is not looked at.
                guard kept[id]?.contains(tag) == true || hasRestores else {
                    throw Violation("A save of \(id) is lost in silence.")
                }
            }
            for (id, fields) in own where id.zone == zone {
                let record = records.first { $0.id == id }
                for (name, value) in fields where record?.fields[name] != .integer(value) {
                    if listed[zone]?.contains(where: { $0.id == id && $0.fields[name] == .integer(value) }) == true {
                        continue
                    }
                    throw Violation("\(id) has \(record?.fields ?? [:]), and \(name) was \(value).")
                }
            }
        }
    }
}
