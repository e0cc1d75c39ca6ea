internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit
internal import Synchronization

// GET and HEAD.
extension DavHandler {
    func get() async throws -> HTTPResponse {
        if HiddenFiles.isHidden(path), let file = user.hidden[path] {
            return HTTPResponse(
                200,
                headers: [
                    (name: "ETag", value: file.tag), (name: "Content-Type", value: "application/octet-stream"),
                    (name: "Last-Modified", value: DateFormatter.http.string(from: file.modified)),
                ], .bytes(file.bytes))
        }
        guard let place = try await place(path) else { throw DavRefusal.notFound }
        guard let entry = place.entry, entry.kind == .file else {
            return HTTPResponse(200, text: "This is a folder. Open this address in a program for WebDAV.")
        }
        guard let tag = Self.tag(entry) else { throw DavRefusal.notFound }
        _ = try await check(entry, isChange: false)
        var headers = Self.headers(of: entry, tag: tag)
        let range: Range<UInt64>
        var status = 200
        switch request.range(of: tag, length: entry.size) {
        case nil: return HTTPResponse(304, headers: headers)
        case .unsatisfiable?:
            return HTTPResponse(
                416, text: "There are no such bytes.",
                headers: [(name: "Content-Range", value: "bytes */\(entry.size)")]
            )
        case .whole?: range = 0..<entry.size
        case .part(let part)?:
            (range, status) = (part, 206)
            headers.append(
                (name: "Content-Range", value: "bytes \(part.lowerBound)-\(part.upperBound - 1)/\(entry.size)"))
        }
        let length = range.upperBound - range.lowerBound
        guard request.method != .head, length > 0 else {
            return HTTPResponse(status, headers: headers, .source(NoBody(), length: length))
        }
        let stream = try await container(path).streams.read(entry.id, range: range, version: entry.version)
        let pieces = Pieces(stream)
        return HTTPResponse(
            status, headers: headers, .source(HTTPBodyStream { try await pieces.next() }, length: length))
    }

    private static func headers(of entry: DocumentEntry, tag: String) -> [(name: String, value: String)] {
        let name = DavPath.encoded(entry.nameBytes)
        var headers: [(name: String, value: String)] = [
            (name: "ETag", value: tag), (name: "Accept-Ranges", value: "bytes"),
            (name: "Content-Type", value: type(of: entry)),
            // A browser stores a user's file, and never shows it as a page of this address.
            (name: "Content-Disposition", value: "attachment; filename*=UTF-8''\(name)"),
        ]
        if let modified = entry.modified {
            headers.append((name: "Last-Modified", value: DateFormatter.http.string(from: modified.date)))
        }
        return headers
    }

    static func type(of entry: DocumentEntry) -> String {
        ContentTypes.type(of: entry.kind, named: entry.nameBytes) ?? "application/octet-stream"
    }
}

/// A body that is not read.
private struct NoBody: HTTPBodySource {
    func next(_ completion: @escaping @Sendable (Result<[UInt8], any Error>) -> Void) { completion(.success([])) }
}

/// The pieces of a content, read by one after another.
private actor Pieces {
    private let iterator: DocumentStream.Iterator

    init(_ stream: DocumentStream) { iterator = stream.makeAsyncIterator() }

    func next() async throws -> [UInt8] { try await iterator.next().map { [UInt8]($0) } ?? [] }
}
