internal import Foundation
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// What the server has said last of a container's contents that it cannot read any more.
struct ContentLoss: Equatable, Sendable {
    /// Chunks that it has lost of those that contents rest on; of very many a part.
    var lostChunks = 0
    /// It finds none of its contents: which of them are lost cannot be said.
    var isAllMissing = false

    init() {}

    /// As it is noted of a container of documents, or a database of records.
    init(in rows: ScopeTransaction) throws {
        let info = try rows.state().info
        if rows.scope.service == .documents {
            self.init(try WireContainerInfo(serializedBytes: info))
        } else {
            self.init(try WireDatabaseInfo(serializedBytes: info))
        }
    }

    init(_ info: WireDatabaseInfo) {
        (lostChunks, isAllMissing) = (Int(info.lostChunks), info.contentMissing)
    }

    init(_ info: WireContainerInfo) {
        (lostChunks, isAllMissing) = (Int(info.lostChunks), info.contentMissing)
    }

    var isAny: Bool { isAllMissing || lostChunks > 0 }
    /// Whether contents are offered to the server again. While it finds none of them it would take any for lost.
    var isOffered: Bool { lostChunks > 0 && !isAllMissing }
}

extension Session {
    /// A content's root, as its item or its asset has it.
    struct ContentRoot: Hashable {
        var root: Data
        var depth: UInt32
        var length: UInt64
    }

    /// Asks which of the contents have a chunk that the server has lost, or the list of their chunks is lost itself.
    ///
    /// - Parameter deadline: When to ask no more.
    /// - Returns: Their positions, and how many of the contents were looked at.
    /// - Throws: ``CloudError``: what keeps the service from answering.
    func lost(
        among contents: [ContentRoot], of place: ContentPlace, _ timeout: Duration,
        until deadline: ContinuousClock.Instant? = nil
    ) async throws(CloudError) -> (lost: Set<Int>, looked: Int) {
        var question = LossQuestion(session: self, place: place, timeout: timeout)
        for (position, content) in contents.enumerated() {
            if let deadline, ContinuousClock.now >= deadline {
                try await question.ask()
                return (question.lost, position)
            }
            try await question.add(content, at: position)
        }
        try await question.ask()
        return (question.lost, contents.count)
    }
}

/// Gathers chunks of contents, and asks about as many at a time as a request may name.
private struct LossQuestion {
    let session: Session
    let place: ContentPlace
    let timeout: Duration
    var lost: Set<Int> = []
    private var gathered: [(position: Int, id: ChunkID)] = []

    init(session: Session, place: ContentPlace, timeout: Duration) {
        (self.session, self.place, self.timeout) = (session, place, timeout)
    }

    mutating func add(_ content: Session.ContentRoot, at position: Int) async throws(CloudError) {
        guard let root = ChunkID(bytes: [UInt8](content.root)) else { return }
        guard content.depth > 0 else { return try await add(root, of: position) }
        var walk = try ContentWalk(
            root: root, depth: content.depth, length: content.length, range: 0..<content.length)
        while !lost.contains(position) {
            switch try walk.next() {
            case .end: return
            case .chunk(let chunk, _): try await add(chunk.id, of: position)
            case .nodes(let ids):
                do throws(CloudError) { try walk.take(try await nodes(ids)) } catch {
                    switch error.code {
                    case .storageFailure: lost.insert(position)
                    // Somebody has removed it meanwhile.
                    case .unknownItem: return
                    default: throw error
                    }
                }
            }
        }
    }

    private mutating func add(_ id: ChunkID, of position: Int) async throws(CloudError) {
        gathered.append((position, id))
        if gathered.count == DocumentLimits.missingMax { try await ask() }
    }

    mutating func ask() async throws(CloudError) {
        guard !gathered.isEmpty else { return }
        var request = WireFindMissing()
        request.container = place.container
        request.ids = gathered.map { Data($0.id.bytes) }
        let reply = try await session.call(
            place.service, request, as: WireFindMissingReply.self, app: place.app, timeout: timeout)
        for index in reply.damaged where Int(index) < gathered.count { lost.insert(gathered[Int(index)].position) }
        gathered = []
    }

    private func nodes(_ ids: [ChunkID]) async throws(CloudError) -> [Data] {
        var request = WireReadNodes()
        request.container = place.container
        request.ids = ids.map { Data($0.bytes) }
        return try await session.call(
            place.service, request, as: WireReadNodesReply.self, app: place.app, timeout: timeout
        ).nodes
    }
}
