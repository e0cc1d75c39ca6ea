import Foundation
import NephosBulk
import NephosBus
import NephosChunks
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import SwiftProtobuf

/// One seeded history of an account's two containers: batches by several devices at documents' real doors, with what goes
/// wrong in between, each held against a plain model before the next begins.
final class DocumentModelHistory {
    static let containers = [ContainerHouse.container, "T.shared"]

    final class Member {
        let mover: TestBulk
        /// As far as it has heard.
        var head = WireChangeToken()
        let since: Duration

        init(_ mover: TestBulk, since: Duration) {
            self.mover = mover
            self.since = since
        }
    }

    /// An upload that nobody goes on with.
    struct Upload {
        var id: [UInt8]
        var room: Int
        var chunks: Set<ChunkID>
    }

    struct Copy {
        var storage: StorageCopy
        var models: [String: DocumentModel]
    }

    let house: ContainerHouse
    var random: SplitMix64
    var members: [Member] = []
    var models: [String: DocumentModel] = [:]
    var open: [Upload] = []
    /// Bytes of the plan; nil: more than is ever stored.
    private(set) var plan: Int?
    private var copy: Copy?
    /// What was asked before, to be asked again.
    var asked: [(container: String, changes: [WireDocumentChange])] = []
    /// How often a batch was acknowledged, and refused with each code.
    private(set) var outcomes: [CloudError.Code?: Int] = [:]
    /// How often something came of a batch that few batches lead to.
    private(set) var happened: [String: Int] = [:]
    private var trace: [String] = []
    /// Of changes and failures that the seed decides ids are part.
    var number = 0
    /// What contents with these roots rest on: it is asked for again and again.
    var chunksOfRoots: [Set<Data>: (ids: Set<ChunkID>, bytes: Int)] = [:]

    init(seed: UInt64) throws {
        random = SplitMix64(seed: seed)
        house = try ContainerHouse(seed: seed)
        for name in Self.containers { models[name] = DocumentModel() }
        try house.define("T.shared", .documents, names: .folded)
        models["T.shared"]?.foldsNames = true
    }

    struct Outcome: Sendable {
        var struck: [String: Int] = [:]
        var outcomes: [CloudError.Code?: Int] = [:]
        var happened: [String: Int] = [:]
    }

    func run() throws -> Outcome {
        do {
            for _ in 0..<3 { members.append(try makeMember()) }
            for step in 0..<Int.random(in: 30...50, using: &random) {
                note("step \(step)")
                try happen(step)
                try ask()
                try check()
            }
            try end()
        } catch { throw Violation("\(error)" + trace.map { "\n\($0)" }.joined()) }
        var outcome = Outcome(outcomes: outcomes, happened: happened)
        for point in FaultPoint.all { outcome.struck[point.name] = try house.cloud.faults.count(point.name) }
        return outcome
    }

    func note(_ text: @autoclosure () -> String) { trace.append("\(house.cloud.network.now): \(text())") }

    func flip(_ probability: Double) -> Bool { Double.random(in: 0..<1, using: &random) < probability }

    private func makeMember() throws -> Member {
        Member(
            try TestBulk(of: house.cloud, app: ContainerHouse.app), since: house.cloud.network.now)
    }

    // MARK: What happens besides

    private func happen(_ step: Int) throws {
        // Its access token would end; another device comes in its place.
        for index in members.indices where house.cloud.network.now - members[index].since > .seconds(500) {
            members[index] = try makeMember()
        }
        if flip(0.35) { try fault() }
        if flip(0.05) {
            note("crash")
            house.cloud.crash(.documents)
            try house.cloud.start(.documents)
        }
        if flip(0.2) { try close() }
        if flip(0.08) { try setPlan() }
        if flip(0.1), open.isEmpty {
            try settle()
            note("copy")
            copy = Copy(storage: try house.cloud.copyStorage(of: .documents), models: models)
        }
        if flip(0.05), let copy { try restore(copy) }
        if flip(0.02) { try letTimePass() }
    }

    private func fault() throws {
        let points = FaultPoint.all.filter { $0.name.hasPrefix("documents.") }
        guard let point = points.randomElement(using: &random),
            let kind = point.kinds.sorted(by: { $0.rawValue < $1.rawValue }).randomElement(using: &random)
        else { return }
        note("\(point.name) \(kind)")
        switch kind {
        case .fails: try house.cloud.faults.fail(point.name)
        case .halfDone: try house.cloud.faults.leaveHalfDone(point.name)
        case .slow: try house.cloud.faults.slow(point.name, by: .milliseconds(300))
        }
    }

