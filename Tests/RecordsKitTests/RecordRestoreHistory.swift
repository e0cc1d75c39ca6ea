import Foundation
import NephosCore
import NephosSimulation
import NephosStorage

@testable import NephosKit

/// One seeded history of records whose service comes back two or three times, from copies that cross: one that was taken
/// before another comes back after it. Devices save alone and in batches, under conditions, and what is refused; some are
/// cut off, some come late, clocks are wrong, answers are lost. Then everything heals, and what devices had accepted or
/// been told is held against what there is.
final class RecordRestoreHistory {
    private static let zones = [RecordZone.defaultName, "one"]
    private static let names = ["r0", "r1", "r2", "r3"]
    /// All save it by force, each a field of its own.
    private static let forced = "k"
    private static let offsets: [Duration] = [
        .seconds(-3 * 86_400), .seconds(-1200), .seconds(300), .seconds(2 * 3600), .seconds(3 * 86_400),
    ]

    private struct Member {
        var device: RecordCloud.Device
        var home: String
        var isOffline = false
    }

    private enum Turn {
        case copy
        /// A copy by its number, or nothing.
        case restore(Int?)
        case join
    }

    /// A save, by its change tag.
    private struct Save {
        var id: RecordID
        var tag: Data
        /// What it was made from.
        var parents: [Data]
        /// Saves of one batch, which is done as a whole.
        var batch: Int?
    }

    private let cloud: RecordCloud
    private var generator: SplitMix64
    /// Apart from the other: without damage a seed's history is what it was. Nil: nothing is damaged.
    private var damageGenerator: SplitMix64?
    private var members: [Member] = []
    private var turns: [Int: [Turn]] = [:]
    private var copies: [StorageCopy] = []
    private var counter: Int64 = 0
    private var trace: [String] = []
    private let hasWrongClocks: Bool
    private let losesAnswers: Bool

    private var saves: [Data: Save] = [:]
    /// By its number, which no other has: a refused record is told as what it was made from.
    private var numbered: [Int64: Data] = [:]
    /// Change tags that some device was told of by the service.
    private var heard: Set<Data> = []
    /// Nobody had it any more when the service had lost it; or a person has decided against it.
    private var forgotten: Set<Data> = []
    /// By the records' change tags: what was deleted.
    private var deleted: Set<Data> = []
    /// Change tags of which all devices knew that they are gone.
    private var gone: Set<Data> = []
    /// What each device saved last of its own field of the forced record.
    private var own: [RecordID: [String: Int64]] = [:]
    private(set) var counts: [String: Int] = [:]

    /// - Parameter hasDamage: The server's disk loses records that some device has.
    init(seed: UInt64, hasDamage: Bool = false) throws {
        damageGenerator = hasDamage ? SplitMix64(seed: ~seed) : nil
        var generator = SplitMix64(seed: seed)
        hasWrongClocks = Double.random(in: 0..<1, using: &generator) < 0.3
        losesAnswers = Double.random(in: 0..<1, using: &generator) < 0.4
        self.generator = generator
        cloud = try RecordCloud(seed: seed)
    }

    func run() async throws {
        defer { cloud.close() }
        do {
            for _ in 0..<Int.random(in: 2...3, using: &generator) { try await join() }
            try await members[0].device.database.zones.make("one")
            try await settle()
            try copyStorage()
            let last = plan()
            for number in 1...last {
                for turn in turns[number] ?? [] { try await take(turn) }
                try await step()
                try await damageSomething()
                try await look()
                cloud.simulation.pass(.milliseconds(Int64.random(in: 0...2000, using: &generator)))
                try await look()
            }
            try await heal()
            try await settle()
            try await look()
            try await findDamage()
            try await checkEnd()
        } catch { throw Violation("\(error)" + trace.map { "\n\($0)" }.joined()) }
    }

    // MARK: What happens

    private func flip(_ probability: Double) -> Bool { Double.random(in: 0..<1, using: &generator) < probability }

    private func note(_ text: String, _ kind: String? = nil) {
        trace.append("\(cloud.simulation.use { $0.network.now }): \(text)")
        if let kind { counts[kind, default: 0] += 1 }
    }

