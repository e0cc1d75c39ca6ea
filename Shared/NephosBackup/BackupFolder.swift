internal import Foundation
public import NephosCore
internal import NephosFiles
internal import NephosServiceKit

/// A folder of backups: what is copied of segments, which all snapshots share, and a folder for each snapshot.
///
///     backup.json                       whose backups they are
///     segments/SERVICE/PARTITION/NUMBER.segment ..., NUMBER.segment.2 where there is another copy
///     snapshots/TIME/SERVICE.sqlite ..., keys.sealed, manifest.json
///
/// A snapshot is made under a name that begins with a dot, and has its own last. So what has a name is whole.
public struct BackupFolder: Sendable {
    public let path: String

    /// - Parameter path: Need not be there.
    public init(_ path: String) { self.path = FileCopy.resolved(path) }

    var snapshotsPath: String { path + "/snapshots" }
    var segmentsPath: String { path + "/segments" }
    func segmentsPath(of service: ServiceName) -> String { "\(segmentsPath)/\(service)" }
    private var namePath: String { path + "/backup.json" }

    func path(of snapshot: String) -> String { snapshotsPath + "/" + snapshot }
    func manifestPath(of snapshot: String) -> String { path(of: snapshot) + "/manifest.json" }
    func keysPath(of snapshot: String) -> String { path(of: snapshot) + "/keys.sealed" }
    /// Says that the snapshot was looked at and is damaged.
    private func damagePath(of snapshot: String) -> String { path(of: snapshot) + "/damaged" }

    /// - Returns: Nil for a segment that no service has.
    func path(of copy: SegmentCopy) -> String? { copy.filePath.map { segmentsPath + "/" + $0 } }

    // MARK: The folder itself

    private struct Name: Codable {
        var format: Int
        var deployment: String
    }

    /// Makes the folder, or looks whether it is one for this deployment.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`: other things are in it, or backups of another deployment.
    ///   `.incompatibleVersion`: backups of another release.
    func prepare(for deployment: String) throws {
        try FileCopy.makeFolder(path)
        if let name = try name() {
            guard name.deployment == deployment else {
                throw CloudError(
                    .invalidArguments,
                    "In this folder are backups of another deployment. Give each a folder of its own.",
                    details: ["folder": path, "deployment": name.deployment])
            }
        } else {
            // What a disk has by itself may be there.
            let others = try entries(of: path).filter { $0 != "lost+found" && $0 != ".lock" }
            guard others.isEmpty else {
                throw CloudError(
                    .invalidArguments, "This folder has other things in it. Give an empty one, or one of backups.",
                    details: ["folder": path, "entry": others[0]])
            }
            try AtomicFile.write(
                try JSONEncoder().encode(Name(format: Manifest.format, deployment: deployment)), to: namePath,
                mode: 0o600)
        }
        for folder in [snapshotsPath, segmentsPath] + Deployment.contentServices.map(segmentsPath(of:)) {
            try FileCopy.makeFolder(folder)
        }
        for folder in [segmentsPath, path] { try FileCopy.sync(folder) }
    }

    /// - Throws: ``CloudError`` `.unknownItem`: there are no backups.
    func requireBackups() throws {
        guard try name() != nil else { throw Self.none(path) }
    }

    private static func none(_ path: String) -> CloudError {
        CloudError(.unknownItem, "There are no backups in this folder.", details: ["folder": path])
    }

    private func isFolder(_ path: String) -> Bool {
        var information = stat()
        return lstat(path, &information) == 0 && information.st_mode & S_IFMT == S_IFDIR
    }

    private func name() throws -> Name? {
        guard access(namePath, F_OK) == 0 else {
            guard errno == ENOENT || errno == ENOTDIR else { throw FileCopy.failure(namePath) }
            return nil
        }
        let data = try FileCopy.contents(of: namePath, max: 1 << 16)
        guard let name = try? JSONDecoder().decode(Name.self, from: data) else {
            throw CloudError(
                .storageFailure, "The file that says whose backups these are is damaged. Copy it from another copy.",
                details: ["file": namePath])
        }
        guard name.format == Manifest.format else {
            throw CloudError(
                .incompatibleVersion,
                name.format > Manifest.format
                    ? "A newer release of Nephos has made these backups. Use that release, or a newer one."
                    : "An older release of Nephos has made these backups, in a form that is not read any more. Restore them with that release, and back up into another folder.",
                details: ["folder": path, "format": "\(name.format)", "known": "\(Manifest.format)"])
        }
        return name
    }

    /// Holds the folder for one who changes it.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation`: somebody else has it.
    func lock() throws -> FileLock {
        do { return try FileLock(path + "/.lock") } catch .held {
            throw CloudError(
                .constraintViolation, "Another backup or verification of this folder is under way. Wait for its end.",
                details: ["folder": path])
        } catch .unusable(let number) {
            throw FileCopy.failure(path, number)
        }
    }

    /// Whether it lies on a disk that was mounted for reading alone.
    var isReadOnly: Bool {
        var figures = statvfs()
        return statvfs(path, &figures) == 0 && figures.f_flag & UInt(ST_RDONLY) != 0
    }

