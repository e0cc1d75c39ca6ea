internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit

/// Answers one WebDAV request (RFC 4918, classes 1, 2 and 3) of a user.
///
/// A folder of WebDAV is one of a container's `Documents`. An ETag is the version of a content, so `If-Match` is a
/// condition that the documents service itself checks. A change is answered once that service has it.
struct DavHandler {
    static let methods: Set<HTTPRequest.Method> = Set(
        [
            "OPTIONS", "GET", "HEAD", "PUT", "DELETE", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK",
            "UNLOCK",
        ].map { HTTPRequest.Method(rawValue: $0) })

    /// Headers that a request may have once.
    private static let singleHeaders = [
        "If", "Overwrite", "Depth", "Destination", "Content-Range", "OC-Checksum", "X-OC-Mtime", "Lock-Token",
        "Timeout", "Range", "If-Range", "If-Modified-Since", "If-Unmodified-Since", "Host",
    ]

    let user: WebUser
    let locks: DavLocks
    let request: HTTPRequest
    let path: DavPath

    /// - Returns: The answer, whatever happens.
    func answer() async -> HTTPResponse {
        do {
            for name in Self.singleHeaders where request.values(of: name).count > 1 {
                throw DavRefusal(400, "The header \(name) was sent several times.")
            }
            return switch request.method.rawValue {
            case "OPTIONS": options()
            case "GET", "HEAD": try await get()
            case "PUT": try await put()
            case "DELETE": try await delete()
            case "MKCOL": try await makeFolder()
            case "COPY": try await copy()
            case "MOVE": try await move()
            case "PROPFIND": try await find()
            case "PROPPATCH": try await patch()
            case "LOCK": try await lock()
            case "UNLOCK": try await unlock()
            default: HTTPResponse(405, text: "There is no such method.")
            }
        } catch let refusal as DavRefusal {
            return refusal.response
        } catch let ended as HTTPRequestBody.Ended {
            return ended.isTooLong
                ? HTTPResponse(413, text: "The request's body is too long.")
                : HTTPResponse(400, text: "The request's body ended early. Nothing was changed.")
        } catch { return CloudError(wrapping: error).response }
    }

    private func options() -> HTTPResponse {
        HTTPResponse(
            200,
            headers: [
                (name: "DAV", value: "1, 2, 3"), (name: "MS-Author-Via", value: "DAV"),
                (name: "Allow", value: Self.methods.map(\.rawValue).sorted().joined(separator: ", ")),
            ])
    }

    // MARK: Looking up

    /// An item, a container or the list of containers.
    enum Place {
        /// The list of containers, or a container.
        case root
        case item(DocumentEntry)

        var isFolder: Bool {
            switch self {
            case .root: true
            case .item(let entry): entry.kind == .folder
            }
        }
        var entry: DocumentEntry? { if case .item(let entry) = self { entry } else { nil } }
    }

    /// - Throws: ``DavRefusal`` 404 where there is no such container.
    func container(_ path: DavPath) async throws -> UbiquityContainer {
        guard let name = path.container else { throw DavRefusal(403, "Name a container: /dav/default/") }
        do throws(CloudError) { return try await user.container(name) } catch {
            throw error.code == .missingEntitlement ? DavRefusal.notFound : error
        }
    }

    func changes(_ path: DavPath) async throws -> AcceptedChanges { try await container(path).accepted }

    /// The item, container or list at the path; nil: the path leads to nothing.
    func place(_ path: DavPath) async throws -> Place? {
        if path.isTop { return .root }
        let container = try await container(path)
        if path.isContainer { return .root }
        guard let entry = try container.accepted.entry(at: path.document) else { return nil }
        // Packages and links are no part of WebDAV.
        return [.file, .folder].contains(entry.kind) ? .item(entry) : nil
    }

    func requireItem(_ path: DavPath) async throws -> DocumentEntry {
        guard let place = try await place(path) else { throw DavRefusal.notFound }
        guard let entry = place.entry else { throw DavRefusal(403, "A container stays as it is.") }
        return entry
    }

    /// - Throws: ``DavRefusal`` 409 where the folder is missing that the path is in.
    func requireParent(of path: DavPath) async throws {
        guard !path.isTop, !path.isContainer else { throw DavRefusal(403, "Containers are not made by WebDAV.") }
        guard try await place(path.parent)?.isFolder == true else { throw DavRefusal.noParent }
    }