    /// Copies are taken before the first restore, after it, or both; each restore takes another one. Devices come between
    /// the restores, and after them.
    ///
    /// - Returns: How many steps there are.
    private func plan() -> Int {
        var (copyCount, unused) = (1, [Int?.some(0)])
        var steps = 1...8
        func add(_ turn: Turn) { turns[Int.random(in: steps, using: &generator), default: []].append(turn) }
        func addCopy() {
            add(.copy)
            unused.append(copyCount)
            copyCount += 1
        }
        for _ in 0..<Int.random(in: 1...2, using: &generator) { addCopy() }
        for _ in 0..<Int.random(in: 2...3, using: &generator) {
            steps = (steps.upperBound + 1)...(steps.upperBound + 5)
            let next = flip(0.1) ? nil : unused.randomElement(using: &generator) ?? 0
            unused.removeAll { $0 == next }
            add(.restore(next))
            steps = (steps.upperBound + 1)...(steps.upperBound + 6)
            if members.count < 5, flip(0.4) { add(.join) }
            if flip(0.6) { addCopy() }
        }
        return steps.upperBound + 3
    }

    private func take(_ turn: Turn) async throws {
        switch turn {
        case .copy: try copyStorage()
        case .restore(let number): try await restore(number)
        case .join: try await join()
        }
    }

    private func copyStorage() throws {
        note("copy \(copies.count)")
        copies.append(try cloud.simulation.use { try $0.copyStorage(of: .records) })
    }

    private func restore(_ number: Int?) async throws {
        try await look()
        let here = try await held()
        for (tag, save) in saves where heard.contains(tag) && !here.contains(tag) {
            if forgotten.insert(tag).inserted { note("  nobody has \(save.id) \(tag.short) any more") }
        }
        note("restore \(number.map { "\($0)" } ?? "nothing")", "restores")
        try cloud.simulation.use { cloud in
            try cloud.faults.clear()
            try cloud.restore(number.map { copies[$0] }, of: .records)
        }
    }

    private func join() async throws {
        let device = try await cloud.open()
        members.append(Member(device: device, home: cloud.root + "/" + device.name))
        note("\(device.name) comes")
        if hasWrongClocks { setClock(of: device) }
    }

    private func setClock(of device: RecordCloud.Device) {
        let offset = flip(0.3) ? .zero : Self.offsets.randomElement(using: &generator) ?? .zero
        cloud.simulation.use { $0.network.setClockOffset(device.name, offset) }
    }

    private func restart(_ number: Int) async throws {
        members[number].device.session.close()
        let device = try await cloud.openFirst(home: members[number].home)
        device.setOffline(members[number].isOffline)
        note("\(members[number].device.name) restarts as \(device.name)")
        members[number].device = device
    }

    private func step() async throws {
        let number = Int.random(in: members.indices, using: &generator)
        let device = members[number].device
        let zone = Self.zones.randomElement(using: &generator) ?? ""
        let id = RecordID(Self.names.randomElement(using: &generator) ?? "", zone: zone)
        if hasWrongClocks, flip(0.05) { setClock(of: device) }
        switch Double.random(in: 0..<1, using: &generator) {
        case ..<0.28: try await save([id], on: device)
        case ..<0.42:
            let names = Self.names.shuffled(using: &generator).prefix(Int.random(in: 2...3, using: &generator))
            try await save(names.map { RecordID($0, zone: zone) }, on: device)
        case ..<0.49: try await save([id], on: device, hasCondition: true)
        case ..<0.56: try await saveInVain(id, on: device)
        case ..<0.64: try await saveByForce(RecordID(Self.forced, zone: zone), on: device, number)
        case ..<0.74: try await delete(id, on: device)
        case ..<0.80: try await decide(in: zone, on: device)
        case ..<0.90:
            members[number].isOffline.toggle()
            device.setOffline(members[number].isOffline)
            note("\(device.name) offline: \(members[number].isOffline)")
        case ..<0.94: try await restart(number)
        case ..<0.97 where members.allSatisfy { !$0.isOffline }:
            try cloud.simulation.use { try $0.faults.clear() }
            try await settle()
            try await look()
            try await noteWhatIsGone()
            note("all settle", "settled")
        default:
            guard losesAnswers else { return }
            let place = ["records.send", "records.receive", "records.commit", "notifications.send"]
                .randomElement(using: &generator)
            try cloud.simulation.use { try $0.faults.fail(place ?? "") }
            note("fails once: \(place ?? "")")
        }
    }

