internal import Foundation
public import NephosCore
internal import NephosFiles
public import NephosServiceKit
internal import NephosStorage

/// A deployment as it is backed up and restored: its files, and where its services keep their data.
public struct DeploymentPlace: Sendable {
    public let files: DeploymentFiles
    /// Has a folder for each service, named like it, or a link to one.
    public let dataFolder: String

    public init(deployment: String, dataFolder: String) {
        files = DeploymentFiles(directory: deployment)
        self.dataFolder = dataFolder
    }

    /// Without links, which are the operator's up to here. Below it they are followed by nobody.
    func folder(of service: ServiceName) -> String { FileCopy.resolved("\(dataFolder)/\(service)") }
    func database(of service: ServiceName) -> String { "\(folder(of: service))/\(service).sqlite" }
    /// Only of a service that moves content.
    public func contentFolder(of service: ServiceName) -> String { folder(of: service) + "/content" }
}

/// Makes one snapshot of a deployment, whether its services run or not.
///
/// First each database is copied, those that follow others before those that they follow, identity last: then no copy
/// lacks what another one has taken over. Then come the segments that the copies of documents' and records' databases
/// name. What they name is in the segments' files already, and is never changed there; and the file of a segment that
/// nothing names any more stays for a day (`Transfers.Configuration.emptiedRetention`), or until the disk of the content
/// has little room.
public struct Backup {
    /// What was done.
    public struct Outcome: Sendable {
        public var snapshot: String
        public var manifest: Manifest
        public var copiedSegments = 0
        public var copiedBytes = 0
        /// How long the longest snapshot of a database was held.
        public var held: Duration = .zero
        /// Where a restore that was killed has left what it had copied, which takes room and is of no use.
        public var leftCopies: [String] = []
        /// Chunks of content that the services have found damaged, as the snapshot has them too; one before may have them
        /// whole.
        public var damagedChunks = 0
        /// Files of content in the deployment that cannot be read whole, or lack chunks that they had when they were copied
        /// before. The snapshot names all copies of such a file.
        public var damagedFiles: [String] = []
        /// Copies of the backups that were damaged or gone, and were made again just as they were.
        public var damagedCopies: [String] = []
        /// Snapshots that were removed.
        public var removed: [String] = []
        public var removedBytes = 0
    }

    public let place: DeploymentPlace
    public let folder: BackupFolder
    /// What goes with the snapshot is sealed to this; nil: the deployment's own.
    public var recoveryKey: PublicRecoveryKey?
    /// Whether the keys are left out.
    public var leavesOutKeys = false
    /// Which snapshots are kept; nil: all.
    public var retention: Retention?
    /// A test ends the work at a named place by throwing.
    var fault: (String) throws -> Void = { _ in }

    /// Identity is last.
    private static let order: [ServiceName] = [.notifications, .keyValue, .documents, .records, .identity]

    public init(of place: DeploymentPlace, into folder: BackupFolder) {
        self.place = place
        self.folder = folder
    }

    /// - Returns: What was done, once the snapshot is on the disk and was read back.
    /// - Throws: ``CloudError``: `.configurationInvalid` (no deployment, no recovery key, a database that is not there),
    ///   `.invalidArguments` (a folder that cannot be one for backups), `.constraintViolation` (another one is under
    ///   way), `.storageFailure` (no room, damage; a segment that went before it was copied), and what the observer
    ///   throws. There is no new snapshot then, and all others are as they were; but where there was no room, those went
    ///   that need not be kept.
    public func run(at now: Timestamp, _ observer: @escaping BackupObserver) throws -> Outcome {
        try UnfinishedRestore.require(noneIn: place.files.directory)
        let deployment = try place.files.roster().deployment
        try requireOperators()
        let key = try sealingKey()
        try requireApart()
        try folder.prepare(for: deployment)
        let lock = try folder.lock()
        defer { withExtendedLifetime(lock) {} }
        try folder.clear()

        var outcome: Outcome
        do {
            outcome = try make(deployment, key, at: now, observer)
        } catch let error as CloudError where isForLackOfRoom(error) {
            // What would go afterwards goes before.
            guard let retention else { throw error }
            let thinned = try Thinning(folder: folder, fault: fault).run(retention)
            guard thinned.bytes > 0 else { throw error }
            do { outcome = try make(deployment, key, at: now, observer) } catch var error as CloudError {
                error.details["removed"] = thinned.removed.joined(separator: " ")
                throw error
            }
            (outcome.removed, outcome.removedBytes) = thinned
        }
        try FileCopy.sync(folder.snapshotsPath)
        try fault("named")
        outcome.leftCopies = ServiceName.all.compactMap { UnfinishedRestore.leftCopy(in: place.folder(of: $0)) }
        if let retention {
            let thinned = try Thinning(folder: folder, fault: fault).run(retention)
            outcome.removed += thinned.removed
            outcome.removedBytes += thinned.bytes
        }
        return outcome
    }

