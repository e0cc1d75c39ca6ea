internal import Foundation
internal import NephosCore
internal import NephosWire

/// What is asked before something is put where its bytes are already: the server may have lost the lists of its chunks,
/// which it finds out when they are read, and tells nobody.
extension UbiquityContainer {
    /// How long an answer may take: it is put all the same.
    private static let listsTimeout: Duration = .seconds(5)

    /// Manifest nodes of these contents that the server has lost, of those that are where they are to be put. Nothing is
    /// asked where changes by other devices do not arrive, and of more than one request may name.
    ///
    /// - Parameter limit: How long to wait until the server is heard; nil: not at all.
    func lostLists(of sources: [StagedSource], within limit: Duration? = nil) async -> Set<ChunkID> {
        let ids = try? read { documents in
            try sources.flatMap { source -> [ChunkID] in
                guard let content = source.content, content.depth > 0, let root = content.root,
                    case .item(let item)? = try documents.place(source.path), root.isRoot(of: item.wire.content)
                else { return [] }
                return content.nodes.map(ContentUpload.id)
            }
        }
        return await lost(among: ids ?? [], within: limit)
    }

    /// Without those of which the server has lost the list of the chunks: these are read, and put again.
    ///
    /// - Parameter limit: How long to wait until the server is heard; nil: not at all.
    func withoutLost(_ files: [Int: UnchangedFile], within limit: Duration?) async -> [Int: UnchangedFile] {
        let roots = try? read { documents in
            try files.compactMapValues { file -> ChunkID? in
                guard let content = try documents.document(file.item)?.wire.content, content.depth > 0 else {
                    return nil
                }
                return ChunkID(bytes: [UInt8](content.root))
            }
        }
        guard let roots, !roots.isEmpty else { return files }
        let lost = await lost(among: Array(Set(roots.values)), within: limit)
        return files.filter { index, _ in roots[index].map { !lost.contains($0) } ?? true }
    }

    private func lost(among ids: [ChunkID], within limit: Duration?) async -> Set<ChunkID> {
        guard !ids.isEmpty, ids.count <= DocumentLimits.missingMax, await isHeard(within: limit) else { return [] }
        return await missing(among: ids) ?? []
    }

    /// Whether the server lacks one of these, of which it has had all; nil: it does not say.
    ///
    /// - Parameter ids: ``DocumentLimits/missingMax`` at most.
    func lacks(_ ids: [ChunkID]) async -> Bool? {
        await missing(among: ids).map { !$0.isEmpty }
    }

    private func missing(among ids: [ChunkID]) async -> Set<ChunkID>? {
        var request = WireFindMissing()
        request.container = id
        request.ids = ids.map { Data($0.bytes) }
        let reply = try? await session.call(
            .documents, request, as: WireFindMissingReply.self, app: app, timeout: Self.listsTimeout, account: account)
        return reply.map { Set($0.missing.compactMap { Int($0) < ids.count ? ids[Int($0)] : nil }) }
    }

    private func isHeard(within limit: Duration?) async -> Bool {
        if (try? await scope.status())?.isFollowing == true { return true }
        guard let limit else { return false }
        return (try? await scope.waitUntilCurrent(within: limit, isImpatient: true)) != nil
    }
}