    /// - Returns: False: nobody here knows what is in the zone.
    private func hasZone(_ zone: String, on device: RecordCloud.Device) async throws -> Bool {
        do { _ = try await device.database.recordCount(zone: zone) } catch {
            guard error.code == .storeOutOfStep || error.code == .zoneNotFound else { throw error }
            return false
        }
        return true
    }

    /// The disk loses a record that a device has, which says that it is in sync.
    private func damageSomething() async throws {
        guard var generator = damageGenerator else { return }
        defer { damageGenerator = generator }
        let member = members.randomElement(using: &generator)
        let zone = Self.zones.randomElement(using: &generator) ?? ""
        let name = Self.names.randomElement(using: &generator) ?? ""
        guard Double.random(in: 0..<1, using: &generator) < 0.2, let device = member?.device,
            try await hasZone(zone, on: device), let scope = try scopeName(of: zone, on: device),
            try await device.database.heardRecords([RecordID(name, zone: zone)]).isEmpty == false
        else { return }
        let status = try await device.database.scope(of: zone).status()
        let isDamaged = try cloud.simulation.use { cloud in
            try cloud.storage(of: .records).write { transaction in
                let head = try Feed(over: transaction).head(scope)
                guard status.isInSync, status.head.isSamePlace(as: head.token), status.digest == head.digest else {
                    return false
                }
                return try transaction.execute(
                    SQL(
                        """
                        UPDATE feed_items SET body = substr(body, 1, length(body) - 4) || ?3 WHERE name = ?2
                            AND scope_id = (SELECT id FROM feed_scopes WHERE owner = ?4 AND path = ?1)
                        """),
                    [
                        .text(scope.path.rawValue), .text(name), .blob(Array("lost".utf8)),
                        .text(scope.owner.rawValue),
                    ]) == 1
            }
        }
        guard isDamaged else { return }
        note("the disk loses \(name) of \(zone), which \(device.name) has", "damage")
        try cloud.simulation.use { cloud in
            cloud.crash(.records)
            try cloud.start(.records)
        }
    }

    private func save(_ ids: [RecordID], on device: RecordCloud.Device, hasCondition: Bool = false) async throws {
        guard let zone = ids.first?.zone, try await hasZone(zone, on: device) else { return }
        var records: [Record] = []
        for id in ids { records.append(try await edited(id, on: device)) }
        var conditions: [RecordCondition] = []
        if hasCondition, let name = Self.names.first(where: { name in !ids.contains { $0.name == name } }) {
            let other = RecordID(name, zone: zone)
            conditions = [try await device.database.record(other).map { .unchanged($0) } ?? .absent(other)]
        }
        try await save(records, on: device, conditions)
        note(
            "\(device.name) saves \(ids.map(\.name)) of \(zone) up to \(counter) if \(conditions.map(\.id.name))",
            hasCondition ? "conditions" : ids.count > 1 ? "batches" : "saves")
    }

    private func edited(_ id: RecordID, on device: RecordCloud.Device) async throws -> Record {
        var record = try await device.database.record(id) ?? Record(id, type: "Note")
        counter += 1
        // No two saves have the same content: that would be no conflict, and one save.
        record["v"] = .integer(counter)
        return record
    }