    private func isForLackOfRoom(_ error: CloudError) -> Bool {
        error.details[FileCopy.neededBytes] != nil
            || error.code == .storageFailure && FileCopy.freeBytes(at: folder.path) ?? .max < FileCopy.marginBytes
    }

    private func make(
        _ deployment: String, _ key: PublicRecoveryKey?, at now: Timestamp, _ observer: @escaping BackupObserver
    ) throws -> Outcome {
        let before = try folder.snapshots()
        let name = freeName(at: now, among: before.map(\.name))
        let making = folder.path(of: "." + name)
        try FileCopy.makeFolder(making)
        do {
            let outcome = try fill(making, name, deployment, key, before, at: now, observer)
            try fault("whole")
            try FileCopy.rename(making, to: folder.path(of: name))
            return outcome
        } catch {
            FileTree.remove(making)
            throw error
        }
    }

    /// A folder that was handed to one service has a roster too, and no secrets of the others.
    private func requireOperators() throws {
        let path = place.files.directory + "/operator.secret.json"
        guard access(path, F_OK) != 0, errno == ENOENT else { return }
        throw CloudError(
            .configurationInvalid,
            "The operator's key is not in this folder. If it was handed to a service, name the deployment that it is of. If the file was lost: nephos secrets rotate-operator-key",
            details: ["file": path])
    }

    private func sealingKey() throws -> PublicRecoveryKey? {
        guard !leavesOutKeys else { return nil }
        if let key = try recoveryKey ?? place.files.recoveryKey() { return key }
        throw CloudError(
            .configurationInvalid,
            "This deployment has no recovery key, to which its secrets could be sealed. Make one: nephos recovery-key new. Or leave them out, and keep them elsewhere: --without-keys",
            details: ["deployment": place.files.directory])
    }

    /// The backups would become part of what is backed up, or go with it.
    private func requireApart() throws {
        for other in [place.dataFolder, place.files.directory] + ServiceName.all.map(place.folder(of:)) {
            let other = FileCopy.resolved(other)
            guard folder.path != other, !folder.path.hasPrefix(other + "/") else {
                throw CloudError(
                    .invalidArguments,
                    "The folder for backups is within the deployment's own. Give one outside, on another disk.",
                    details: ["folder": folder.path, "within": other])
            }
        }
    }

    private func freeName(at now: Timestamp, among names: [String]) -> String {
        let name = now.snapshotName
        var count = 2
        var free = name
        while names.contains(free) {
            free = name + "-\(count)"
            count += 1
        }
        return free
    }

