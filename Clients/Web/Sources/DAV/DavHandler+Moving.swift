internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit

// COPY and MOVE. No content is sent.
extension DavHandler {
    func copy() async throws -> HTTPResponse {
        let depth = request.header("Depth") ?? "infinity"
        guard ["0", "infinity"].contains(depth) else { throw DavRefusal(400, "Depth is 0 or infinity.") }
        if HiddenFiles.isHidden(path), let file = user.hidden[path] {
            let target = try target()
            guard HiddenFiles.isHidden(target), user.hidden.put(file.bytes, at: target) else {
                throw DavRefusal(403, "A hidden file stays hidden.")
            }
            return HTTPResponse(201)
        }
        let source = try await requireItem(path)
        let (target, isNew, conditions) = try await prepare(source, isMove: false)
        let changes = try await changes(path)
        if depth == "0", source.kind == .folder {
            try await changes.copyFolderAlone(path.document, to: target.document)
        } else {
            try await changes.copy(path.document, to: target.document, conditions: conditions)
        }
        return HTTPResponse(isNew ? 201 : 204)
    }

    func move() async throws -> HTTPResponse {
        if let depth = request.header("Depth"), depth != "infinity" {
            throw DavRefusal(400, "Everything in a folder moves with it.")
        }
        if HiddenFiles.isHidden(path), user.hidden[path] != nil {
            let target = try target()
            guard HiddenFiles.isHidden(target) else { throw DavRefusal(403, "A hidden file stays hidden.") }
            user.hidden.move(path, to: target)
            return HTTPResponse(201)
        }
        let source = try await requireItem(path)
        let (target, isNew, conditions) = try await prepare(source, isMove: true)
        let changes = try await changes(path)
        if source.kind == .file, try changes.entry(at: target.document)?.kind == .file {
            // A newer version of the source, by another device, must not be removed with it.
            let asRead = source.version.map { [DocumentCondition.content(source.id, version: $0)] } ?? []
            try await changes.moveOver(
                path.document, to: target.document, forGood: user.recent.wasMade(source.id),
                conditions: conditions + asRead)
        } else {
            try await changes.move(path.document, to: target.document, conditions: conditions)
        }
        if source.kind == .file { user.recent.note(.moved(source.id, to: target), from: path) }
        try locks.removeAll(of: user.account, in: path)
        return HTTPResponse(isNew ? 201 : 204)
    }

    /// Where the request's item is to go.
    private func target() throws -> DavPath {
        guard let address = request.header("Destination") else { throw DavRefusal(400, "Destination is missing.") }
        if !address.hasPrefix("/"),
            let host = URLComponents(string: address).map({ components in
                (components.host ?? "") + (components.port.map { ":\($0)" } ?? "")
            }), let own = request.header("Host"), host.lowercased() != own.lowercased()
        {
            // A proxy may be reached at another port than this program.
            let names = [host, own].map { $0.split(separator: ":").first?.lowercased() ?? "" }
            guard names[0] == names[1] else { throw DavRefusal(502, "Destination is another server's.") }
        }
        guard let target = Self.path(ofAddress: address) else { throw DavRefusal(400, "Destination is malformed.") }
        return target
    }

    /// Checks what a copy or a move needs, and makes room for it.
    ///
    /// - Returns: Where it goes, whether nothing was there, and what the documents service checks as well.
    private func prepare(
        _ source: DocumentEntry, isMove: Bool
    ) async throws -> (target: DavPath, isNew: Bool, conditions: [DocumentCondition]) {
        let target = try target()
        guard target.container == path.container else {
            throw DavRefusal(502, "Items do not go from one container to another by WebDAV.")
        }
        guard target != path else { throw DavRefusal(403, "Source and destination are the same.") }
        guard !HiddenFiles.isHidden(target) else { throw DavRefusal(403, "A file with this name stays on its device.") }
        let isInside = path.contains(target)
        guard !isInside || !isMove else { throw DavRefusal(403, "A folder cannot be in itself.") }
        try await requireParent(of: target)
        // Of the source only a move is a change.
        let conditions = try await check(source, isChange: isMove, isNameChange: isMove, withInner: isMove)
        let there = try await place(target)
        if there != nil, request.header("Overwrite")?.uppercased() == "F" { throw DavRefusal.failed }
        let submitted = request.header("If").flatMap { DavIf($0) }?.tokens ?? []
        try requireUnlocked(target, isNameChange: there == nil, withInner: true, submitted)
        guard let there else {
            guard try await changes(target).entry(at: target.document) == nil else {
                throw DavRefusal(409, "Something that WebDAV does not show has this name.")
            }
            return (target, true, conditions)
        }
        guard let entry = there.entry else { throw DavRefusal(403, "A container stays as it is.") }
        guard !target.contains(path) else {
            throw DavRefusal(403, "A folder cannot be put in the place of one that it is in.")
        }
        // A file takes a file's place at once.
        if entry.kind == .folder || entry.kind != source.kind {
            try await changes(target).trash(target.document)
        }
        return (target, false, conditions)
    }
}
