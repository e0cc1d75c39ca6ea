internal import Crypto
internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit

// PUT, MKCOL and DELETE.
extension DavHandler {
    func put() async throws -> HTTPResponse {
        guard request.header("Content-Range") == nil else {
            throw DavRefusal(400, "A file is put whole. Send it without Content-Range.")
        }
        if HiddenFiles.isHidden(path) { return try await putHidden() }
        try await requireParent(of: path)
        let before = try await place(path)?.entry
        guard before?.kind != .folder else { throw DavRefusal(405, "A folder has this name.") }
        let conditions = try await check(before, isNameChange: before == nil)
        let checksum = try Checksum(request)
        let container = try await container(path)
        let document = try path.document
        let writer = try container.streams.makeWriter(at: document)
        defer { writer.cancel() }
        try await take(writer, checksum)
        let entry = try await finish(writer, container, before, document, conditions)
        if before == nil { user.recent.noteMade(entry.id) }
        if let checksum { try await keep(checksum, of: entry, in: container, document) }
        var headers: [(name: String, value: String)] = []
        if let tag = Self.tag(entry) { headers.append((name: "ETag", value: tag)) }
        if request.header("X-OC-Mtime") != nil { headers.append((name: "X-OC-Mtime", value: "accepted")) }
        return HTTPResponse(before == nil ? 201 : 204, headers: headers)
    }

    /// Reads the request's body.
    private func take(_ writer: DocumentWriter, _ checksum: Checksum?) async throws {
        guard let body = request.body else { return try checksum?.check() ?? () }
        var piece: [UInt8] = []
        while true {
            let some = try await body.next()
            checksum?.add(some)
            piece += some
            // Few large writes instead of many small ones.
            guard piece.count >= Self.pieceBytes || some.isEmpty else { continue }
            if !piece.isEmpty { try await writer.write(Data(piece)) }
            piece = []
            if some.isEmpty { break }
        }
        try checksum?.check()
        guard body.length.map({ $0 == writer.bytesWritten }) ?? true else { throw HTTPRequestBody.Ended() }
    }

    private static let pieceBytes = 512 << 10

    private func finish(
        _ writer: DocumentWriter, _ container: UbiquityContainer, _ before: DocumentEntry?, _ document: DocumentPath,
        _ conditions: [DocumentCondition]
    ) async throws -> DocumentEntry {
        // It was free when the request came, and the content may have taken hours.
        let onlyIfFree = request.list("If-None-Match").map { Self.list($0, has: "*") } ?? false
        if before == nil, !onlyIfFree { try await bringBack(container) }
        do throws(CloudError) {
            return try await container.accepted.put(
                writer, at: document, modified: modified, onlyIfFree: onlyIfFree, conditions: conditions)
        } catch {
            guard onlyIfFree, error.code == .alreadyExists else { throw error }
            throw DavRefusal.failed
        }
    }

    /// When the content was changed, as the client says; nil: it does not.
    private var modified: DocumentDate? {
        request.header("X-OC-Mtime").flatMap { Double($0) }.flatMap { seconds in
            guard (-9.2e9...9.2e9).contains(seconds) else { return nil }
            return DocumentDate(nanoseconds: Int64(seconds * 1e9))
        }
    }

    /// An editor that saves has deleted the file, or moved it away, just before: then its item comes back, and gets the
    /// new content as a version. Where it was moved to a copy of it stays.
    private func bringBack(_ container: UbiquityContainer) async throws {
        guard let departure = user.recent.take(path) else { return }
        let accepted = container.accepted
        do {
            switch departure {
            case .deleted(let id): try await accepted.restore(id)
            case .moved(let id, let target):
                guard target.container == path.container, try accepted.entry(at: target.document)?.id == id else {
                    return
                }
                try await accepted.move(target.document, to: path.document)
                try await accepted.copy(path.document, to: target.document)
            }
        } catch {
            let error = CloudError(wrapping: error)
            // The new content is a file of its own then.
            guard [.unknownItem, .constraintViolation, .alreadyExists].contains(error.code) else { throw error }
        }
    }

    private func keep(
        _ checksum: Checksum, of entry: DocumentEntry, in container: UbiquityContainer, _ document: DocumentPath
    ) async throws {
        guard let version = entry.version else { return }
        let value = Data("\(version) \(checksum.text)".utf8)
        try await container.accepted.setAttributes([(Checksum.attribute, value)], of: document)
    }