    private func save(
        _ records: [Record], on device: RecordCloud.Device, _ conditions: [RecordCondition] = []
    ) async throws {
        let zone = records.first?.id.zone ?? ""
        let refused = try await device.database.conflicts.rejected(zone: zone)
        let saved = try await device.database.modify(saving: records, deleting: [], conditions: conditions)
        let batch = counter
        let left = Set(try await device.database.conflicts.rejected(zone: zone).map(\.number))
        // Who saves again what was refused has decided about it.
        for former in refused where !left.contains(former.number) {
            guard let record = saved.first(where: { $0.id == former.id }) else { continue }
            let there = try await device.database.heardRecords([former.id])[former.id]
            forget(self.saved(former.record), for: there?.changeTag)
            note("  instead of \(former.id) \(self.saved(former.record)?.short ?? "") \(record.changeTag?.short ?? "")")
        }
        for (record, former) in zip(saved, records) {
            guard let tag = record.changeTag else { throw Violation("A saved record has no change tag.") }
            saves[tag] = Save(
                id: record.id, tag: tag, parents: [former.changeTag].compactMap { $0 },
                batch: saved.count > 1 ? Int(batch) : nil)
            number(record, tag)
            note("  \(record.id) \(tag.short) of \(former.changeTag?.short ?? "nothing")")
        }
    }

    /// What nobody takes, together with what would be taken.
    private func saveInVain(_ id: RecordID, on device: RecordCloud.Device) async throws {
        guard try await hasZone(id.zone, on: device) else { return }
        var records = [try await edited(id, on: device)]
        records[0].parent = "nowhere"
        if let other = Self.names.first(where: { $0 != id.name }), flip(0.6) {
            records.append(try await edited(RecordID(other, zone: id.zone), on: device))
        }
        try await save(records, on: device)
        note("\(device.name) saves in vain \(records.map(\.id.name)) of \(id.zone) up to \(counter)", "in vain")
    }

    private func saveByForce(_ id: RecordID, on device: RecordCloud.Device, _ number: Int) async throws {
        guard try await hasZone(id.zone, on: device) else { return }
        var record = try await device.database.record(id) ?? Record(id, type: "Count")
        counter += 1
        record["d\(number)"] = .integer(counter)
        try await device.database.save(record, policy: .changedKeys)
        own[id, default: [:]]["d\(number)"] = counter
        note("\(device.name) saves \(id) by force: \(counter)", "forced")
    }

    private func delete(_ id: RecordID, on device: RecordCloud.Device) async throws {
        guard try await hasZone(id.zone, on: device), let record = try await device.database.record(id) else { return }
        try await device.database.delete(id)
        if let tag = record.changeTag { deleted.insert(tag) }
        note("\(device.name) deletes \(id) \(record.changeTag?.short ?? "")", "deletions")
    }

    /// Somebody looks at what conflicts or was refused.
    private func decide(in zone: String, on device: RecordCloud.Device) async throws {
        guard try await hasZone(zone, on: device) else { return }
        if let conflict = try await device.database.conflicts.list(zone: zone).first {
            let (client, server) = (saved(conflict.client), conflict.server?.changeTag)
            switch Int.random(in: 0..<3, using: &generator) {
            case 0:
                try await device.database.conflicts.resolve(conflict, keeping: .server)
                forget(client, for: server)
            case 1 where conflict.client != nil:
                let kept = try await device.database.conflicts.resolve(conflict, keeping: .client)
                add(kept, from: [client, server])
            default:
                guard var merged = conflict.server ?? conflict.client else { return }
                counter += 1
                merged["v"] = .integer(counter)
                add(
                    try await device.database.conflicts.resolve(conflict, keeping: .merged(merged)),
                    from: [client, server])
            }
            note("\(device.name) resolves \(conflict.id)", "conflicts")
        } else if let refused = try await device.database.conflicts.rejected(zone: zone).first {
            let there = try await device.database.heardRecords([refused.id])[refused.id]
            forget(saved(refused.record), for: there?.changeTag)
            try await device.database.conflicts.dismissRejected([refused])
            note("\(device.name) dismisses \(refused.id): \(refused.error.code)", "refusals")
        }
    }

    private func add(_ record: Record?, from bases: [Data?]) {
        guard let record, let tag = record.changeTag else { return }
        saves[tag] = Save(id: record.id, tag: tag, parents: bases.compactMap { $0 })
        number(record, tag)
        note("  \(record.id) \(tag.short) of \(bases.map { $0?.short ?? "nothing" })")
    }

