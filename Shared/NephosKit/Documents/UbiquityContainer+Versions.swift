internal import Foundation
public import NephosCore
internal import NephosWire

/// What a file's content was, and which of two that were written at once stays.
///
/// No bytes are sent by any of this: what becomes current, and what becomes an item of its own, names contents that the
/// server has.
extension UbiquityContainer {
    /// The versions of a file's content that the server keeps, newest first. Asks the server.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`, also of what the server has not got yet; else what keeps the server
    ///   from answering.
    public func versions(
        of path: some DocumentAddressing, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> [DocumentVersion] {
        let item = try read { try $0.item(at: $0.path(path)) }
        return try await versions(of: item, timeout)
    }

    /// One of a file's versions. Asks the server only for a former one.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when the file has no such version, or it is not kept any more.
    package func version(
        _ version: DocumentID, of path: some DocumentAddressing, timeout: Duration
    ) async throws(CloudError) -> DocumentVersion {
        let (item, content) = try await content(at: path, version, timeout)
        guard let found = DocumentVersion(content, of: item.wire) else { throw ContentReading.damaged }
        return found
    }

    func versions(of item: HeldDocument, _ timeout: Duration) async throws(CloudError) -> [DocumentVersion] {
        var request = WireListVersions()
        request.container = id
        request.item = item.id.wire
        let reply = try await session.call(
            .documents, request, as: WireListVersionsReply.self, app: app, timeout: timeout, account: account)
        return reply.versions.compactMap { DocumentVersion($0, of: item.wire) }
    }

    /// The files of which two contents were written at once, and nobody has said which stays, by path; none that lies in the trash. Needs no
    /// network.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does.
    public func conflicts() async throws(CloudError) -> [DocumentEntry] {
        try read { documents in
            var found: [DocumentEntry] = []
            try documents.eachItem { item in
                guard !item.wire.conflicts.isEmpty, let entry = try documents.entry(item), !entry.isTrashed else {
                    return
                }
                found.append(entry)
            }
            return found.sorted { ($0.path, $0.id) < ($1.path, $1.id) }
        }
    }

    /// The current version of a file, and after it those that lost to it and that nobody has resolved, the oldest
    /// first. Needs no network.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does; `.unknownItem` when there is no such item.
    public func conflicts(of path: some DocumentAddressing) async throws(CloudError) -> [DocumentVersion] {
        let item = try read { try $0.item(at: $0.path(path)) }.wire
        guard item.hasContent else { return [] }
        return ([item.content] + item.conflicts).compactMap { DocumentVersion($0, of: item) }
    }

    /// Decides which of a file's contents is the current one. What is not kept stays among its ``versions(of:timeout:)``.
    ///
    /// A content that somebody has committed meanwhile is not lost by that: it and the one that is kept are a conflict
    /// then.
    ///
    /// - Parameters:
    ///   - version: One of ``conflicts(of:)``; nil: the current one.
    ///   - keepsOthers: Whether each of the others becomes a file of its own beside it, called
    ///     `name (DEVICE's conflicted copy 2026-01-31).txt`.
    /// - Returns: The file, and after it those that were made.
    /// - Throws: ``CloudError`` `.unknownItem` when there is no such file, conflict or version: somebody else may have
    ///   resolved it; else as ``item(at:)`` does, or `.serviceBusy` when too much waits to be sent.
    @discardableResult
    public func resolve(
        _ path: some DocumentAddressing, keeping version: DocumentID? = nil, keepsOthers: Bool = false
    ) async throws(CloudError) -> [DocumentEntry] {
        // Asked before anything is decided; without an answer only this device's own name is known.
        let devices = keepsOthers ? (try? await session.devices(timeout: .seconds(2))) ?? [] : []
        var names = Dictionary(devices.map { ($0.id, $0.name) }) { first, _ in first }
        if let own = try session.account, names[own.deviceID] == nil { names[own.deviceID] = own.deviceName }
        let known = names
        return try await change { draft in
            let path = try draft.documents.path(path)
            let item = try draft.documents.item(at: path)
            return try draft.resolve(item, at: path, keeping: version, keepsOthers: keepsOthers, known)
        } reading: { documents, ids in
            try ids.map { try documents.requireEntry($0) }
        }
    }

    /// Makes an older version of a file's content the current one again, as a new version. A conflict of the same bytes
    /// is resolved by that. Nothing is done if the file has those bytes.
    ///
    /// A content that somebody has committed meanwhile stays: the two are a conflict then.
    ///
    /// - Parameter timeout: How long the server may take to say what the version was.
    /// - Throws: ``CloudError`` `.unknownItem` when the file has no such version, or it is not kept any more; else what
    ///   keeps the server from answering, or as ``resolve(_:keeping:keepsOthers:)`` does.
    @discardableResult
    public func restoreVersion(
        _ version: DocumentID, of path: some DocumentAddressing, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> DocumentEntry {
        let (item, content) = try await content(at: path, version, timeout)
        return try await change { draft in
            guard let there = try draft.documents.document(item.id) else {
                throw CloudError(.unknownItem, "The item was removed meanwhile.", details: ["item": "\(item.id)"])
            }
            let same = there.wire.conflicts.filter { $0.hasBytes(of: content) }.map(\.version)
            draft.resolve(same, of: there)
            draft.replace(there, byBytesOf: content)
            return there.id
        } reading: {
            try $0.requireEntry($1)
        }
    }
}

extension DocumentDraft {
    /// - Returns: The item's id, and after it those of the items that were made.
    mutating func resolve(
        _ item: HeldDocument, at path: DocumentPath, keeping version: DocumentID?, keepsOthers: Bool,
        _ deviceNames: [DeviceID: String]
    ) throws -> [DocumentID] {
        let conflicts = item.wire.conflicts
        guard !conflicts.isEmpty else {
            throw CloudError(
                .unknownItem, "The item has no conflict, or somebody has resolved it.", details: ["path": path.text])
        }
        let contents = [item.wire.content] + conflicts
        let kept = version?.wire ?? item.wire.content.version
        guard let content = contents.first(where: { $0.version == kept }) else {
            throw CloudError(
                .unknownItem, "The item has no such conflict, or somebody has resolved it.",
                details: ["path": path.text, "version": version?.description ?? ""])
        }
        // First, so that what takes a newer one's place becomes a conflict in its own right, where it is not taken for
        // one that it is about to resolve.
        resolve(conflicts.map(\.version), of: item)
        replace(item, byBytesOf: content)
        guard keepsOthers, let folder = item.parent else { return [item.id] }
        var made = [item.id]
        for other in contents where other.version != kept {
            let now = now
            let name = try freeName(beside: path) { number in
                ConflictName.make(
                    of: item.wire.name, device: deviceNames[DeviceID(other.deviceID)],
                    committed: Timestamp(nanoseconds: other.committed) ?? now, number: number)
            }
            made.append(try copy(item, content: other, at: path.renamed(name), in: folder).item)
        }
        return made
    }

    mutating func resolve(_ versions: [Data], of item: HeldDocument) {
        guard !versions.isEmpty else { return }
        var resolve = WireResolveConflicts()
        resolve.versions = versions
        add(WireDocumentChange(item.id, .resolve(resolve)))
    }

    /// Makes these bytes the item's content, unless it has them.
    ///
    /// - Parameter staged: Where they come from, if the container may not have them; nil: it has.
    /// - Returns: What the content is called that the item has then.
    @discardableResult
    mutating func replace(
        _ item: HeldDocument, byBytesOf content: WireDocumentContent, _ staged: StagedContent? = nil
    ) -> Data {
        guard !content.hasBytes(of: item.wire.content) else { return item.wire.content.version }
        var replace = WireReplaceContent()
        replace.content = WireDocumentContent(
            bytesOf: content, version: staged?.version ?? makeID(), base: item.wire.content.version)
        add(WireDocumentChange(item.id, .replace(replace)), bringing: staged)
        return replace.content.version
    }

    /// The first name that nothing there has.
    private mutating func freeName(beside path: DocumentPath, _ name: (Int) -> Data) throws -> Data {
        var number = 1
        while try place(path.renamed(name(number))) != nil { number += 1 }
        return name(number)
    }
}

/// What a content is called that lost, once it is an item of its own: as other systems call it, so that people and
/// programs know it.
enum ConflictName {
    /// A version that is written beside its file: `name (DEVICE, 2026-01-31 18.05.00).txt`.
    static func makeVersion(of name: Data, device: String?, committed: Timestamp) -> Data {
        let owner = device.map(printable).flatMap { $0.isEmpty ? nil : "\($0), " } ?? ""
        return mark(name, " (\(owner)\(text(committed, "yyyy-MM-dd HH.mm.ss")))")
    }

    /// - Parameters:
    ///   - device: What the device is called that committed it; nil: nobody knows.
    ///   - number: 2 or more: which of several that would have one name.
    static func make(of name: Data, device: String?, committed: Timestamp, number: Int) -> Data {
        mark(plain(name), mark(device: device, committed: committed, number: number))
    }

    /// Puts the mark before the extension.
    private static func mark(_ name: Data, _ text: String) -> Data {
        // A name that begins with its only dot has no extension.
        let dot = name.lastIndex(of: UInt8(ascii: ".")).flatMap { $0 > name.startIndex ? $0 : nil }
        let end = dot.flatMap { name.endIndex - $0 <= extensionMax ? $0 : nil } ?? name.endIndex
        let mark = Data(text.utf8)
        let stem = cut(name[..<end], to: DocumentLimits.nameBytesMax - mark.count - (name.endIndex - end))
        return stem + mark + name[end...]
    }

    private static let extensionMax = 32
    private static let deviceBytesMax = 64

    private static func mark(device: String?, committed: Timestamp, number: Int) -> String {
        let day = text(committed, "yyyy-MM-dd")
        let owner = device.map(printable).flatMap { $0.isEmpty ? nil : "\($0)'s " } ?? ""
        return " (\(owner)conflicted copy \(day)\(number > 1 ? " \(number)" : ""))"
    }

    private static func text(_ time: Timestamp, _ format: String) -> String {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.dateFormat = format
        return formatter.string(from: Date(timeIntervalSince1970: Double(time.milliseconds) / 1000))
    }

    /// The name without the mark of an earlier conflict: marks do not pile up.
    private static func plain(_ name: Data) -> Data {
        guard let text = String(validating: name, as: UTF8.self),
            let mark = text.firstMatch(of: /\ \([^()]*conflicted copy \d{4}-\d\d-\d\d(?: \d+)?\)/)
        else { return name }
        let plain = Data((text[..<mark.range.lowerBound] + text[mark.range.upperBound...]).utf8)
        return DocumentLimits.isName([UInt8](plain)) ? plain : name
    }

    /// What a name may have in it, and a terminal shows.
    private static func printable(_ device: String) -> String {
        let text = device.scalarsWithUnseen { scalars in
            String(String.UnicodeScalarView(scalars.filter { !$0.isUnseen && $0.scalar != "/" }.map(\.scalar)))
        }
        return String(decoding: cut(Data(text.utf8), to: deviceBytesMax), as: UTF8.self)
    }

    /// What does not fit is cut before a character.
    private static func cut(_ text: Data, to count: Int) -> Data {
        guard text.count > count else { return text }
        var end = text.startIndex + max(0, count)
        while end > text.startIndex, text[end] & 0xc0 == 0x80 { end -= 1 }
        return text[..<end]
    }
}

extension DocumentVersion {
    /// What a copy of it is called that is written beside its file.
    ///
    /// - Parameters:
    ///   - name: What the file is called.
    ///   - device: What the device is called that has committed it; nil: nobody knows.
    package func copyName(of name: Data, device: String?) -> Data {
        ConflictName.makeVersion(
            of: name, device: device,
            committed: committed ?? Timestamp(milliseconds: UInt64(max(0, modified.milliseconds)))
        )
    }
}