    /// Removes what one that was killed has left. Only by whoever has the lock.
    func clear() throws {
        for name in try entries(of: snapshotsPath) where name.hasPrefix(".") {
            FileTree.remove(path(of: name))
        }
        for service in Deployment.contentServices {
            for name in try segmentFiles(of: service) where name.hasSuffix(Self.unfinished) {
                unlink(segmentsPath(of: service) + "/" + name)
            }
        }
    }

    /// What lies among a service's segments: `PARTITION/NAME`.
    func segmentFiles(of service: ServiceName) throws -> [String] {
        let folder = segmentsPath(of: service)
        return try entries(of: folder).flatMap { partition in
            try entries(of: folder + "/" + partition).map { partition + "/" + $0 }
        }
    }

    /// How the name of a segment ends whose copy is being written.
    static let unfinished = ".part"

    /// Of what is no folder, none.
    func entries(of folder: String) throws -> [String] {
        // Nothing that lies elsewhere is looked at or removed.
        guard !FileCopy.isLink(folder) else { return [] }
        do { return try FileManager.default.contentsOfDirectory(atPath: folder).sorted() } catch {
            var information = stat()
            guard stat(folder, &information) != 0 ? errno == ENOENT : information.st_mode & S_IFMT != S_IFDIR else {
                throw CloudError(
                    .storageFailure, "A folder of the backups cannot be read. Check its owner and the disk.",
                    details: ["folder": folder])
            }
            return []
        }
    }

    // MARK: Snapshots

    /// A snapshot as it lies there.
    public struct Snapshot: Sendable {
        public var name: String
        /// Nil: it cannot be read.
        public var manifest: Manifest?
        public var failure: CloudError?
        /// Whether one who looked at all of it has found damage.
        public var isKnownDamaged: Bool
    }

    /// All of them, in the order in which they were made; those that cannot be read are first.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`: there are no backups.
    public func snapshots() throws -> [Snapshot] {
        guard let deployment = try name()?.deployment else { throw Self.none(path) }
        // What is no folder is no snapshot: somebody's note, which keeps nobody from verifying and thinning.
        return try entries(of: snapshotsPath).filter { !$0.hasPrefix(".") && isFolder(path(of: $0)) }.map { name in
            let isDamaged = access(damagePath(of: name), F_OK) == 0
            do {
                let manifest = try manifest(of: name)
                guard manifest.deployment == deployment else {
                    throw CloudError(
                        .storageFailure, "This snapshot is another deployment's. Move it out of this folder.",
                        details: ["file": manifestPath(of: name), "deployment": manifest.deployment])
                }
                return Snapshot(name: name, manifest: manifest, isKnownDamaged: isDamaged)
            } catch {
                return Snapshot(name: name, failure: CloudError(wrapping: error), isKnownDamaged: isDamaged)
            }
        }.sorted { ($0.manifest?.number ?? 0, $0.name) < ($1.manifest?.number ?? 0, $1.name) }
    }

    func manifest(of snapshot: String) throws -> Manifest {
        let path = manifestPath(of: snapshot)
        return try Manifest(decoding: try FileCopy.contents(of: path, max: Manifest.fileBytesMax), of: path)
    }

    /// The snapshot of this name; nil: the newest that is whole as far as is known.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`: there is none.
    func find(_ name: String?) throws -> (name: String, manifest: Manifest) {
        let all = try snapshots()
        guard let name else {
            let found = all.last { $0.manifest != nil && !$0.isKnownDamaged }
            guard let found, let manifest = found.manifest else {
                throw all.last?.failure
                    ?? CloudError(
                        .unknownItem, "There is no snapshot that can be used. See: nephos backup verify",
                        details: ["folder": path])
            }
            return (found.name, manifest)
        }
        guard let found = all.first(where: { $0.name == name }) else {
            throw CloudError(
                .unknownItem, "There is no such snapshot. See: nephos backup list", details: ["snapshot": name])
        }
        if let manifest = found.manifest { return (name, manifest) }
        throw found.failure ?? CloudError(.storageFailure, "The snapshot cannot be read.", details: ["snapshot": name])
    }

    /// Notes what a verification has found, for whoever counts on the snapshot later.
    func note(_ snapshot: String, isDamaged: Bool) throws {
        let path = damagePath(of: snapshot)
        if isDamaged { try AtomicFile.write(Data(), to: path, mode: 0o600) } else { unlink(path) }
    }

    /// Whether all files of the snapshot are there, with their lengths. It reads none of them.
    func isComplete(_ name: String, _ manifest: Manifest) -> Bool {
        manifest.databases.allSatisfy { FileCopy.byteCount(path(of: name) + "/" + $0.file) == $0.bytes }
            && manifest.keys.map { FileCopy.byteCount(keysPath(of: name)) == $0.bytes } ?? true
            && manifest.segments.allSatisfy { segment in
                (path(of: segment.file).flatMap { FileCopy.byteCount($0) } ?? 0) >= segment.bytes
            }
    }
}
