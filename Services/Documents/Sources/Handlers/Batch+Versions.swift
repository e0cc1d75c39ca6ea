internal import Foundation
internal import NephosBulk
internal import NephosCore
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
            former += try versions(of: id, before: [UInt8](request.before)).filter { !used.contains($0) }
        }
        try retire(former, of: id)
        // Its bytes are as they were. That something has become of it is told all the same: what counts is less.
        if former.isEmpty { mention(id) } else { set(item, id) }
    }

    /// The oldest first; none where that one is not there.
    private func versions(of id: DocumentID, before version: [UInt8]) throws -> ArraySlice<[UInt8]> {
        let stored = try container.rows.versionTimes(of: id).map(\.id)
        let all = stored + versions.filter { $0.item == id }.map { [UInt8]($0.content.version) }
        return all.firstIndex(of: version).map { all[..<$0] } ?? []
    }

    private func retire(_ versions: [[UInt8]], of id: DocumentID) throws {
        let before = retired[id]?.count ?? 0
        retired[id, default: []].formUnion(versions)
        retiredCount += (retired[id]?.count ?? 0) - before
        guard retiredCount <= DocumentLimits.versionsRemovedMax else {
            throw CloudError(
                .limitExceeded, "A batch removes too many versions. Divide it.",
                details: ["maximum": "\(DocumentLimits.versionsRemovedMax)"])
        }
    }

    /// The same bytes again, as where some of them were lost, take the place of the version that had them: nothing is
    /// charged for that, so that it goes on a plan that is full too.
    func inherit(_ former: WireDocumentContent, by version: [UInt8], of id: DocumentID) throws {
        guard let row = try container.rows.version([UInt8](former.version), of: id) else { return }
        heirs[version] = row.counted
        inherited.insert(row.id)
        retired[id, default: []].insert(row.id)
        let maker = CountChanges.Maker(app: AppID(former.appID), device: DeviceID(former.deviceID))
        handedOn.add(-Int64(clamping: row.counted), by: maker)
        handedOn.add(Int64(clamping: row.counted), by: writer.maker)
    }

    /// What a version's row counts that the batch brings, and what of that is new.
    func counted(_ version: Data) -> (bytes: UInt64, new: UInt64) {
        heirs[[UInt8](version)].map { ($0, 0) } ?? (UInt64(DocumentLimits.rowBytes), UInt64(DocumentLimits.rowBytes))
    }

    /// After the rows were written: the batch itself may have brought some of them.
    func takeRetired() throws -> [UsedContent] {
        try retired.sorted { $0.key < $1.key }.flatMap { id, versions in
            try versions.flatMap { try takeVersion($0, of: id) }
        }
    }
}