    private func putHidden() async throws -> HTTPResponse {
        try await requireParent(of: path)
        let bytes = try await request.body?.all(max: HiddenFiles.bytesMax) ?? []
        let isNew = user.hidden[path] == nil
        guard user.hidden.put(bytes, at: path) else {
            throw DavRefusal(507, "There is no room for more files that stay hidden.")
        }
        return HTTPResponse(isNew ? 201 : 204, headers: [(name: "ETag", value: user.hidden[path]?.tag ?? "")])
    }

    // MARK: Folders

    func makeFolder() async throws -> HTTPResponse {
        guard request.body == nil else { throw DavRefusal(415, "A folder is made without a body.") }
        if let place = try await place(path) {
            throw DavRefusal(405, place.isFolder ? "The folder exists." : "A file has this name.")
        }
        guard !HiddenFiles.isHidden(path) else { throw DavRefusal(403, "A folder with this name stays on its device.") }
        try await requireParent(of: path)
        _ = try await check(nil, isNameChange: true)
        try await changes(path).makeFolder(at: path.document)
        return HTTPResponse(201)
    }

    // MARK: Deleting

    func delete() async throws -> HTTPResponse {
        if HiddenFiles.isHidden(path), user.hidden.remove(path) { return HTTPResponse(204) }
        let entry = try await requireItem(path)
        if let depth = request.header("Depth"), depth != "infinity", entry.kind == .folder {
            throw DavRefusal(400, "A folder is deleted with everything in it.")
        }
        let conditions = try await check(entry, isNameChange: true, withInner: true)
        try await changes(path).trash(path.document, conditions: conditions)
        if entry.kind == .file { user.recent.note(.deleted(entry.id), from: path) }
        try locks.removeAll(of: user.account, in: path)
        return HTTPResponse(204)
    }
}

/// A checksum that a client sends with a content (`OC-Checksum`).
final class Checksum {
    /// The extended attribute that it is kept in, after the version that it is of.
    static let attribute = Data("dav.checksum".utf8)

    private enum Hash {
        case sha1(Insecure.SHA1)
        case md5(Insecure.MD5)
        case sha256(SHA256)
    }

    /// Such as `SHA1:` and hexadecimal digits.
    let text: String
    private let expected: String
    private var hash: Hash

    /// - Returns: Nil: the client says nothing, or of a kind that is not known here.
    init?(_ request: HTTPRequest) throws {
        guard let header = request.header("OC-Checksum") else { return nil }
        let parts = header.split(separator: ":", maxSplits: 1)
        guard parts.count == 2 else { throw DavRefusal(400, "OC-Checksum is malformed.") }
        switch parts[0].uppercased() {
        case "SHA1": hash = .sha1(Insecure.SHA1())
        case "MD5": hash = .md5(Insecure.MD5())
        case "SHA256": hash = .sha256(SHA256())
        default: return nil
        }
        expected = parts[1].lowercased()
        text = "\(parts[0].uppercased()):\(expected)"
    }

    func add(_ bytes: [UInt8]) {
        switch hash {
        case .sha1(var hash):
            hash.update(data: bytes)
            self.hash = .sha1(hash)
        case .md5(var hash):
            hash.update(data: bytes)
            self.hash = .md5(hash)
        case .sha256(var hash):
            hash.update(data: bytes)
            self.hash = .sha256(hash)
        }
    }

    /// - Throws: ``DavRefusal`` 400 where the bytes are others.
    func check() throws {
        let digest: [UInt8] =
            switch hash {
            case .sha1(let hash): Array(hash.finalize())
            case .md5(let hash): Array(hash.finalize())
            case .sha256(let hash): Array(hash.finalize())
            }
        let found = digest.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        guard found == expected else {
            throw DavRefusal(400, "The bytes that came are not those of the checksum. Nothing was changed.")
        }
    }

    /// The checksum that an attribute keeps of this version; nil: of another.
    static func kept(_ value: Data?, of version: DocumentID?) -> String? {
        guard let value, let version else { return nil }
        let parts = String(decoding: value, as: UTF8.self).split(separator: " ")
        guard parts.count == 2, parts[0] == "\(version)" else { return nil }
        return String(parts[1])
    }
}
