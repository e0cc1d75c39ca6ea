internal import Foundation
internal import NephosCore
internal import NephosWire

/// What is asked before something is put where its bytes are already: the server may have lost the lists of its chunks,
/// which it finds out when they are read, and tells nobody.
extension UbiquityContainer {
    /// How long an answer may take: it is put all the same.
    private static let listsTimeout: Duration = .seconds(5)

    /// Manifest nodes of these contents that the server has lost, of those that are where they are to be put; and chunks
    /// of them, where it has lost some. Where changes by other devices do not arrive nothing is asked, nor about more nodes
    /// than one request may name; chunks of which it does not say anything then are taken for lost.
    ///
    /// - Parameter limit: How long to wait until the server is heard; nil: not at all.
    func lostParts(of sources: [StagedSource], within limit: Duration? = nil) async -> Set<ChunkID> {
        let (nodes, chunks) =
            (try? read { documents in
                let isAnyLost = try documents.loss().lostChunks > 0
                let contents = try sources.compactMap { source -> StagedContent? in
                    guard let content = source.content, let root = content.root,
                        case .item(let item)? = try documents.place(source.path), root.isRoot(of: item.wire.content)
                    else { return nil }
                    return content
                }
                return (
                    contents.flatMap { $0.nodes.map(ContentUpload.id) },
                    isAnyLost ? Array(Set(contents.flatMap { $0.chunks.map(\.id) })) : []
                )
            }) ?? ([], [])
        var lost = await lost(among: nodes, within: limit)
        guard !chunks.isEmpty else { return lost }
        guard await isHeard(within: limit) else { return lost.union(chunks) }
        for start in stride(from: 0, to: chunks.count, by: DocumentLimits.missingMax) {
            let some = Array(chunks[start..<min(start + DocumentLimits.missingMax, chunks.count)])
            lost.formUnion(await missing(among: some) ?? Set(some))
        }
        return lost
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
