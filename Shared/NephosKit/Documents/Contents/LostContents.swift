internal import Foundation
internal import NephosCore
internal import NephosWire

/// Contents of a container that the server has lost, in part or whole: it finds out when it reads them, and is asked.
struct LostContents: Sendable {
    let handle: ContainerHandle

    // MARK: Of items that are here

    /// See ``UbiquityContainer/damagedItems(of:timeout:)``.
    func items(
        of path: some DocumentAddressing, timeout: Duration
    ) async throws(CloudError) -> [DocumentEntry] {
        let candidates = try handle.read { documents in
            try documents.loss().lostChunks > 0 ? documents.longContents(of: documents.path(path)) : []
        }
        let roots = candidates.flatMap { candidate in candidate.contents.map { (candidate.entry, $0.asked) } }
        let (lost, looked) = try await handle.session.lost(
            among: roots.map(\.1), of: .documents(handle.id, app: handle.app), timeout, until: .now + timeout)
        guard looked == roots.count else {
            throw CloudError(
                .deadlineExceeded,
                "The server was not asked about all contents in time. Ask about a folder, or for longer.",
                details: ["asked": "\(looked)", "contents": "\(roots.count)"])
        }
        let damaged = Set(lost.map { roots[$0].0.id })
        return candidates.map(\.entry).filter { damaged.contains($0.id) }
    }

    /// Whether the server cannot read all of the content any more, as far as it has found out.
    ///
    /// - Throws: ``CloudError``: what keeps it from answering which chunks a long one has.
    func isDamaged(_ content: WireDocumentContent, _ timeout: Duration) async throws(CloudError) -> Bool {
        guard try handle.read({ try $0.loss() }).lostChunks > 0 else { return false }
        return try await !handle.session.lost(
            among: [content.asked], of: .documents(handle.id, app: handle.app), timeout
        ).lost.isEmpty
    }

    // MARK: Before something is put where its bytes are already

    /// How long an answer may take: it is put all the same.
    private static let listsTimeout: Duration = .seconds(5)

    /// Manifest nodes of these contents that the server has lost, of those that are where they are to be put; and chunks
    /// of them, where it has lost some. Where changes by other devices do not arrive nothing is asked, nor about more nodes
    /// than one request may name; chunks of which it does not say anything then are taken for lost.
    ///
    /// - Parameter limit: How long to wait until the server is heard; nil: not at all.
    func parts(of sources: [StagedSource], within limit: Duration? = nil) async -> Set<ChunkID> {
        let (nodes, chunks) =
            (try? handle.read { documents -> ([ChunkID], Set<ChunkID>) in
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
    func without(_ files: [Int: UnchangedFile], within limit: Duration?) async -> [Int: UnchangedFile] {
        let roots = try? handle.read { documents in
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
            (request.container, request.ids) = (handle.id, asked.map { Data($0.bytes) })
            let reply = try? await handle.call(request, as: WireFindMissingReply.self, timeout: Self.listsTimeout)
            guard let reply else { return nil }
            missing.formUnion(reply.missing.compactMap { Int($0) < asked.count ? asked[Int($0)] : nil })
            left = left.dropFirst(asked.count)
        }
        return missing
    }

    private func isHeard(within limit: Duration?) async -> Bool {
        if (try? await handle.scope.status())?.isFollowing == true { return true }
        guard let limit else { return false }
        return (try? await handle.scope.waitUntilCurrent(within: limit, isImpatient: true)) != nil
    }
}

extension WireDocumentContent {
    fileprivate var asked: Session.ContentRoot { Session.ContentRoot(root: root, depth: depth, length: length) }
}

extension DocumentTransaction {
    /// The items of this place whose contents rest on chunks, with those contents; in the trash too, where it is all.
    fileprivate func longContents(
        of path: DocumentPath
    ) throws -> [(entry: DocumentEntry, contents: [WireDocumentContent])] {
        guard let place = try place(path) else { throw try noItem(at: path) }
        var items: [(item: HeldDocument, path: DocumentPath)] = []
        if case .item(let item) = place { items.append((item, path)) }
        if place.isFolder { items += try descendants(of: place.id, at: path) }
        return try items.compactMap { item, path in
            let further = item.wire.renditions.map(\.content)
            let contents = ([item.wire.content] + item.wire.conflicts + further).filter { !$0.root.isEmpty }
            guard !item.isFolder, !contents.isEmpty, let entry = try entry(item, at: path) else { return nil }
            return (entry, contents)
        }
    }
}
