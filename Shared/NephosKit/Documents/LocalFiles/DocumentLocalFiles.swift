public import Foundation
public import NephosCore

/// Copies of local files and folders, as ``UbiquityContainer/localFiles`` has them. This device remembers which file it has
/// got or put as which version, and so tells which side has changed.
public struct DocumentLocalFiles: Sendable {
    let handle: ContainerHandle

    /// Puts of many files, and what they would do.
    package var imports: DocumentImport { handle.imports }
    /// Gets of many files, and what they would do.
    package var exports: DocumentExport { handle.exports }
    /// What local files are copies of.
    package var records: LocalFileRecords { handle.records }

    /// Puts a copy of a local file at a path, with its extended attributes that begin with `user.`; others of the item stay.
    ///
    /// A file that this device has got or put before is a new version of what it was then: where the item has a newer one
    /// by now, the two are a conflict (``UbiquityContainer/conflicts``), and an unchanged file puts nothing. Any other file, and one with
    /// conditions, replaces the newest version.
    ///
    /// - Parameters:
    ///   - file: The file's path on this device's disk.
    ///   - path: The item's path in the container.
    ///   - makesFolders: Whether to make missing folders of the path.
    ///   - conditions: Conditions that the server checks first.
    ///   - onProgress: Gets the bytes that are copied into this device's home. How much is sent says
    ///     ``DocumentEntry/percent``.
    /// - Throws: ``CloudError`` as ``UbiquityContainer/put(_:at:makesFolders:conditions:)-(Data,_,_,_)`` does; `.constraintViolation` when the
    ///   file is written while it is read, or is a database in use (``DocumentSource/file(_:at:allowsOpenDatabase:)``);
    ///   `.invalidArguments` when it is no file.
    @discardableResult
    public func put(
        _ file: URL, at path: String, makesFolders: Bool = false, conditions: [DocumentCondition] = [],
        onProgress: (UInt64) -> Void = { _ in }
    ) async throws(CloudError) -> DocumentEntry {
        try await imports.put(.file(file, at: path), makesFolders: makesFolders, conditions, onProgress)
    }

    /// Puts a copy of a local folder at a path as one item, a package. Equal bytes make no version.
    ///
    /// - Throws: ``CloudError`` as ``put(_:at:makesFolders:conditions:onProgress:)`` does; `.limitExceeded` when it has
    ///   more than `DocumentLimits.packageMembersMax` members, or they are too long; `.invalidArguments` when it is no
    ///   folder, or has something in it that is no file, folder or link.
    @discardableResult
    public func putPackage(
        _ folder: URL, at path: String, makesFolders: Bool = false, onProgress: (UInt64) -> Void = { _ in }
    ) async throws(CloudError) -> DocumentEntry {
        try await imports.put(.package(folder, at: path), makesFolders: makesFolders, [], onProgress)
    }

    /// Writes the content of a file into a local one, which is replaced as a whole and keeps its mode, and its owner where
    /// this user may give it away. A local link is followed. An item that is a link becomes one; a package becomes a
    /// folder. A file gets the item's extended attributes that begin with `user.`.
    ///
    /// A local file that was changed since this device got or put it stays, unless `overwrites`.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - file: The file's path on this device's disk.
    ///   - version: Nil: the newest.
    ///   - overwrites: Whether any local file is replaced, also a changed one.
    ///   - replacesFolder: Whether a package replaces a folder that is not empty, in one step; else it is in the way.
    ///   - timeout: How long no byte may come before it is given up.
    ///   - onProgress: Gets the bytes that have come, and all.
    /// - Returns: The extended attributes that the disk did not take, 1000 at most.
    /// - Throws: ``CloudError`` as ``UbiquityContainer/read(_:version:timeout:)`` does; `.storeOutOfStep` when the local file stays;
    ///   `.invalidArguments` when a folder, a device or the like is in the way of a file; `.alreadyExists` when a folder is
    ///   in the way of a package; `.storageFailure`, `.permissionFailure` of the local file.
    @discardableResult
    public func get(
        _ path: some DocumentAddressing, to file: URL, version: DocumentID? = nil, overwrites: Bool = false,
        replacesFolder: Bool = false, timeout: Duration = .seconds(30),
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) -> [UnkeptAttribute] {
        try await exports.get(
            path, to: LocalPath(file), followsLinks: true, version: version, replacing: overwrites ? .all : .recorded,
            replacesFolder: replacesFolder, timeout: timeout, onProgress: onProgress
        ).unkept
    }
}
