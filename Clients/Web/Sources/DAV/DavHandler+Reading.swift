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
        guard let entry = place.entry, let content = ContentAnswer(entry) else {
            return HTTPResponse(200, text: "This is a folder. Open this address in a program for WebDAV.")
        }
        _ = try await check(entry, isChange: false)
        return try await content.response(to: request, from: container(path))
    }

    static func type(of entry: DocumentEntry) -> String {
        ContentTypes.type(of: entry.kind, named: entry.nameBytes) ?? "application/octet-stream"
    }
}