    private func number(_ record: Record, _ tag: Data) {
        if case .integer(let number)? = record.fields["v"] { numbered[number] = tag }
    }

    private func saved(_ record: Record?) -> Data? {
        guard case .integer(let number)? = record?.fields["v"] else { return record?.changeTag }
        return numbered[number]
    }

    private func forget(_ tag: Data?, for other: Data?) {
        forgotten.formUnion(lineage(of: tag).subtracting(lineage(of: other)))
    }

    private func lineage(of tag: Data?) -> Set<Data> {
        var (found, left): (Set<Data>, [Data]) = ([], [tag].compactMap { $0 })
        while let next = left.popLast() {
            if found.insert(next).inserted { left += saves[next]?.parents ?? [] }
        }
        return found
    }

    // MARK: What must hold

    /// Notes what devices were told; and who says that they are in sync is.
    private func look() async throws {
        for member in members {
            for zone in Self.zones {
                for record in try await heardRecords(of: member.device, zone) {
                    if let tag = record.changeTag { heard.insert(tag) }
                }
                try await checkStatus(of: member.device, zone)
            }
        }
    }

    private func heardRecords(of device: RecordCloud.Device, _ zone: String) async throws -> [Record] {
        let ids = (Self.names + [Self.forced]).map { RecordID($0, zone: zone) }
        do { return try await Array(device.database.heardRecords(ids).values) } catch {
            guard error.code == .storeOutOfStep || error.code == .zoneNotFound else { throw error }
            return []
        }
    }

    private func checkStatus(of device: RecordCloud.Device, _ zone: String) async throws {
        guard try await hasZone(zone, on: device) else { return }
        guard let scope = try scopeName(of: zone, on: device) else { return }
        func there() throws -> ScopeHead {
            try cloud.simulation.use { try $0.storage(of: .records).write { try Feed(over: $0).head(scope) } }
        }
        let before = try there()
        let status = try await device.database.scope(of: zone).status()
        // Time may pass while it is asked.
        guard status.isInSync, status.head.isSamePlace(as: before.token), try there() == before else { return }
        if status.digest == before.digest { return }
        // Quarantine changes no token. The device hears of it a moment later.
        if damageGenerator != nil {
            cloud.simulation.pass(.seconds(2))
            let (later, there) = (try await device.database.scope(of: zone).status(), try there())
            if !later.isInSync || !later.head.isSamePlace(as: there.token) || later.digest == there.digest { return }
        }
        throw Violation("\(device.name) says that \(zone) is in sync, and it is not.")
    }

    private func scopeName(of zone: String, on device: RecordCloud.Device) throws -> ScopeName? {
        try device.database.read { try device.database.records(of: zone, $0).rows.scope.scopeName }
    }

    /// All that devices have: what they were told, what waits, and what is listed.
    private func held() async throws -> Set<Data> {
        var held: Set<Data> = []
        for member in members {
            for zone in Self.zones {
                for record in try await heardRecords(of: member.device, zone) {
                    held.formUnion(lineage(of: record.changeTag))
                }
                held.formUnion(try await listed(on: member.device, zone).tags)
                guard try await hasZone(zone, on: member.device) else { continue }
                for record in try await member.device.database.records(matching: RecordQuery(), in: zone) {
                    held.formUnion(lineage(of: record.changeTag))
                }
            }
        }
        return held
    }

    /// What conflicts and was refused.
    private func listed(
        on device: RecordCloud.Device, _ zone: String
    ) async throws -> (tags: Set<Data>, records: [Record]) {
        var records: [Record] = []
        do {
            records += try await device.database.conflicts.list(zone: zone).compactMap(\.client)
            records += try await device.database.conflicts.rejected(zone: zone).compactMap(\.record)
        } catch {
            guard error.code == .zoneNotFound || error.code == .storeOutOfStep else { throw error }
        }
        return (records.reduce(into: []) { $0.formUnion(lineage(of: saved($1))) }, records)
    }

