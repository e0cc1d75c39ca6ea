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
            (try? read { documents -> ([ChunkID], Set<ChunkID>) in
                let isAnyLost = try documents.loss().lostChunks > 0
                let contents = try sources.compactMap { source -> StagedContent? in
                    guard let content = source.content, let root = content.root,
                        case .item(let item)? = try documents.place(source.path), root.isRoot(of: item.wire.content)
                    else { return nil }
                    return content
                }
                return (
                    contents.flatMap { $0.nodes.map(ContentUpload.id) },
                    isAnyLost ? Set(contents.flatMap { $0.chunks.map(\.id) }) : []
                )
            }) ?? ([], [])
        let lost = await lost(among: nodes, within: limit)
        guard !chunks.isEmpty else { return lost }
        return lost.union(await isHeard(within: limit) ? missing(among: chunks) ?? chunks : chunks)
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

    /// Those of these that the server lacks, of which it has had all; nil: it does not say.
    func missing(among ids: some Collection<ChunkID>) async -> Set<ChunkID>? {
        var (missing, left) = (Set<ChunkID>(), Array(ids)[...])
        while !left.isEmpty {
            let asked = Array(left.prefix(DocumentLimits.missingMax))
            var request = WireFindMissing()
            (request.container, request.ids) = (id, asked.map { Data($0.bytes) })
            let reply = try? await session.call(
                .documents, request, as: WireFindMissingReply.self, app: app, timeout: Self.listsTimeout,
                account: account)
            guard let reply else { return nil }
            missing.formUnion(reply.missing.compactMap { Int($0) < asked.count ? asked[Int($0)] : nil })
            left = left.dropFirst(asked.count)
        }
        return missing
    }

    private func isHeard(within limit: Duration?) async -> Bool {
        if (try? await scope.status())?.isFollowing == true { return true }
        guard let limit else { return false }
        return (try? await scope.waitUntilCurrent(within: limit, isImpatient: true)) != nil
    }
}
