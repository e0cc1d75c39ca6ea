internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit

/// `GET /api/asset?container=C&database=D&zone=Z&record=R&field=F&index=N`: the bytes of an asset, as an attachment.
enum ConsoleAsset {
    private static let pieceBytes = 512 << 10

    static func response(_ user: WebUser, _ request: HTTPRequest) async throws -> HTTPResponse {
        let query = Query(request)
        let place = RecordCalls.Place(container: query["container"], database: query["database"], zone: query["zone"])
        guard let name = query["record"], let field = query["field"] else {
            throw CloudError(.invalidArguments, "Name the record and the field: ?record=NAME&field=NAME")
        }
        let database = try await user.readableRecords(place)
        let id = RecordID(name, zone: place.zoneName)
        guard let record = try await database.record(id) else { throw RecordCalls.unknown(id) }
        let assets = record.fields[field]?.assets ?? []
        let index = query["index"].map { Int($0) ?? -1 } ?? 0
        guard assets.indices.contains(index) else {
            throw CloudError(
                .unknownItem, "The field has no such asset.", details: ["record": name, "field": field])
        }
        let asset = assets[index]
        let file = try await download(asset, of: id, from: database, for: user)
        let headers = [
            (name: "Content-Type", value: "application/octet-stream"),
            (
                name: "Content-Disposition",
                value: "attachment; filename*=UTF-8''\(DavPath.encoded(Data("\(name)-\(field)".utf8)))"
            ),
        ]
        let body = HTTPBodyStream(onEnd: { try? file.close() }) { try await read(file) }
        return HTTPResponse(200, headers: headers, .source(body, length: asset.length))
    }

    /// - Returns: A file without a name: it goes when it is closed.
    private static func download(
        _ asset: RecordAsset, of id: RecordID, from database: RecordDatabase, for user: WebUser
    ) async throws -> FileHandle {
        // Old files of this folder are removed, should the process end meanwhile.
        let folder = user.session.home.path + "/uploads"
        let file = URL(fileURLWithPath: "\(folder)/\(UUID().uuidString).asset")
        try FileManager.default.createDirectory(
            atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        defer { try? FileManager.default.removeItem(at: file) }
        try await database.assets.download(asset, of: id, to: file)
        return try FileHandle(forReadingFrom: file)
    }

    private static func read(_ file: FileHandle) async throws -> [UInt8] {
        try await Session.elsewhere { [UInt8](try file.read(upToCount: pieceBytes) ?? Data()) }.get()
    }
}