    /// All have the same, and know what is deleted.
    private func noteWhatIsGone() async throws {
        for zone in Self.zones {
            guard try await hasZone(zone, on: members[0].device) else { continue }
            let there = Set(try await heardRecords(of: members[0].device, zone).map(\.id))
            for tag in deleted {
                guard let save = saves[tag], save.id.zone == zone, !there.contains(save.id) else { continue }
                gone.formUnion(lineage(of: tag))
            }
        }
    }

    private func heal() async throws {
        note("everything heals")
        try cloud.simulation.use { try $0.faults.clear() }
        for number in members.indices {
            members[number].isOffline = false
            members[number].device.setOffline(false)
            let name = members[number].device.name
            cloud.simulation.use { $0.network.setClockOffset(name, .zero) }
        }
    }

    private func settle() async throws {
        // What one sends the others have to hear of, and a zone's records begin once the zone is known.
        for _ in 0..<4 {
            for member in members {
                try await member.device.database.waitUntilCurrent(timeout: .seconds(300))
                for zone in try await member.device.database.zones.list() { try await member.device.settle(zone.name) }
            }
        }
    }

    /// A comparison finds the records that the disk has lost; devices then bring them back.
    private func findDamage() async throws {
        guard damageGenerator != nil else { return }
        for zone in Self.zones { _ = try await members[0].device.proves(zone) }
        try await settle()
        try await look()
    }

    private func checkEnd() async throws {
        let first = members[0].device.database
        for zone in Self.zones {
            let records = try await first.records(matching: RecordQuery(), in: zone)
            var (listedTags, listedRecords): (Set<Data>, [Record]) = ([], [])
            for member in members {
                let device = member.device
                guard try await device.database.records(matching: RecordQuery(), in: zone) == records else {
                    throw Violation("\(device.name) and the first differ in \(zone).")
                }
                guard try await device.proves(zone) else {
                    throw Violation("\(device.name) and the service differ in \(zone).")
                }
                let status = try await device.database.scope(of: zone).status()
                guard status.agrees, status.pending.isEmpty else {
                    throw Violation("\(device.name) does not say that \(zone) is as it is there: \(status)")
                }
                let listed = try await listed(on: device, zone)
                listedTags.formUnion(listed.tags)
                listedRecords += listed.records
            }
            let there = records.reduce(into: Set<Data>()) { $0.formUnion(lineage(of: $1.changeTag)) }
            try checkSaves(in: zone, there: there, listed: listedTags)
            for record in records where record.changeTag.map({ gone.contains($0) }) == true {
                throw Violation("\(record.id) is there again, as it was deleted.")
            }
            for (id, fields) in own where id.zone == zone {
                let record = records.first { $0.id == id }
                for (name, value) in fields where record?.fields[name] != .integer(value) {
                    let isListed = listedRecords.contains { $0.id == id && $0.fields[name] == .integer(value) }
                    if !isListed { throw Violation("\(id) has \(record?.fields ?? [:]), and \(name) was \(value).") }
                }
            }
        }
    }

    private func checkSaves(in zone: String, there: Set<Data>, listed: Set<Data>) throws {
        let ended = deleted.reduce(into: Set<Data>()) { $0.formUnion(lineage(of: $1)) }
        for save in saves.values where save.id.zone == zone && save.id.name != Self.forced {
            if forgotten.contains(save.tag) || ended.contains(save.tag) { continue }
            guard there.contains(save.tag) || listed.contains(save.tag) else {
                throw Violation("A save of \(save.id), \(save.tag.short), is lost in silence.")
            }
        }
        // What no device was told of was never done; then nothing of its batch was.
        for (_, batch) in Dictionary(grouping: saves.values, by: \.batch) where batch.count > 1 {
            guard batch.first?.batch != nil, batch.contains(where: { heard.contains($0.tag) }),
                let half = batch.first(where: { !heard.contains($0.tag) && !there.contains($0.tag) }),
                listed.contains(half.tag)
            else { continue }
            throw Violation("A batch was done by half: \(half.id), \(half.tag.short), was not.")
        }
    }
}

extension Data {
    fileprivate var short: String { prefix(3).map { String($0, radix: 16) }.joined() }
}
