public import Foundation
public import NephosCore
internal import NephosWire

/// Further contents of items, such as a small picture of a large one, as ``UbiquityContainer/renditions`` has them.
///
/// The last one that was set under a name stands: they have no versions, and are never in conflict. They stay when the
/// item's content is replaced, and go with the item.
public struct DocumentRenditions: Sendable {
    let handle: ContainerHandle

    // MARK: Setting

    /// Sets a further content of an item, in place of the one of that name. It is kept on this device, and sent when it
    /// can be, as contents are.
    ///
    /// - Parameters:
    ///   - data: Its bytes.
    ///   - name: 1 to 64 bytes without `/` and NUL; 8 of an item at most.
    ///   - path: A file, a link or a package.
    ///   - version: The version of the item's content that it was made from; nil: the one that this device has.
    /// - Throws: ``CloudError`` `.unknownItem`; `.invalidArguments` for a name that none can have, and for a folder;
    ///   `.limitExceeded`; else as ``UbiquityContainer/put(_:at:makesFolders:conditions:)-(Data,_,_,_)`` does.
    @discardableResult
    public func set(
        _ data: Data, named name: String, of path: some DocumentAddressing, madeFrom version: DocumentID? = nil
    ) async throws(CloudError) -> DocumentEntry {
        try await set(.data(data), name, path, version)
    }

    /// Sets a further content of an item to a copy of a file of this machine.
    ///
    /// - Throws: ``CloudError`` as ``set(_:named:of:madeFrom:)`` and ``DocumentLocalFiles/put(_:at:makesFolders:conditions:onProgress:)`` do.
    @discardableResult
    public func set(
        fileAt file: URL, named name: String, of path: some DocumentAddressing, madeFrom version: DocumentID? = nil
    ) async throws(CloudError) -> DocumentEntry {
        try await set(.file(LocalPath(file), allowsOpenDatabase: false), name, path, version)
    }

    private func set(
        _ content: DocumentSource.Content, _ name: String, _ path: some DocumentAddressing, _ version: DocumentID?
    ) async throws(CloudError) -> DocumentEntry {
        try Self.check(name)
        try await handle.requireDownload()
        // Before anything is read.
        try handle.item(at: path).requireContent()
        let folder = try handle.contentFolder()
        let claim = try folder.claim()
        defer { withExtendedLifetime(claim) {} }
        let staged = try handle.imports.stage(content, folder)
        do throws(CloudError) {
            try folder.flush([staged])
            return try await handle.changeItem { draft in
                try folder.require(staged)
                let item = try draft.documents.item(at: draft.documents.path(path))
                try draft.setRendition(staged, named: Data(name.utf8), of: item, madeFrom: version)
                return item.id
            }
        } catch {
            if staged.inline == nil { folder.remove(staged.version) }
            throw error
        }
    }

