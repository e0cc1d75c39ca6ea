internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What refers to what, and what goes with what.
extension ZoneBatch {
    /// Deletes what refers to what is deleted, as far as it wants to go with it.
    func cascade(
        _ deletions: [(name: ItemName, cause: Int)], _ failures: inout [Int: CloudError]
    ) throws {
        var queue = deletions[...]
        /// Rows that were looked at; each would be removed.
        var seen = 0
        while let (target, cause) = queue.popFirst() {
            let sources = try zone.rows.sources(.cascading, to: target, limit: room.references - seen + 1)
            seen += sources.count
            guard seen <= room.references else { throw RequestRoom.tooManyReferences }
            for source in sources where records[source] == nil {
                let known = try stored(source)
                guard known.targets.contains(target) else { continue }
                let (stamp, isFormer) = (endings[target]?.modified ?? stamp, offered.contains(target))
                // Of a deletion that is offered again: what was saved after that stayed then too, and what was saved where
                // nobody knew of it stays now.
                if isFormer, (try? OfferRule.decideDeletion(of: [], by: stamp, over: known.state)) != .write {
                    continue
                }
                if let index = unchanged[source] {
                    failures[index] = Self.targetIsDeleted
                    continue
                }
                guard cascaded.count < room.cascades else {
                    return failures[cause] = CloudError(
                        .limitExceeded,
                        "Too many records would go with those of the request. Divide it, or delete some of them first.",
                        details: ["maximum": "\(RecordLimits.cascadeMax)"])
                }
                try end(source, known.state, SaveRule.later(stamp, than: known.state, isDeletion: true))
                if isFormer { offered.insert(source) }
                cascaded.append((source, cause))
                queue.append((source, cause))
            }
        }
    }

    /// Checks that each parent is there, that none goes which has children, and that no record has too many that would go
    /// with it.
    func checkReferences(_ places: [ItemName: Int], _ failures: inout [Int: CloudError]) throws {
        let causes = Dictionary(cascaded.map { ($0.name, $0.cause) }, uniquingKeysWith: { first, _ in first })
        let growth = try sourceGrowth()
        guard referencesChanged <= room.references else { throw RequestRoom.tooManyReferences }
        /// Those that cannot be deleted.
        var staying: [ItemName] = []
        for name in changed {
            guard let cause = places[name] ?? causes[name], failures[cause] == nil else { continue }
            if let planned = records[name] ?? nil {
                failures[cause] = try fault(of: planned, name, growth)
            } else if try hasChildren(name) {
                failures[cause] = Self.hasChildren
                staying.append(name)
            }
        }
        // What stays needs its parents: they are not tried one after the other.
        while let name = staying.popLast() {
            guard let parent = try stored(name).state.record?.parent, !parent.isEmpty else { continue }
            let above = ItemName(parent)
            guard isDeleted(above), let cause = places[above] ?? causes[above], failures[cause] == nil else { continue }
            failures[cause] = Self.hasChildren
            staying.append(above)
        }
    }

    /// By how much more, or fewer, records targets would be referred to; notes how many references change.
    private func sourceGrowth() throws -> [ItemName: Int] {
        var growth: [ItemName: Int] = [:]
        for name in changed {
            let before = try stored(name).targets
            let after = records[name].flatMap { $0 }?.targets ?? []
            for target in before.subtracting(after) {
                growth[target, default: 0] -= 1
                referencesChanged += 1
            }
            for target in after.subtracting(before) {
                growth[target, default: 0] += 1
                referencesChanged += 1
            }
        }
        return growth
    }

    private static let targetIsDeleted = CloudError(
        .referenceViolation, "The record refers to one that the same request deletes, and would go with it.")
    private static let hasChildren = CloudError(
        .referenceViolation, "The record has children. Delete them with it, or before.")

    private func fault(
        of planned: PlannedRecord, _ name: ItemName, _ growth: [ItemName: Int]
    ) throws -> CloudError? {
        try faultOfParent(of: planned.record, name) ?? faultOfTargets(of: planned, name, growth)
    }

