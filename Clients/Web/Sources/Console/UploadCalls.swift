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
        /// The page's own upload, which it goes on with after a failure.
        var upload: String?
        /// Whether bytes that are here already are dropped.
        var again: Bool?
    }

    private struct Begun: Encodable {
        var upload: String
        /// Bytes that are here already.
        var offset: UInt64
        /// Of those bytes (``Upload/digest()``). The page begins again where its file has others; nil: none are here, or they
        /// are the page's own.
        var digest: String?
    }

    private static func begin(_ user: WebUser, _ arguments: Begin) async throws -> Begun {
        let container = try await user.container(arguments.container)
        let note = Upload.Note(
            container: arguments.container, folder: try ConsoleJSON.id(arguments.folder).description,
            name: arguments.name, size: arguments.size, modified: arguments.modified)
        let path = try container.accepted.path(named: Data(note.name.utf8), in: ConsoleJSON.id(note.folder))
        if let id = arguments.upload, let own = try? Upload(user, id: id) {
            let lock = try own.lock()
            defer { withExtendedLifetime(lock) {} }
            return Begun(upload: id, offset: try own.note().done == nil ? own.size() : note.size)
        }
        let upload = Upload(user, key: arguments.key, note)
        let offset = try upload.begin(note, dropsBytes: arguments.again == true)
        // Before gigabytes have come, and after it is noted: of two that begin at once each counts the other.
        let bytes = upload.unfinishedBytes()
        if bytes > Upload.pieceBytesMax, !user.isOwn,
            let storage = try? await user.session.storage(timeout: .seconds(2)),
            bytes > storage.planBytes - min(storage.planBytes, storage.usedBytes)
        {
            if offset == 0 { upload.remove() }
            throw CloudError(
                .quotaExceeded, "The file and your unfinished uploads are larger than the room left on your plan.",
                details: ["path": path.text, "bytes": "\(note.size)", "unfinished_bytes": "\(bytes)"])
        }
        return Begun(upload: upload.id, offset: offset, digest: offset == 0 ? nil : try await upload.digest())
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
        let there = try files.entry(at: path)
        if let entry = try await putBefore(upload, note, there, in: container, of: user) {
            note.done = Upload.Done(item: "\(entry.id)", version: entry.version.map { "\($0)" } ?? "")
            try upload.end(note)
            return Item(entry: FileRow(entry))
        }
        let conditions = try conditions(of: there, arguments.replaces)
        let writer = try container.streams.makeWriter(at: path)
        defer { writer.cancel() }
        try await upload.copy(to: writer)
        let modified = note.modified.map { DocumentDate(nanoseconds: $0 &* 1_000_000) }
        let entry: DocumentEntry
        do throws(CloudError) {
            entry = try await files.put(
                writer, at: path, modified: modified, onlyIfFree: there == nil, conditions: conditions)
        } catch {
            // Another one has the name since: the page asks what to do with it.
            if error.code == .alreadyExists { _ = try Self.conditions(of: files.entry(at: path), nil) }
            throw error
        }
        note.done = Upload.Done(item: "\(entry.id)", version: entry.version.map { "\($0)" } ?? "")
        try upload.end(note)
        return Item(entry: FileRow(entry))
    }

    /// The file at the upload's place if it has the same content. The program may have ended between the put and its note.
    private static func putBefore(
        _ upload: Upload, _ note: Upload.Note, _ there: DocumentEntry?, in container: UbiquityContainer,
        of user: WebUser
    ) async throws -> DocumentEntry? {
        guard let there, there.kind == .file, there.size == note.size else { return nil }
        let tree = container.tree()
        guard let known = try tree.item(there.id)?.digest, try await upload.contentDigest(in: tree) == known else {
            return nil
        }
        if !user.isOwn { try await container.waitUntilSent(timeout: .seconds(30), isImpatient: true) }
        // The server may have rejected it.
        guard let item = try tree.item(there.id), item.digest == known else { return nil }
        return try await container.item(there.id)
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
        let note = try upload.note()
        upload.touch()
        return Offset(offset: try await upload.append(request.body, at: offset, max: note.size))
    }
}

