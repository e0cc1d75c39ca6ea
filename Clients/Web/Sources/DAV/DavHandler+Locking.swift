internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit

// LOCK and UNLOCK.
extension DavHandler {
    func lock() async throws -> HTTPResponse {
        let depth = request.header("Depth") ?? "infinity"
        guard ["0", "infinity"].contains(depth) else { throw DavRefusal(400, "Depth is 0 or infinity.") }
        let bytes = try await request.body?.all(max: XMLElement.bytesMax) ?? []
        guard !bytes.isEmpty else { return try await refresh() }
        guard let body = XMLElement.parse(bytes), body.name == .dav("lockinfo"),
            let scope = body.first(.dav("lockscope"))?.elements.first?.name,
            body.first(.dav("locktype"))?.elements.first?.name == .dav("write"),
            [.dav("exclusive"), .dav("shared")].contains(scope)
        else { throw DavRefusal.badBody }
        let place = try await place(path)
        if place == nil { try await requireParent(of: path) }
        _ = try await check(place?.entry, isChange: false)
        if place == nil, !HiddenFiles.isHidden(path) {
            try requireUnlocked(path, isNameChange: true, withInner: false, [])
        }
        guard
            let lock = try locks.take(
                path, account: user.account, isDeep: depth == "infinity", isExclusive: scope == .dav("exclusive"),
                owner: body.first(.dav("owner")).map(\.content).flatMap { $0.utf8.count <= 4096 ? $0 : nil } ?? "",
                lease: lease)
        else { throw DavRefusal(423, condition: "no-conflicting-lock") }
        guard place == nil, !HiddenFiles.isHidden(path) else { return Self.answer(200, lock) }
        // A lock on a name that nothing has makes an empty file.
        do {
            let container = try await container(path)
            let writer = try container.streams.makeWriter(at: path.document)
            try await container.accepted.put(writer, at: path.document)
        } catch {
            _ = try locks.release(lock.token, of: user.account, at: path)
            throw error
        }
        return Self.answer(201, lock)
    }

    private func refresh() async throws -> HTTPResponse {
        guard let token = request.header("If").flatMap({ DavIf($0) })?.tokens.first else {
            throw DavRefusal(400, "The lock to be refreshed is not named.")
        }
        guard let lock = try locks.refresh(token, of: user.account, at: path, lease: lease) else {
            throw DavRefusal.failed
        }
        return Self.answer(200, lock)
    }

    private static func answer(_ status: Int, _ lock: DavLock) -> HTTPResponse {
        let text =
            "\(XMLText.head)<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>\(text(of: lock))</D:lockdiscovery></D:prop>\n"
        return HTTPResponse(
            status,
            headers: [
                (name: "Content-Type", value: "application/xml; charset=utf-8"),
                (name: "Lock-Token", value: "<\(lock.token)>"),
            ], .bytes(Array(text.utf8)))
    }

    static func text(of lock: DavLock) -> String {
        let owner = lock.owner.isEmpty ? "" : "<D:owner>\(lock.owner)</D:owner>"
        return "<D:activelock><D:locktype><D:write/></D:locktype>"
            + "<D:lockscope><D:\(lock.isExclusive ? "exclusive" : "shared")/></D:lockscope>"
            + "<D:depth>\(lock.isDeep ? "infinity" : "0")</D:depth>\(owner)"
            + "<D:timeout>Second-\(lock.lease.components.seconds)</D:timeout>"
            + "<D:locktoken><D:href>\(XMLText.escaped(lock.token))</D:href></D:locktoken>"
            + "<D:lockroot><D:href>\(XMLText.escaped(lock.path.href(isFolder: false)))</D:href></D:lockroot></D:activelock>"
    }

    /// How long the client wants a lock, within bounds.
    private var lease: Duration {
        guard let header = request.header("Timeout") else { return DavLocks.leaseDefault }
        for wish in header.split(separator: ",").map({ $0.trimmingCharacters(in: .whitespaces).lowercased() }) {
            if wish == "infinite" { return DavLocks.leaseMax }
            if wish.hasPrefix("second-"), let seconds = Int64(wish.dropFirst(7)), seconds > 0 {
                return min(.seconds(seconds), DavLocks.leaseMax)
            }
        }
        return DavLocks.leaseDefault
    }

    func unlock() async throws -> HTTPResponse {
        guard let header = request.header("Lock-Token"), header.hasPrefix("<"), header.hasSuffix(">") else {
            throw DavRefusal(400, "Lock-Token is missing or malformed.")
        }
        guard try locks.release(String(header.dropFirst().dropLast()), of: user.account, at: path) else {
            throw DavRefusal(409, condition: "lock-token-matches-request-uri")
        }
        return HTTPResponse(204)
    }
}