    private func close() throws {
        guard let upload = open.popLast() else { return }
        note("closes what was left open")
        try closeUpload(upload.id, by: members[0])
        try settle()
    }

    private func setPlan() throws {
        try settle()
        plan = plan == nil || flip(0.5) ? used + Int.random(in: 0...100_000, using: &random) : nil
        note("plan of \(plan.map { "\($0)" } ?? "much") bytes")
        try house.setPlan(bytes: UInt64(plan ?? 1 << 40))
    }

    /// Nobody offers anything again: it is as it was.
    private func restore(_ copy: Copy) throws {
        note("restore")
        try house.cloud.restore(copy.storage, of: .documents)
        (models, open) = (copy.models, [])
        let nothing = WireDocumentChange.restore(id())
        for member in members {
            let code = try apply([nothing], nodes: [], upload: [], source: "", by: member, to: Self.containers[0])
            guard code == .unknownItem else { throw Violation("What nobody has made is restored: \(code as Any)") }
        }
        // What the copy may store beyond the plan of today it hears soon.
        try house.cloud.faults.clear("documents.receive")
        house.cloud.network.run(for: .seconds(30))
        try settle()
    }

    /// What has lasted a day ends: what was said to be on its way, and what nobody goes on with. So do old copies.
    ///
    /// The wall clock is set back afterwards. The clock of purging is ahead of it then, and goes at half the speed of time
    /// until the wall clock has caught up. So two days pass, of which that clock sees one at least.
    private func letTimePass() throws {
        note("two days pass")
        try house.cloud.faults.clear()
        house.cloud.skip(.seconds(50 * 3600), of: .documents)
        house.cloud.network.run(for: .seconds(130))
        house.cloud.setClockOffset(of: .documents, .zero)
        for name in Self.containers { models[name]?.endAnnouncements() }
        (open, copy) = ([], nil)
        try settle()
    }

    // MARK: Batches

    private func ask() throws {
        let container = Self.containers[flip(0.3) ? 1 : 0]
        guard let member = members.randomElement(using: &random) else { return }
        if flip(0.1), let (container, changes) = asked.randomElement(using: &random) {
            note("asks again")
            return try commit(changes, to: container, by: member)
        }
        let changes = try makeChanges(in: container)
        asked.append((container, changes))
        try commit(changes, to: container, by: member)
    }

    private func commit(_ changes: [WireDocumentChange], to container: String, by member: Member) throws {
        note("\(container): \(changes.map { $0.summary }.joined(separator: ", "))")
        let other = Self.containers.first { $0 != container } ?? ""
        let source = flip(0.3) ? other : ""
        let contents = changes.compactMap { $0.long }
        // Chunks first. Whoever leaves some of them out that another container has, names it.
        let here = chunks(of: container)
        let there = source.isEmpty ? [] : chunks(of: source)
        let ids = Array(Set(contents.flatMap(\.ids))).sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
        let missing = try ask(ids, in: container, besides: source, by: member)
        let lacking = ids.filter { !here.contains($0) && !there.contains($0) }
        guard Set(missing) == Set(lacking) else {
            throw Violation("\(missing.count) chunks are missing, and \(lacking.count) should be")
        }
        var upload: Upload?
        if !lacking.isEmpty {
            let room = lacking.reduce(0) { $0 + DocumentContents.length(of: $1) }
            let made = Upload(id: id().bytes, room: room, chunks: Set(lacking))
            let fits = plan.map { used + room <= $0 } ?? true
            let code = try store(lacking, room: room, in: made.id, container, by: member)
            guard code == (fits ? nil : .quotaExceeded) else {
                throw Violation("\(room) bytes beside \(used) of \(plan as Any): \(code as Any)")
            }
            guard fits else {
                outcomes[code, default: 0] += 1
                return try settle()
            }
            upload = made
        }
        // Then what rests on them.
        var next = models[container] ?? DocumentModel()
        var expected: CloudError.Code?
        var needed = 0
        do { needed = try next.apply(changes) } catch let refused as DocumentModel.Refused { expected = refused.code }
        let taken = expected == nil ? Set(next.contents.map(\.root)) : Set(contents.map { Data($0.root.bytes) })
        let known = nodes(of: container)
        var nodes: [[UInt8]] = []
        var sent: Set<ChunkID> = []
        for content in contents where taken.contains(Data(content.root.bytes)) {
            for (node, id) in zip(content.nodes, DocumentContents.nodes[Data(content.root.bytes)] ?? [])
            where !known.contains(id) && sent.insert(id).inserted { nodes.append(node) }
        }
        needed += nodes.reduce(0) { $0 + $1.count }
        if expected == nil, needed > 0, let plan, used + (upload?.room ?? 0) + needed > plan {
            expected = .quotaExceeded
        }
        let code = try apply(
            changes, nodes: nodes, upload: upload?.id ?? [], source: source, by: member, to: container)
        guard code == expected else {
            throw Violation(
                "It ended with \(code.map { "\($0)" } ?? "success"), not \(expected.map { "\($0)" } ?? "success"); "
                    + "\(used) and \(upload?.room ?? 0) and \(needed) bytes of \(plan as Any)")
        }
        outcomes[code, default: 0] += 1
        if code == nil {
            noteWhatHappened(models[container] ?? DocumentModel(), next)
            models[container] = next
        }
        if let upload {
            if flip(0.15) {
                note("leaves its upload open")
                // What another container uses too counts in the upload until that is closed.
                let used = chunks(of: container).subtracting(chunks(of: other))
                let rest = code == nil ? upload.chunks.subtracting(used) : upload.chunks
                open.append(
                    Upload(
                        id: upload.id, room: rest.reduce(0) { $0 + DocumentContents.length(of: $1) }, chunks: rest))
            } else {
                try closeUpload(upload.id, by: member)
            }
        }
        try settle()
    }