/// One upload: two files in the session's home, the bytes that have come and a note of what they are.
///
/// Its id begins with the digest of the file's name, place, size and date; the rest is random, and another each time that it
/// is begun. So pieces of one page never get among those of another.
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
        let random = (0..<8).map { _ in UInt8.random(in: .min ... .max) }
        id = WebSessions.hexadecimal(digest.prefix(16)) + WebSessions.hexadecimal(random)
        folder = user.session.home.path + "/uploads"
    }

    /// - Throws: ``CloudError`` `.unknownItem`.
    init(_ user: WebUser, id: String) throws(CloudError) {
        // It becomes a part of a path.
        guard id.utf8.count == 48, id.allSatisfy(\.isHexDigit) else { throw Self.unknown }
        self.init(id: id, folder: user.session.home.path + "/uploads")
        guard FileManager.default.fileExists(atPath: notePath) else { throw Self.unknown }
    }

    private init(id: String, folder: String) { (self.id, self.folder) = (id, folder) }

    /// Begins it, or takes over the one that was begun with the same key: that id is unknown from then on.
    ///
    /// - Returns: How many bytes are here already.
    func begin(_ note: Note, dropsBytes: Bool) throws(CloudError) -> UInt64 {
        do {
            try FileManager.default.createDirectory(
                atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            try removeOld()
            for former in all() where former.id.prefix(32) == id.prefix(32) {
                let lock = try former.lock()
                defer { withExtendedLifetime(lock) {} }
                // One that is done was another file, which may have had other bytes.
                if !dropsBytes, let known = try? former.note(), known.done == nil {
                    try AtomicFile.write(ConsoleJSON.encode(known), to: notePath, mode: 0o600)
                    if rename(former.bytes, bytes) == 0 {
                        former.remove()
                        return try size()
                    }
                }
                former.remove()
            }
            guard FileManager.default.createFile(atPath: bytes, contents: nil, attributes: [.posixPermissions: 0o600])
            else { throw POSIXError(.EIO) }
            try AtomicFile.write(ConsoleJSON.encode(note), to: notePath, mode: 0o600)
            return 0
        } catch { throw Self.failure(error) }
    }

    /// The session's uploads that have a note.
    private func all() -> [Upload] {
        ((try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? [])
            .filter { $0.hasSuffix(".json") }.map { Upload(id: String($0.dropLast(5)), folder: folder) }
    }

    /// The sizes of the session's uploads that are not finished, this one among them.
    func unfinishedBytes() -> UInt64 {
        all().compactMap { try? $0.note() }.filter { $0.done == nil }
            .reduce(0) { $0.addingClamped($1.size) }
    }

    /// Keeps it from removal.
    func touch() {
        try? FileManager.default.setAttributes([.modificationDate: Date()], ofItemAtPath: notePath)
    }

    /// SHA-256 of the SHA-256 of each 8 MiB that are here, as a page can compute it of a long file.
    func digest() async throws -> String {
        let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: bytes))
        defer { try? file.close() }
        var hash = SHA256()
        while true {
            let piece = try await Session.elsewhere {
                try file.read(upToCount: Int(Self.pieceBytesMax)).map { Data(SHA256.hash(data: $0)) }
            }.get()
            guard let piece else { return WebSessions.hexadecimal(hash.finalize()) }
            hash.update(data: piece)
        }
    }

    /// To be compared with ``ContainerTree/Item/digest``.
    func contentDigest(in tree: ContainerTree) async throws -> Data? {
        let file = try FileHandle(forReadingFrom: URL(fileURLWithPath: bytes))
        defer { try? file.close() }
        let descriptor = file.fileDescriptor
        return try await Session.elsewhere { try tree.digest(of: descriptor) }.get()
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
