internal import Foundation
internal import NephosBulk
internal import NephosCore
internal import NephosServiceKit
internal import NephosWire

/// Former versions that somebody wants to be rid of before their time.
extension Batch {
    /// - Throws: ``CloudError`` `.constraintViolation`: one of them is current, or in conflict.
    func removeVersions(_ id: DocumentID, _ request: WireRemoveVersions) throws {
        let item = try self.item(id)
        guard item.hasContent else {
            throw CloudError(
                .invalidArguments, "A folder has no content, and so no versions.", details: Self.details(id))
        }
        guard request.versions.count <= DocumentLimits.versionsMax else {
            throw CloudError(
                .limitExceeded, "Too many versions at once. Divide them.",
                details: Self.details(id).merging(["maximum": "\(DocumentLimits.versionsMax)"]) { $1 })
        }
        // Each is looked for, whether it is there or not.
        namedCount += request.versions.count
        try requireFew(namedCount)
        container.transaction.charge(rows: request.versions.count)
        let used = Set(([item.content] + item.conflicts).map { [UInt8]($0.version) })
        var former: [[UInt8]] = []
        for version in request.versions.map({ [UInt8]($0) }) {
            try ContentRule.checkVersion(version, "versions")
            guard !used.contains(version) else {
                throw CloudError(
                    .constraintViolation,
                    "The version is the current one, or in conflict. Replace or resolve it first.",
                    details: Self.details(id).merging(["version": DocumentID(bytes: version)?.description ?? ""]) { $1 }
                )
            }
            if try isKnown(Data(version), of: id) { former.append(version) }
        }
        if !request.before.isEmpty {
            try ContentRule.checkVersion([UInt8](request.before), "before")
            former += try versions(of: id, item, before: [UInt8](request.before)).filter { !used.contains($0) }
        }
        try retire(former, of: id)
        // Its bytes are as they were. That something has become of it is told all the same: what counts is less.
        if former.isEmpty { mention(id) } else { set(item, id) }
    }

    /// What whoever names this version has seen taken the place of; none where it is not there.
    private func versions(
        of id: DocumentID, _ item: WireDocumentItem, before version: [UInt8]
    ) throws -> [[UInt8]] {
        let stored = try container.rows.versionTimes(of: id).map(\.id)
        let all = stored + versions.filter { $0.item == id }.map { [UInt8]($0.content.version) }
        guard let place = all.firstIndex(of: version) else { return [] }
        guard item.content.version != Data(version) else { return Array(all[..<place]) }
        // It has lost to others, or others have followed: between it and what it was made from some may have come that
        // nobody had seen who made it.
        var (found, next): ([[UInt8]], [UInt8]) = ([], version)
        while found.count < all.count, let base = try base(of: next, of: id), all.contains(base) {
            found.append(base)
            next = base
        }
        return found
    }

    /// - Returns: What the version was made from; nil where that cannot be read.
    func base(of version: [UInt8], of id: DocumentID) throws -> [UInt8]? {
        if let brought = versions.first(where: { $0.item == id && $0.content.version == Data(version) }) {
            return [UInt8](brought.content.base)
        }
        try look()
        return try container.rows.version(version, of: id).flatMap { try container.open($0, of: id) }
            .map { [UInt8]($0.base) }
    }

    private func retire(_ versions: [[UInt8]], of id: DocumentID) throws {
        let before = retired[id]?.count ?? 0
        retired[id, default: []].formUnion(versions)
        retiredCount += (retired[id]?.count ?? 0) - before
        try requireFew(retiredCount)
    }

    private func requireFew(_ count: Int) throws {
        guard count <= DocumentLimits.versionsRemovedMax else {
            throw CloudError(
                .limitExceeded, "A batch removes too many versions. Divide it.",
                details: ["maximum": "\(DocumentLimits.versionsRemovedMax)"])
        }
    }

    /// The same bytes again, as where some of them were lost, take the place of the version that had them: nothing is
    /// charged for that, so that it goes on a plan that is full too.
    func inherit(_ former: WireDocumentContent, by version: [UInt8], of id: DocumentID) throws {
        guard let row = try container.rows.version([UInt8](former.version), of: id) else { return }
        heirs[ItemVersion(item: id, version: version)] = row.counted
        inherited.insert(ItemVersion(item: id, version: row.id))
        retired[id, default: []].insert(row.id)
        let used = UsedContent(former)
        let bytes = Int64(clamping: row.counted) + Int64(clamping: used.isInline ? used.length : 0)
        handedOn.add(-bytes, by: CountChanges.Maker(app: used.app, device: used.device))
        handedOn.add(bytes, by: writer.maker)
    }

    /// What a version's row counts that the batch brings.
    func counted(_ version: Data, of id: DocumentID) -> UInt64 {
        heirs[ItemVersion(item: id, version: [UInt8](version))] ?? UInt64(DocumentLimits.rowBytes)
    }

    /// What the versions use that the batch brings, with what has to be charged for them: of one that takes another's
    /// place, what is more than that has counted.
    func usedByVersions() -> [UsedContent] {
        versions.compactMap { id, content in
            guard heirs[ItemVersion(item: id, version: [UInt8](content.version))] != nil else {
                return UsedContent(content, rowBytes: UInt64(DocumentLimits.rowBytes))
            }
            let used = UsedContent(content)
            return used.isInline ? nil : used
        }
    }

    /// After the rows were written: the batch itself may have brought some of them.
    func takeRetired() throws -> [UsedContent] {
        try retired.sorted { $0.key < $1.key }.flatMap { id, versions in
            try versions.flatMap { try takeVersion($0, of: id) }
        }
    }
}