    /// One that keeps its parent is saved wherever that has been moved: it is there as long as it has children.
    private func faultOfParent(of record: WireRecord, _ name: ItemName) throws -> CloudError? {
        let before = try stored(name).state.record?.parent ?? ""
        guard !record.parent.isEmpty, !record.parent.hasSameBytes(as: before) else { return nil }
        var above = ItemName(record.parent)
        // One that was in quarantine hangs there still, also where its parent is there no more.
        if try stored(name).isReturning, try zone.rows.has(.child, to: above, of: name) { return nil }
        for _ in 0..<RecordLimits.parentsMax {
            guard above != name else {
                return CloudError(.referenceViolation, "A record cannot be its own parent, nor its parents'.")
            }
            guard let parent = try named(above), access.mayRead(parent) else {
                return CloudError(.referenceViolation, "The parent is not there. Save it before, or with the record.")
            }
            guard above != ItemName(record.parent) || offered.contains(name) || mayHang(on: parent) else {
                return Self.notYoursToHangOn
            }
            guard !parent.parent.isEmpty else { return nil }
            above = ItemName(parent.parent)
        }
        return CloudError(
            .limitExceeded, "There would be too many parents above one another.",
            details: ["maximum": "\(RecordLimits.parentsMax)"])
    }

    /// Children that the batch does not know are looked for in growing steps: one is enough.
    private func hasChildren(_ name: ItemName) throws -> Bool {
        for limit in [32, changed.count + 1] {
            let children = try zone.rows.sources(.child, to: name, limit: limit)
            for child in children where !isDeleted(child) {
                guard try record(child).map({ ItemName($0.parent) == name }) ?? false else { continue }
                return true
            }
            if children.count < limit { break }
        }
        return false
    }

    /// - Returns: `.referenceViolation`: a target is deleted in the same batch; `.limitExceeded`.
    private func faultOfTargets(
        of planned: PlannedRecord, _ name: ItemName, _ growth: [ItemName: Int]
    ) throws -> CloudError? {
        let before = try stored(name).targets
        for target in planned.targets {
            guard !isDeleted(target) else { return Self.targetIsDeleted }
            guard !before.contains(target) else { continue }
            // What is offered again was hung there before the service was restored.
            if access.isRestricted, !offered.contains(name) {
                guard let record = try named(target), access.mayRead(record) else { return Self.noTarget }
                guard mayHang(on: record) else { return Self.notYoursToHangOn }
            }
            guard try sourceCount(target) + growth[target, default: 0] <= RecordLimits.cascadingReferencesMax else {
                return CloudError(
                    .limitExceeded, "Too many records would be deleted with this one's target.",
                    details: ["maximum": "\(RecordLimits.cascadingReferencesMax)"])
            }
        }
        return nil
    }

    /// What hangs on a record keeps it from being deleted, or goes with it: strangers hang nothing there.
    private func mayHang(on record: WireRecord) -> Bool { access.mayWrite(record) }

    private static let noTarget = CloudError(
        .referenceViolation,
        "In a public database a record that is to go with another one refers to one that is there. Save that before, or with it."
    )
    private static let notYoursToHangOn = CloudError(
        .permissionFailure,
        "In a public database a record has a parent, or goes with another one, only where the caller may change that one. Refer to it without that."
    )

    private func sourceCount(_ target: ItemName) throws -> Int {
        if let known = sourceCounts[target] { return known }
        let count = try zone.rows.sourceCount(of: target)
        sourceCounts[target] = count
        return count
    }

    // MARK: Writing

    func writeReferences(of name: ItemName, from old: StoredState, to new: PlannedRecord?) throws {
        let (before, after) = (old.targets, new?.targets ?? [])
        for target in before.subtracting(after).sorted() { try zone.rows.remove(.cascading, to: target, of: name) }
        for target in after.subtracting(before).sorted() { try zone.rows.add(.cascading, to: target, of: name) }
        let (parent, next) = (old.state.record?.parent ?? "", new?.record.parent ?? "")
        guard !parent.hasSameBytes(as: next) else { return }
        if !parent.isEmpty { try zone.rows.remove(.child, to: ItemName(parent), of: name) }
        if !next.isEmpty { try zone.rows.add(.child, to: ItemName(next), of: name) }
    }
}