    // MARK: Conditions

    /// Checks all that the request says of what is there.
    ///
    /// - Parameters:
    ///   - isChange: Whether the request changes what is at the path; then locks count.
    ///   - isNameChange: Whether it makes or removes the name, which is a change of the folder that has it.
    ///   - withInner: Whether it changes what is in the folder too.
    /// - Returns: Conditions that the documents service checks as well.
    func check(
        _ entry: DocumentEntry?, isChange: Bool = true, isNameChange: Bool = false, withInner: Bool = false
    ) async throws -> [DocumentCondition] {
        let tag = entry.flatMap(Self.tag)
        var conditions: [DocumentCondition] = []
        if let header = request.list("If-Match") {
            guard let entry, Self.list(header, has: "*") || Self.list(header, has: tag) else { throw DavRefusal.failed }
            if !Self.list(header, has: "*"), let version = entry.version {
                conditions.append(.content(entry.id, version: version))
            }
        }
        if let header = request.list("If-None-Match"), request.method != .get, request.method != .head {
            guard !(Self.list(header, has: "*") ? entry != nil : Self.list(header, has: tag)) else {
                throw DavRefusal.failed
            }
        }
        let submitted = try await checkIf(tag, entry, &conditions)
        guard isChange else { return conditions }
        try requireUnlocked(path, isNameChange: isNameChange, withInner: withInner, submitted)
        return conditions
    }

    /// - Throws: ``DavRefusal`` 423 where a lock is in the way that the request does not name.
    func requireUnlocked(
        _ path: DavPath, isNameChange: Bool, withInner: Bool, _ submitted: Set<String>
    ) throws {
        var found = try locks.locks(of: user.account, at: path, withInner: withInner)
        if isNameChange { found += try locks.locks(of: user.account, at: path.parent) }
        guard
            found.allSatisfy({ lock in
                submitted.contains(lock.token)
                    // Of shared ones one is enough.
                    || !lock.isExclusive && found.contains { !$0.isExclusive && submitted.contains($0.token) }
            })
        else { throw DavRefusal.locked }
    }

    /// - Returns: The lock tokens that the request names.
    private func checkIf(
        _ tag: String?, _ entry: DocumentEntry?, _ conditions: inout [DocumentCondition]
    ) async throws -> Set<String> {
        guard let header = request.header("If") else { return [] }
        guard let parsed = DavIf(header) else { throw DavRefusal(400, "The If header is malformed.") }
        var holds = false
        for list in parsed.lists where !holds {
            var (path, tag, entry) = (self.path, tag, entry)
            if let resource = list.resource {
                guard let other = Self.path(ofAddress: resource) else { continue }
                path = other
                if other != self.path {
                    entry = try await place(other)?.entry
                    tag = entry.flatMap(Self.tag)
                }
            }
            let tokens = Set(try locks.locks(of: user.account, at: path).map(\.token))
            holds = list.conditions.allSatisfy { condition in
                let isSo =
                    switch condition.state {
                    case .lock(let token): tokens.contains(token)
                    case .tag(let known): Self.list(known, has: tag)
                    }
                return isSo != condition.isNegated
            }
            if holds, let entry, let version = entry.version,
                list.conditions.contains(where: { if case .tag = $0.state { !$0.isNegated } else { false } })
            {
                conditions.append(.content(entry.id, version: version))
            }
        }
        guard holds else { throw DavRefusal.failed }
        return parsed.tokens
    }

    /// The ETag of a file; nil: it is a folder.
    static func tag(_ entry: DocumentEntry) -> String? { entry.version.map { "\"\($0)\"" } }

    static func list(_ header: String, has tag: String?) -> Bool {
        guard let tag else { return false }
        return header.split(separator: ",").contains { $0.trimmingCharacters(in: .whitespaces) == tag }
    }

    /// The path of an address, which may begin with a host.
    static func path(ofAddress address: String) -> DavPath? {
        guard !address.hasPrefix("/") else { return DavPath(address) }
        guard let range = address.range(of: "://"), let slash = address[range.upperBound...].firstIndex(of: "/") else {
            return nil
        }
        return DavPath(String(address[slash...].prefix { $0 != "?" && $0 != "#" }))
    }
}
