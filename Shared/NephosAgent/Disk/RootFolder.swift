internal import Foundation
package import NephosCore
package import NephosFiles

/// The folder on disk that an agent keeps in sync, held open.
///
/// It is known by a random mark in `.nephos`, a folder of the agent's own. Without the mark, or with another folder at
/// the path, nothing is read or changed: an empty place where a disk was mounted must not look like a deletion.
package final class RootFolder: Sendable {
    /// The agent's own folder in the root. It is never synced.
    package static let ownName = FileName(".nephos".utf8)
    private static let markName = FileName("folder".utf8)
    private static let partsName = FileName("parts".utf8)
    private static let parkingName = FileName("parked".utf8)
    /// The beginning of a part's name while it is exchanged with a file.
    static let exchangedPrefix = FileName("x-".utf8)
    /// The way from the root to ``parking``.
    static let parkingPath = [ownName, parkingName]

    package let path: String
    package let folder: HeldFolder
    /// Files that are being downloaded.
    let parts: HeldFolder
    /// Items that wait for a name that another item has.
    let parking: HeldFolder
    private let mark: String
    private let facts: FileFacts
    /// Keeps a second agent out.
    private let lock: FileLock

    /// Opens a folder that was added.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` when the folder is missing, is not the one that was added, or is used
    ///   by another agent. Nothing is changed.
    package init(_ added: AgentFolder) throws(CloudError) {
        path = added.path
        mark = added.mark
        do {
            folder = try HeldFolder(path: added.path)
            facts = try folder.facts()
        } catch { throw Self.missing(added.path, error) }
        guard Self.readMark(folder) == added.mark else { throw Self.replaced(added.path) }
        do {
            let own = try folder.folder([Self.ownName])
            (parts, parking) = (try Self.subfolder(Self.partsName, own), try Self.subfolder(Self.parkingName, own))
        } catch { throw Self.unusable(added.path, error) }
        // Before anything in the agent's own folder is touched.
        do { lock = try FileLock(added.path + "/.nephos/lock") } catch {
            throw CloudError(
                .storageFailure, "Another agent uses the folder. End it first.", details: ["folder": added.path])
        }
    }

    /// Opens a folder that was added to read it, while its agent may run.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` when the folder is missing, or is not the one that was added.
    static func look(_ added: AgentFolder) throws(CloudError) -> HeldFolder {
        let folder: HeldFolder
        do { folder = try HeldFolder(path: added.path) } catch { throw missing(added.path, error) }
        guard readMark(folder) == added.mark else { throw replaced(added.path) }
        return folder
    }

    /// The root's inode and birth, for ``AgentStore/noteRoot(_:of:)``.
    var identity: FileFacts { facts }

    /// Checks that this is still the folder that was added. To be called before each pass.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    func verify() throws(CloudError) {
        // The path may lead elsewhere by now: to another disk, or to a new folder.
        guard let there = try? HeldFolder(path: path).facts(), there.inode == facts.inode, there.born == facts.born,
            there.device == facts.device, Self.readMark(folder) == mark
        else { throw Self.replaced(path) }
        // A folder that was removed has no links. Opening everything again makes another one.
        guard (try? parts.facts().linkCount) ?? 0 > 0, (try? parking.facts().linkCount) ?? 0 > 0 else {
            throw CloudError(
                .storageFailure, "Something has removed a folder in .nephos. It is made again in a moment.",
                details: ["folder": path])
        }
    }

    // MARK: Add

    /// Makes a folder the agent's: creates it if it is missing, and writes the mark.
    ///
    /// - Parameter takesOver: Whether a mark of another agent is replaced, which stops that agent.
    /// - Returns: The mark.
    /// - Throws: ``CloudError`` `.invalidArguments` for something that is not a folder; `.alreadyExists` when it has a mark;
    ///   `.storageFailure`.
    package static func adopt(_ path: String, takesOver: Bool = false) throws(CloudError) -> String {
        var isFolder = ObjCBool(false)
        if FileManager.default.fileExists(atPath: path, isDirectory: &isFolder), !isFolder.boolValue {
            throw CloudError(.invalidArguments, "This is not a folder.", details: ["folder": path])
        }
        do { try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true) } catch {
            throw CloudError(
                .storageFailure, "The folder cannot be made.",
                details: ["folder": path, "reason": error.localizedDescription])
        }
        do {
            let folder = try HeldFolder(path: path)
            let own = try subfolder(ownName, folder)
            if readMark(folder) != nil {
                guard takesOver else { throw CloudError.marked(path) }
                try own.removeFile(markName)
            }
            let mark = UUID().uuidString.lowercased()
            try own.makeFile(markName, mode: 0o600, with: Array("\(mark)\n".utf8))
            try own.flush()
            try folder.flush()
            try checkRenames(own)
            return mark
        } catch let failure as FileFailure { throw unusable(path, failure) } catch { throw CloudError(wrapping: error) }
    }

    /// Removes what the agent has put into the folder. The person's files stay.
    package static func release(_ added: AgentFolder) {
        // Another disk may be mounted at the path.
        guard let folder = try? look(added), let own = try? folder.folder([ownName]) else { return }
        func names(_ name: FileName) -> [FileName] { (try? own.folder([name]).names()) ?? [] }
        // These are a person's.
        guard names(parkingName).isEmpty, !names(partsName).contains(where: { $0.starts(with: exchangedPrefix) }) else {
            return
        }
        folder.removeAll(ownName)
    }

    /// Checks that names can be taken and exchanged in one step.
    private static func checkRenames(_ own: HeldFolder) throws {
        let (one, other) = (FileName("try-1".utf8), FileName("try-2".utf8))
        defer { for name in [one, other] { own.removeAll(name) } }
        do {
            close(try own.makeFile(one, mode: 0o600))
            try own.move(one, to: own, as: other)
            close(try own.makeFile(one, mode: 0o600))
            try own.move(one, to: own, as: other, replacing: .exchange)
        } catch {
            throw CloudError(
                .storageFailure,
                "The folder's file system cannot exchange files in one step, as FAT and NFS cannot. Use a folder on another disk."
            )
        }
    }

    private static func subfolder(_ name: FileName, _ folder: HeldFolder) throws(FileFailure) -> HeldFolder {
        do throws(FileFailure) { try folder.makeFolder(name, mode: 0o700) } catch {
            guard error.number == EEXIST else { throw error }
        }
        return try folder.folder([name])
    }

    private static func readMark(_ folder: HeldFolder) -> String? {
        guard let own = try? folder.folder([ownName]), let text = try? own.content(of: markName, bytesMax: 128) else {
            return nil
        }
        return String(decoding: text.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
    }

    private static func missing(_ path: String, _ failure: FileFailure) -> CloudError {
        CloudError(
            .storageFailure,
            "The folder is not there. Mount its disk, or move it back. If it was deleted, use nephos agent remove: other devices keep its files.",
            details: ["folder": path, "reason": failure.reason])
    }

    private static func replaced(_ path: String) -> CloudError {
        CloudError(
            .storageFailure,
            "Another folder is at the path now, so nothing is synced. Bring the folder back, or remove it from the agent and add it again.",
            details: ["folder": path])
    }

    private static func unusable(_ path: String, _ failure: FileFailure) -> CloudError {
        CloudError(
            .storageFailure, "The folder cannot be used. Check who may write there.",
            details: ["folder": path, "reason": failure.reason])
    }
}

extension CloudError {
    fileprivate static func marked(_ path: String) -> CloudError {
        CloudError(
            .alreadyExists,
            "Another device's agent has kept this folder. If it does so no longer, take the folder over with --take-over.",
            details: ["folder": path])
    }
}
