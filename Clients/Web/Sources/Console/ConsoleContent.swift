internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit

/// `GET /api/content?container=C&item=ID&version=V`: a file's content, or a former one.
enum ConsoleContent {
    static func response(_ user: WebUser, _ request: HTTPRequest) async throws -> HTTPResponse {
        let query = Query(request)
        guard let name = query["container"], let id = query["item"].flatMap({ DocumentID($0) }) else {
            throw CloudError(.invalidArguments, "Name the file: ?container=NAME&item=ID")
        }
        let container = try await user.container(name)
        guard let entry = try await container.item(id), var content = ContentAnswer(entry) else {
            throw CloudError(.unknownItem, "There is no such file.", details: ["item": "\(id)"])
        }
        if let text = query["version"], text != "\(content.version)" {
            let version = try await container.versions.version(
                ConsoleJSON.id(text), of: id, timeout: .seconds(30))
            (content.version, content.size, content.modified) = (version.id, version.size, version.modified)
        }
        return try await content.response(to: request, from: container)
    }
}