    /// Takes a further content of an item away.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`: there is none of that name, or no such item; else as
    ///   ``UbiquityContainer/makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func remove(
        named name: String, of path: some DocumentAddressing
    ) async throws(CloudError) -> DocumentEntry {
        try await handle.changeItem { draft in
            let item = try draft.documents.item(at: draft.documents.path(path))
            _ = try item.rendition(named: name)
            var set = WireSetRendition()
            set.name = Data(name.utf8)
            draft.add(WireDocumentChange(item.id, .rendition(set)))
            return item.id
        }
    }

    private static func check(_ name: String) throws(CloudError) {
        guard !DocumentLimits.isRenditionName(Array(name.utf8)) else { return }
        throw CloudError(
            .invalidArguments,
            "A further content is called by 1 to 64 bytes of text without / and NUL. Choose another name.",
            details: ["name": name, "bytes_max": "\(DocumentLimits.renditionNameBytesMax)"])
    }

    // MARK: Reading

    /// The further contents of an item, by the bytes of their names. Needs no network.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`; else as ``UbiquityContainer/item(at:)`` does.
    public func list(of path: some DocumentAddressing) async throws(CloudError) -> [DocumentRendition] {
        let item = try handle.item(at: path).wire
        return item.renditions.map { DocumentRendition($0, of: item) }
    }

    /// A further content of an item, fetched if it is not here.
    ///
    /// - Parameters:
    ///   - name: The rendition's name.
    ///   - path: The item's path in the container.
    ///   - timeout: How long nothing may come before it is given up.
    /// - Throws: ``CloudError`` `.unknownItem` when there is none of that name, or no such item; `.limitExceeded` when it
    ///   has more than ``UbiquityContainer/readBytesMax``; else as ``UbiquityContainer/read(_:version:timeout:)`` does.
    public func read(
        named name: String, of path: some DocumentAddressing, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> Data {
        let item = try handle.item(at: path)
        let content = try item.rendition(named: name).content
        return try await handle.reader.readAll(content, of: item, timeout)
    }

    /// Writes a further content of an item into a local file, which is replaced as ``DocumentLocalFiles/get(_:to:version:overwrites:replacesFolder:timeout:onProgress:)``
    /// replaces one.
    ///
    /// - Parameters:
    ///   - name: The rendition's name.
    ///   - path: The item's path in the container.
    ///   - file: The file's path on this device's disk.
    ///   - timeout: How long nothing may come before it is given up.
    ///   - onProgress: Gets the bytes that have come, and all.
    /// - Throws: ``CloudError`` as ``read(named:of:timeout:)`` does, whatever its length; and of the local file.
    public func get(
        named name: String, of path: some DocumentAddressing, to file: URL, timeout: Duration = .seconds(30),
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) {
        try await get(named: name, of: path, to: LocalPath(file), timeout: timeout, onProgress: onProgress)
    }

    package func get(
        named name: String, of path: some DocumentAddressing, to file: LocalPath, timeout: Duration,
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void
    ) async throws(CloudError) {
        var item = try handle.item(at: path)
        let content = try item.rendition(named: name).content
        // Whatever the item is, this is a file, and nobody runs it.
        item.wire.attributes.executable = false
        item.wire.attributes.extended = []
        do {
            let target = try LocalTarget.file(file, followsLinks: true)
            let (part, fetched) = try await handle.exports.part(of: item, content, for: target, timeout, onProgress)
            try part.flush()
            try part.takePlace()
            if let fetched { handle.reader.keep([fetched]) }
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }
}

extension HeldDocument {
    /// - Throws: ``CloudError`` `.unknownItem`.
    fileprivate func rendition(named name: String) throws(CloudError) -> WireRendition {
        guard let rendition = wire.renditions.first(where: { $0.name == Data(name.utf8) }) else {
            throw CloudError(
                .unknownItem, "The item has no further content of that name.", details: ["rendition": name])
        }
        return rendition
    }

    /// - Throws: ``CloudError`` `.invalidArguments`.
    fileprivate func requireContent() throws(CloudError) {
        guard !wire.hasContent else { return }
        throw CloudError(
            .invalidArguments, "A folder has no content, and so no further ones.", details: ["item": "\(id)"])
    }
}

extension DocumentDraft {
    fileprivate mutating func setRendition(
        _ content: StagedContent, named name: Data, of item: HeldDocument, madeFrom version: DocumentID?
    ) throws {
        try item.requireContent()
        let others = item.wire.renditions.filter { $0.name != name }
        guard others.count < DocumentLimits.renditionsMax else {
            throw CloudError(
                .limitExceeded, "The item has too many further contents. Take one of them away.",
                details: ["item": "\(item.id)", "maximum": "\(DocumentLimits.renditionsMax)"])
        }
        var set = WireSetRendition()
        set.name = name
        set.content = WireDocumentContent(content, base: nil)
        set.ofVersion = version?.wire ?? item.wire.content.version
        add(WireDocumentChange(item.id, .rendition(set)), bringing: content)
    }
}
