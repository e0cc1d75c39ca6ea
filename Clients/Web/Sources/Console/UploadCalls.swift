internal import Crypto
internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import NephosHTTP
internal import NephosKit

/// Uploads of the pages, a piece at a time. The pieces lie in the session's home, so an upload goes on after either side was
/// restarted. Other devices see the file once it is whole and on the server.
enum UploadCalls {
    static let methods: [String: ConsoleMethod] = [
        "upload.begin": ConsoleMethod(begin), "upload.finish": ConsoleMethod(finish),
        "upload.cancel": ConsoleMethod(cancel),
    ]

    private struct Begin: Decodable {
        var container: String
        var folder: String
        var name: String
        var size: UInt64
        /// The file's date, in milliseconds since 1970.
        var modified: Int64?
        /// Names the file and its place for the page, so that an interrupted upload is found again.
        var key: String
    }

    private struct Begun: Encodable {
        var upload: String
        /// Bytes that are here already.
        var offset: UInt64
    }

    private static func begin(_ user: WebUser, _ arguments: Begin) async throws -> Begun {
        let container = try await user.container(arguments.container)
        let note = Upload.Note(
            container: arguments.container, folder: try ConsoleJSON.id(arguments.folder).description,
            name: arguments.name, size: arguments.size, modified: arguments.modified)
        let path = try container.accepted.path(named: Data(note.name.utf8), in: ConsoleJSON.id(note.folder))
        // Before gigabytes have come.
        if note.size > Upload.pieceBytesMax, !user.isOwn,
            let storage = try? await user.session.storage(timeout: .seconds(2)),
            note.size > storage.planBytes - min(storage.planBytes, storage.usedBytes)
        {
            throw CloudError(
                .quotaExceeded, "The file is larger than the room that is left on your plan.",
                details: ["path": path.text, "bytes": "\(note.size)"])
        }
        let upload = Upload(user, key: arguments.key, note)
        let offset = try upload.begin(note)
        return Begun(upload: upload.id, offset: offset)
    }

    private struct Finish: Decodable {
        var upload: String
        /// The version of the file that it takes the place of, as the page shows it.
        var replaces: String?
        /// Another name than the one that it was begun with.
        var name: String?
    }

    private struct Item: Encodable {
        var entry: FileRow
    }

    private static func finish(_ user: WebUser, _ arguments: Finish) async throws -> Item {
        let upload = try Upload(user, id: arguments.upload)
        let lock = try upload.lock()
        defer { withExtendedLifetime(lock) {} }
        var note = try upload.note()
        let container = try await user.container(note.container)
        if let done = note.done {
            guard let entry = try await container.item(ConsoleJSON.id(done.item)) else { throw Upload.unknown }
            return Item(entry: FileRow(entry))
        }
        guard try upload.size() == note.size else {
            throw CloudError(
                .constraintViolation, "Not all of the file has come.", details: ["offset": "\(try upload.size())"])
        }
        let files = try await user.files(note.container)
        let path = try files.path(named: Data((arguments.name ?? note.name).utf8), in: ConsoleJSON.id(note.folder))
        let conditions = try conditions(of: files.entry(at: path), arguments.replaces)
        let writer = try container.streams.makeWriter(at: path)
        defer { writer.cancel() }
        try await upload.copy(to: writer)
        let modified = note.modified.map { DocumentDate(nanoseconds: $0 &* 1_000_000) }
        let entry = try await files.put(writer, at: path, modified: modified, conditions: conditions)
        note.done = Upload.Done(item: "\(entry.id)", version: entry.version.map { "\($0)" } ?? "")
        try upload.end(note)
        return Item(entry: FileRow(entry))
    }

    /// - Parameter there: The item that has the name.
    private static func conditions(
        of there: DocumentEntry?, _ replaces: String?
    ) throws(CloudError) -> [DocumentCondition] {
        guard let there else { return [] }
        guard there.kind == .file, let version = there.version, replaces == "\(version)" else {
            throw CloudError(
                .alreadyExists, "Something has this name already.",
                details: ["kind": there.kind.rawValue, "version": there.version.map { "\($0)" } ?? ""])
        }
        return [.content(there.id, version: version)]
    }

    private struct Cancel: Decodable {
        var upload: String
    }

    private static func cancel(_ user: WebUser, _ arguments: Cancel) async throws -> ConsoleDone {
        // A request that still writes does so to a file without a name.
        try Upload(user, id: arguments.upload).remove()
        return ConsoleDone()
    }

    // MARK: Bytes

    struct Offset: Encodable {
        var offset: UInt64
    }

    /// `PUT /api/upload?id=ID&offset=N`: some bytes of the file from there on.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation` with the detail `offset` when it has another length by now.
    static func put(_ user: WebUser, _ request: HTTPRequest) async throws -> Offset {
        let query = Query(request)
        guard let id = query["id"], let offset = query["offset"].flatMap({ UInt64($0) }) else {
            throw CloudError(.invalidArguments, "Name the upload and the offset: ?id=ID&offset=N")
        }
        let upload = try Upload(user, id: id)
        let lock = try upload.lock()
        defer { withExtendedLifetime(lock) {} }
        return Offset(offset: try await upload.append(request.body, at: offset, max: upload.note().size))
    }
}

/// One upload: two files in the session's home, the bytes that have come and a note of what they are.
struct Upload {
    struct Note: Codable {
        var container: String
        var folder: String
        var name: String
        var size: UInt64
        var modified: Int64?
        /// The item that it became.
        var done: Done?
    }

    struct Done: Codable {
        var item: String
        var version: String
    }

    /// Uploads of a session that are begun at a time.
    private static let countMax = 1000
    /// A piece's bytes.
    static let pieceBytesMax: UInt64 = 8 << 20
    private static let writeBytes = 512 << 10
    /// An unfinished one is removed after this time without a request.
    private static let retention: TimeInterval = 7 * 86_400

