internal import Foundation
public import NephosCore
internal import NephosWire

/// What is kept of a file besides its current content.
extension UbiquityContainer {
    /// Keeps bytes as a further version of a file, which does not become current. Bytes that the file has already make no
    /// version.
    ///
    /// - Returns: Names the version, once the server has it.
    /// - Throws: ``CloudError`` `.invalidArguments` for a folder or a link; else as ``put(_:at:makesFolders:)`` does.
    @discardableResult
    public func addVersion(
        of path: some DocumentAddressing, contents: Data
    ) async throws(CloudError) -> DocumentID {
        let folder = try ContentFolder(home: session.local.home)
        let claim = try folder.claim()
        defer { withExtendedLifetime(claim) {} }
        let (id, now) = (session.engine.makeDocumentID(), session.engine.stamp.now)
        var staged: StagedContent?
        do {
            let content = try folder.stage(contents, version: id, modified: now.nanoseconds)
            staged = content
            try folder.flush([content])
            try await change { draft in
                let path = try draft.documents.path(path)
                let item = try draft.documents.item(at: path)
                guard item.wire.kind == .file else {
                    throw CloudError(
                        .invalidArguments, "Only files have further versions.", details: ["path": path.text])
                }
                try folder.require(content)
                draft.addVersion(content, of: item)
            }
            return id
        } catch {
            if let staged, staged.inline == nil { folder.remove(id) }
            throw LocalFailure.error(of: error, at: nil)
        }
    }
}

extension DocumentDraft {
    /// It comes as a conflict and is resolved in the same moment: so it stays among the versions, and nobody has seen
    /// anything else.
    mutating func addVersion(_ content: StagedContent, of item: HeldDocument) {
        var replace = WireReplaceContent()
        replace.content = WireDocumentContent(content, base: WireReplaceContent.nothing)
        add(WireDocumentChange(item.id, .replace(replace)), bringing: content)
        resolve([replace.content.version], of: item)
    }
}
