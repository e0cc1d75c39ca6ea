internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit
internal import NephosWire

/// The answer to a request for a file's content, or for parts of it.
///
/// A browser stores a user's file, and never shows it as a page of this address: it is always an attachment, and
/// ``HTTPResponse/defaultHeaders`` let it run nothing.
struct ContentAnswer {
    var item: DocumentID
    var version: DocumentID
    var name: Data
    var size: UInt64
    var modified: DocumentDate?

    /// - Returns: Nil: it is no file.
    init?(_ entry: DocumentEntry) {
        guard entry.kind == .file, let version = entry.version else { return nil }
        (item, name, size, modified) = (entry.id, entry.nameBytes, entry.size, entry.modified)
        self.version = version
    }

    /// - Returns: Nil: what documents has said of the link cannot be true.
    init?(_ link: WireReadLinkReply) {
        guard let version = DocumentID(bytes: link.version) else { return nil }
        (item, self.version, name, size) = (version, version, link.name, link.length)
    }

    /// The content of a request's version.
    var tag: String { "\"\(version)\"" }
    var type: String { ContentTypes.type(of: .file, named: name) ?? "application/octet-stream" }

    func response(to request: HTTPRequest, from container: UbiquityContainer) async throws -> HTTPResponse {
        try await response(to: request) { range in
            let pieces = Pieces(try await container.streams.read(item, range: range, version: version))
            return HTTPBodyStream { try await pieces.next() }
        }
    }

    /// - Parameter reading: Begins to read a part.
    func response(
        to request: HTTPRequest, reading: (Range<UInt64>) async throws -> HTTPBodyStream
    ) async throws -> HTTPResponse {
        var headers = headers
        let range: Range<UInt64>
        var status = 200
        switch request.range(of: tag, length: size) {
        case nil: return HTTPResponse(304, headers: headers)
        case .unsatisfiable?:
            return HTTPResponse(
                416, text: "There are no such bytes.", headers: [(name: "Content-Range", value: "bytes */\(size)")])
        case .whole?: range = 0..<size
        case .part(let part)?:
            (range, status) = (part, 206)
            headers.append((name: "Content-Range", value: "bytes \(part.lowerBound)-\(part.upperBound - 1)/\(size)"))
        }
        let length = range.upperBound - range.lowerBound
        guard request.method != .head, length > 0 else {
            return HTTPResponse(status, headers: headers, .source(NoBody(), length: length))
        }
        return HTTPResponse(status, headers: headers, .source(try await reading(range), length: length))
    }

    private var headers: [(name: String, value: String)] {
        var headers: [(name: String, value: String)] = [
            (name: "ETag", value: tag), (name: "Accept-Ranges", value: "bytes"), (name: "Content-Type", value: type),
            (name: "Content-Disposition", value: "attachment; filename*=UTF-8''\(DavPath.encoded(name))"),
        ]
        if let modified {
            headers.append((name: "Last-Modified", value: DateFormatter.http.string(from: modified.date)))
        }
        return headers
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