    static let unknown = CloudError(.unknownItem, "There is no such upload. Begin it again.")

    let id: String
    private let folder: String
    private var bytes: String { "\(folder)/\(id).part" }
    private var notePath: String { "\(folder)/\(id).json" }

    init(_ user: WebUser, key: String, _ note: Note) {
        let parts = [key, note.container, note.folder, note.name, "\(note.size)", "\(note.modified ?? 0)"]
        let digest = SHA256.hash(data: Data(parts.joined(separator: "\0").utf8))
        id = digest.prefix(16).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        folder = user.session.home.path + "/uploads"
    }

    /// - Throws: ``CloudError`` `.unknownItem`.
    init(_ user: WebUser, id: String) throws(CloudError) {
        // It becomes a part of a path.
        guard id.utf8.count == 32, id.allSatisfy(\.isHexDigit) else { throw Self.unknown }
        self.id = id
        folder = user.session.home.path + "/uploads"
        guard FileManager.default.fileExists(atPath: notePath) else { throw Self.unknown }
    }

    /// Begins it, or finds it again.
    ///
    /// - Returns: How many bytes are here already.
    func begin(_ note: Note) throws(CloudError) -> UInt64 {
        do {
            try FileManager.default.createDirectory(
                atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            try removeOld()
            let lock = try lock()
            defer { withExtendedLifetime(lock) {} }
            // One that is done was another file, which may have had other bytes.
            if let former = try? self.note(), former.done == nil, let size = try? size() { return size }
            guard FileManager.default.createFile(atPath: bytes, contents: nil, attributes: [.posixPermissions: 0o600])
            else { throw POSIXError(.EIO) }
            try AtomicFile.write(ConsoleJSON.encode(note), to: notePath, mode: 0o600)
            return 0
        } catch { throw Self.failure(error) }
    }

    private func removeOld() throws {
        let manager = FileManager.default
        let names = try manager.contentsOfDirectory(atPath: folder)
        for name in names {
            let path = "\(folder)/\(name)"
            let used = (try? manager.attributesOfItem(atPath: path))?[.modificationDate] as? Date
            if let used, used.timeIntervalSinceNow < -Self.retention { try? manager.removeItem(atPath: path) }
        }
        guard names.count(where: { $0.hasSuffix(".part") }) < Self.countMax else {
            throw CloudError(.limitExceeded, "Too many uploads were begun. Finish or cancel some of them.")
        }
    }

    /// Holds it for one request.
    func lock() throws(CloudError) -> FileLock {
        do { return try FileLock("\(folder)/\(id).lock") } catch {
            throw CloudError(.serviceBusy, "Another request works on this upload.", retryAfter: .seconds(1))
        }
    }

    func note() throws(CloudError) -> Note {
        guard let data = FileManager.default.contents(atPath: notePath) else { throw Self.unknown }
        return try ConsoleJSON.decode(data)
    }

    /// Bytes that are here.
    func size() throws(CloudError) -> UInt64 {
        guard let size = (try? FileManager.default.attributesOfItem(atPath: bytes))?[.size] as? UInt64 else {
            throw Self.unknown
        }
        return size
    }

    /// Appends a piece. If the connection fails, the bytes before that stay.
    func append(_ body: HTTPRequestBody?, at offset: UInt64, max: UInt64) async throws -> UInt64 {
        let file = try FileHandle(forWritingTo: URL(fileURLWithPath: bytes))
        defer { try? file.close() }
        var end = try file.seekToEnd()
        guard end == offset else {
            throw CloudError(
                .constraintViolation, "The upload goes on at another place.", details: ["offset": "\(end)"])
        }
        let limit = min(max, offset + Self.pieceBytesMax)
        var piece: [UInt8] = []
        while let body {
            let some = try await body.next()
            piece += some
            guard piece.count >= Self.writeBytes || some.isEmpty else { continue }
            guard end + UInt64(piece.count) <= limit else {
                throw CloudError(.invalidArguments, "The piece is longer than the file, or than 8 MiB.")
            }
            let whole = Data(piece)
            try await Session.elsewhere { try file.write(contentsOf: whole) }.get()
            end += UInt64(piece.count)
            piece = []
            if some.isEmpty { break }
        }
        try await Session.elsewhere { try file.synchronize() }.get()
        return end
    }

    func copy(to writer: DocumentWriter) async throws {
        let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: bytes))
        defer { try? file.close() }
        while true {
            let piece = try await Session.elsewhere { try file.read(upToCount: Self.writeBytes) ?? Data() }.get()
            guard !piece.isEmpty else { return }
            try await writer.write(piece)
        }
    }

    /// Notes what it became, for a page that did not get the answer.
    func end(_ note: Note) throws(CloudError) {
        do { try AtomicFile.write(ConsoleJSON.encode(note), to: notePath, mode: 0o600) } catch {
            throw Self.failure(error)
        }
        try? FileManager.default.removeItem(atPath: bytes)
    }

    func remove() {
        for path in [bytes, notePath] { try? FileManager.default.removeItem(atPath: path) }
    }

    private static func failure(_ error: any Error) -> CloudError {
        error as? CloudError
            ?? CloudError(
                .storageFailure, "The server has no room for the upload, or its disk failed. Try again later.")
    }
}

/// The query of an address, such as `?id=1`.
struct Query {
    private let values: [String: String]

    init(_ request: HTTPRequest) {
        let items = URLComponents(string: "/?" + request.query)?.queryItems ?? []
        values = Dictionary(items.compactMap { item in item.value.map { (item.name, $0) } }) { first, _ in first }
    }

    subscript(name: String) -> String? { values[name] }
}