    private func fill(
        _ making: String, _ name: String, _ deployment: String, _ key: PublicRecoveryKey?,
        _ before: [BackupFolder.Snapshot], at now: Timestamp, _ observer: @escaping BackupObserver
    ) throws -> Outcome {
        let known = before.compactMap(\.manifest)
        // Before the databases: what a service wraps from now on it may wrap with a key that is not among these.
        let masterKeys = try place.files.masterKeyNames()
        var held: Duration = .zero
        let databases = try copyDatabases(to: making, known.last, held: &held, observer)
        try fault("databases")
        var copying = SegmentCopying(from: place, to: folder, known: before, fault: fault)
        let segments = try copying.run(namedIn: making, observer)
        try fault("segments")
        var manifest = Manifest(
            createdAt: now, number: (known.map(\.number).max() ?? 0) + 1, deployment: deployment, databases: databases,
            segments: segments, masterKeys: masterKeys)
        if let key {
            let secrets = try DeploymentSecrets(of: place.files, with: try manifest.digest())
            // Keys that were rotated meanwhile may be what a database needs, or not yet; both are there then.
            guard try place.files.masterKeyNames() == masterKeys else {
                throw CloudError(
                    .constraintViolation, "The deployment's keys were changed while it was backed up. Do it again.")
            }
            let sealed = Data(try secrets.sealed(to: key))
            try AtomicFile.write(sealed, to: making + "/keys.sealed", mode: 0o600)
            guard let hash = try FileCopy.hash(making + "/keys.sealed", first: sealed.count, went: { _ in }) else {
                throw FileCopy.failure(making + "/keys.sealed", EIO)
            }
            manifest.keys = Manifest.Keys(recoveryKey: key.id, bytes: sealed.count, sha256: hash)
        }
        try AtomicFile.write(try manifest.encoded(), to: making + "/manifest.json", mode: 0o600)
        try FileCopy.sync(making)
        _ = try Manifest(
            decoding: try FileCopy.contents(of: making + "/manifest.json", max: Manifest.fileBytesMax),
            of: making + "/manifest.json")
        var outcome = Outcome(
            snapshot: name, manifest: manifest, copiedSegments: copying.copiedSegments,
            copiedBytes: copying.copiedBytes, held: held)
        (outcome.damagedFiles, outcome.damagedCopies) = (copying.damagedFiles, copying.damagedCopies)
        for service in Deployment.contentServices {
            let rows = try DatabaseCopy.integers(
                "SELECT COUNT(*) FROM content_damaged", of: "\(making)/\(service).sqlite")
            outcome.damagedChunks += rows.first.map { Int(clamping: $0[0]) } ?? 0
        }
        return outcome
    }

    // MARK: Databases

    private func copyDatabases(
        to making: String, _ last: Manifest?, held: inout Duration, _ observer: @escaping BackupObserver
    ) throws -> [Manifest.Database] {
        let sizes = try Self.order.map { service in
            let path = place.database(of: service)
            guard let bytes = FileCopy.byteCount(path) else {
                guard !FileCopy.isLink(path) else { throw FileCopy.failure(path, ELOOP) }
                let isHidden = access(path, F_OK) != 0 && errno == EACCES
                throw isHidden
                    ? FileCopy.failure(path, EACCES)
                    : CloudError(
                        .configurationInvalid,
                        "A service's database is not there. Has the deployment been started, and are its data here? See --data.",
                        details: ["file": path])
            }
            return bytes + (FileCopy.byteCount(path + "-wal") ?? 0)
        }
        try FileCopy.requireRoom(for: sizes.reduce(0, +), at: making)
        let counting = Counting(.databases, total: 2 * sizes.reduce(0, +), observer)
        // All of them first, so that they are of nearly one moment; what is slow comes after.
        for (service, bytes) in zip(Self.order, sizes) {
            let time = try DatabaseCopy.make(of: place.database(of: service), at: "\(making)/\(service).sqlite") {
                try counting.went(0)
            }
            held = max(held, time)
            try counting.went(bytes)
            try fault("copied \(service)")
        }
        return try zip(Self.order, sizes).map { service, bytes in
            let path = "\(making)/\(service).sqlite"
            try FileCopy.flush(path)
            guard let size = FileCopy.byteCount(path),
                let hash = try FileCopy.hash(path, first: size, went: { _ in try counting.went(0) })
            else { throw FileCopy.failure(path, EIO) }
            try DatabaseCopy.requireSound(path)
            try counting.went(bytes)
            let database = Manifest.Database(service: service.rawValue, bytes: size, sha256: hash)
            try shareWithLast(last, database, path)
            return database
        }
    }

    /// A database that is as it was in the snapshot before takes no room of its own.
    private func shareWithLast(_ last: Manifest?, _ database: Manifest.Database, _ path: String) throws {
        guard let last, last.databases.contains(database),
            let name = try folder.snapshots().last(where: {
                $0.manifest == last && !$0.isKnownDamaged
            })?.name
        else { return }
        let before = folder.path(of: name) + "/" + database.file
        // One that cannot be read any more keeps nobody from making the next.
        guard (try? FileCopy.hash(before, first: database.bytes, went: { _ in })) == database.sha256,
            FileCopy.byteCount(before) == database.bytes, link(before, path + ".same") == 0
        else { return }
        try FileCopy.rename(path + ".same", to: path)
    }
}