    static let places = [
        "versions go", "versions take others' places", "conflicts", "conflicts are resolved", "renditions go",
        "items come back", "folders go with what is in them",
    ]

    private func noteWhatHappened(_ before: DocumentModel, _ after: DocumentModel) {
        func note(_ place: Int, _ isSo: Bool) { if isSo { happened[Self.places[place], default: 0] += 1 } }
        for (id, item) in after.items {
            guard let former = before.items[id], former != item else { continue }
            let gone = former.versions.filter { !item.versions.contains($0) }
            let isHeir = item.content.map { content in gone.contains { content.sameAs.contains($0.version) } } ?? false
            note(0, !gone.isEmpty && !isHeir)
            note(1, isHeir)
            note(2, item.conflicts.count > former.conflicts.count)
            note(3, item.conflicts.count < former.conflicts.count)
            note(4, former.renditions.contains { item.renditions[$0.key] != $0.value })
            note(5, former.isInTrash && !item.isInTrash)
        }
        note(6, after.ended.count > before.ended.count + 1)
    }

    // MARK: The end

    /// Once everybody has removed everything nothing is left, and nothing counts.
    private func end() throws {
        try house.cloud.faults.clear()
        if plan != nil { try house.setPlan(bytes: 1 << 40) }
        plan = nil
        while !open.isEmpty { try close() }
        try checkContents()
        for name in Self.containers {
            let top = (models[name] ?? DocumentModel()).items.filter { $0.value.parent.isFixed }
            let trash = top.filter { !$0.value.isInTrash }.keys.sorted().map { WireDocumentChange.trash($0) }
            for changes in [trash, top.keys.sorted().map { WireDocumentChange.remove($0) }] where !changes.isEmpty {
                try commit(changes, to: name, by: members[0])
            }
        }
        try settle()
        try check()
        let counts = try house.counts()
        guard counts == Counts(chunks: 0, uses: 0, nodes: 0), try house.counted() == 0 else {
            throw Violation("Of nothing is left \(counts), and counts \(try house.counted())")
        }
    }
}

extension WireDocumentChange {
    /// The long content that it brings.
    fileprivate var long: TestContent? {
        switch kind {
        case .create(let create): DocumentContents.byRoot[create.content.root]
        case .replace(let replace): DocumentContents.byRoot[replace.content.root]
        case .rendition(let rendition): DocumentContents.byRoot[rendition.content.root]
        default: nil
        }
    }

    fileprivate var summary: String {
        "\(DocumentID(bytes: item)?.description.prefix(6) ?? "-") \(kind.map { "\($0)" } ?? "")"
            .replacing("\n", with: " ")
    }
}
