import Foundation
import NephosCore
import NephosWire

extension DocumentDraft {
    /// - Returns: The item's id, and after it those of the items that were made.
    mutating func resolve(
        _ item: HeldDocument, at path: DocumentPath, keeping version: DocumentID?, keepsOthers: Bool,
        _ deviceNames: [DeviceID: String]
    ) throws -> [DocumentID] {
        let conflicts = item.wire.conflicts
        guard !conflicts.isEmpty else {
            throw CloudError(
                .unknownItem, "The item has no conflict, or somebody has resolved it.", details: ["path": path.text])
        }
        let contents = [item.wire.content] + conflicts
        let kept = version?.wire ?? item.wire.content.version
        guard let content = contents.first(where: { $0.version == kept }) else {
            throw CloudError(
                .unknownItem, "The item has no such conflict, or somebody has resolved it.",
                details: ["path": path.text, "version": version?.description ?? ""])
        }
        // First, so that what takes a newer one's place becomes a conflict in its own right, where it is not taken for
        // one that it is about to resolve.
        resolve(conflicts.map(\.version), of: item)
        replace(item, byBytesOf: content)
        guard keepsOthers, let folder = item.parent else { return [item.id] }
        var made = [item.id]
        for other in contents where other.version != kept {
            let now = now
            let name = try freeName(beside: path) { number in
                ConflictName.make(
                    of: item.wire.name, device: deviceNames[DeviceID(other.deviceID)],
                    committed: Timestamp(nanoseconds: other.committed) ?? now, number: number)
            }
            made.append(try copy(item, content: other, at: path.renamed(name), in: folder).item)
        }
        return made
    }

    mutating func resolve(_ versions: [Data], of item: HeldDocument) {
        guard !versions.isEmpty else { return }
        var resolve = WireResolveConflicts()
        resolve.versions = versions
        add(WireDocumentChange(item.id, .resolve(resolve)))
    }

    /// Makes a former content the current one again. A conflict of the same bytes is resolved by that.
    mutating func restore(_ content: WireDocumentContent, of item: HeldDocument) {
        resolve(item.wire.conflicts.filter { $0.hasBytes(of: content) }.map(\.version), of: item)
        replace(item, byBytesOf: content)
    }

    /// Makes these bytes the item's content, unless it has them.
    ///
    /// - Parameter staged: Where they come from, if the container may not have them; nil: it has.
    /// - Returns: What the content is called that the item has then.
    @discardableResult
    mutating func replace(
        _ item: HeldDocument, byBytesOf content: WireDocumentContent, _ staged: StagedContent? = nil
    ) -> Data {
        guard !content.hasBytes(of: item.wire.content) else { return item.wire.content.version }
        var replace = WireReplaceContent()
        replace.content = WireDocumentContent(
            bytesOf: content, version: staged?.version ?? makeID(), base: item.wire.content.version)
        add(WireDocumentChange(item.id, .replace(replace)), bringing: staged)
        return replace.content.version
    }

    /// The first name that nothing there has.
    private mutating func freeName(beside path: DocumentPath, _ name: (Int) -> Data) throws -> Data {
        var number = 1
        while try place(path.renamed(name(number))) != nil { number += 1 }
        return name(number)
    }

    /// It comes as a conflict and is resolved in the same moment: so it stays among the versions, and nobody has seen
    /// anything else.
    mutating func addVersion(_ content: StagedContent, of item: HeldDocument) {
        var replace = WireReplaceContent()
        replace.content = WireDocumentContent(content, base: WireReplaceContent.nothing)
        add(WireDocumentChange(item.id, .replace(replace)), bringing: content)
        resolve([replace.content.version], of: item)
    }

    func itemWithVersions(at path: some DocumentAddressing) throws -> HeldDocument {
        let path = try documents.path(path)
        let item = try documents.item(at: path)
        guard item.wire.hasContent else {
            throw CloudError(
                .invalidArguments, "A folder has no content, and so no versions.", details: ["path": path.text])
        }
        return item
    }

    mutating func removeVersions(_ versions: [DocumentID], of item: HeldDocument) {
        var left = versions[...]
        while !left.isEmpty {
            var remove = WireRemoveVersions()
            remove.versions = left.prefix(DocumentLimits.versionsMax).map(\.wire)
            left = left.dropFirst(DocumentLimits.versionsMax)
            add(WireDocumentChange(item.id, .versions(remove)))
        }
    }

    /// Those that were there before the one that is current here: nobody has to know them, and none that comes meanwhile
    /// is lost.
    mutating func removeOtherVersions(of item: HeldDocument) {
        var remove = WireRemoveVersions()
        remove.before = item.wire.content.version
        add(WireDocumentChange(item.id, .versions(remove)))
    }
}
