internal import Crypto
internal import Foundation
internal import NephosContent
public import NephosCore
internal import NephosFiles
public import NephosServiceKit
internal import NephosStorage

/// Brings a snapshot back: onto an empty host, or in the place of what is there, which is moved aside.
///
/// In three steps. All is checked, and nothing touched. All is copied beside its place, and what is there could still be
/// used. Then marks are made (``UnfinishedRestore``), with which no service starts; what was there is moved aside, what
/// was copied is moved in, the deployment's files are written, and the marks go. Killed anywhere, it is run again.
public struct Restore {
    /// What would be done, once all was checked.
    public struct Plan: Sendable {
        public var snapshot: String
        public var manifest: Manifest
        /// Services whose data would be moved aside.
        public var replaced: [ServiceName]
        /// Whether there is a deployment, whose files would be moved aside too.
        public var replacesDeployment: Bool
        /// Bytes that would be written.
        public var bytes: Int
        /// Bytes that are free where they would be; nil: nobody knows.
        public var freeBytes: Int?
    }

    /// What was done.
    public struct Outcome: Sendable {
        public var connection: String
        /// Where what was there before is now.
        public var aside: [String]
    }

    /// Where the keys come from.
    public enum Keys: Sendable {
        /// From the snapshot.
        case sealed(RecoveryKey)
        /// The host's own stay.
        case kept
        /// Nobody has said; for a plan only.
        case unknown
    }

    public let folder: BackupFolder
    public let place: DeploymentPlace
    public var keys: Keys
    /// Whether what is there may be replaced.
    public var isInPlace = false
    /// Changes where the services are, before the roster is written.
    public var moving: (@Sendable (inout Roster) throws -> Void)?
    /// Looks at the roster that is to be written, before anything is touched.
    public var checking: (@Sendable (Roster) throws -> Void)?
    /// A test ends the work at a named place by throwing.
    var fault: (String) throws -> Void = { _ in }

    public init(from folder: BackupFolder, to place: DeploymentPlace, keys: Keys) {
        self.folder = folder
        self.place = place
        self.keys = keys
    }

    private func stage(of service: ServiceName) -> String {
        place.folder(of: service) + "/" + UnfinishedRestore.staging
    }

    /// The deployment's folder, and each service's.
    private var folders: [String] {
        [place.files.directory] + ServiceName.all.map(place.folder(of:))
    }

    // MARK: Checks

    /// Checks everything that can be checked, and changes nothing.
    ///
    /// - Parameter snapshot: Its name; nil: the newest.
    /// - Throws: ``CloudError``: `.unknownItem` (no such snapshot), `.alreadyExists` (something is there, and is not to be
    ///   replaced), `.constraintViolation` (services run), `.wrongCredentials` (another recovery key),
    ///   `.configurationInvalid` (no keys), `.incompatibleVersion` (a newer release's), `.storageFailure` (damage, no
    ///   room), and what the observer throws.
    public func plan(_ snapshot: String?, _ observer: @escaping BackupObserver) throws -> Plan {
        let (name, manifest, replaced) = try requireFree(for: snapshot)
        let files = try secrets(of: name, manifest)
        if var roster = try isKept ? place.files.roster() : roster(in: files) {
            try moving?(&roster)
            try checking?(roster)
        }
        let counting = Counting(.verifying, total: manifest.databaseBytes + manifest.segmentBytes, observer)
        let verification = Verification(of: folder)
        let damaged = try verification.damagedSegments(Verification.wanted([manifest]), counting)
        if let failure = try verification.failures(of: name, manifest, damaged, counting).first {
            var error = failure
            error.details["snapshot"] = name
            error.details["cure"] = "Another snapshot may be whole: nephos backup verify"
            throw error
        }
        let bytes = manifest.databaseBytes + manifest.segmentBytes
        let plan = Plan(
            snapshot: name, manifest: manifest, replaced: replaced, replacesDeployment: hasRoster && !isKept,
            bytes: bytes, freeBytes: FileCopy.freeBytes(at: place.dataFolder))
        try requireRoom(manifest)
        return plan
    }

    private var hasRoster: Bool { access(place.files.rosterPath, F_OK) == 0 }

    /// Checks what can be checked in a moment and without the keys: that there is such a snapshot, and nothing in its way.
    ///
    /// - Parameter snapshot: Its name; nil: the newest.
    /// - Returns: It, and the services of which there is something that it takes the place of.
    /// - Throws: ``CloudError`` as ``plan(_:_:)`` does.
    @discardableResult
    public func requireFree(
        for snapshot: String?
    ) throws -> (name: String, manifest: Manifest, replaced: [ServiceName]) {
        // Its services would not start.
        guard !FileCopy.isLink(place.files.directory) else {
            throw CloudError(
                .configurationInvalid, "The deployment's folder is a link. Give the folder that it leads to.",
                details: ["deployment": place.files.directory])
        }
        let (name, manifest) = try folder.find(snapshot)
        let isUnfinished = folders.contains { UnfinishedRestore.isThere(in: $0) }
        let replaced = ServiceName.all.filter {
            access(place.database(of: $0), F_OK) == 0
                || Deployment.contentServices.contains($0) && access(place.contentFolder(of: $0), F_OK) == 0
        }
        guard isInPlace || isUnfinished || replaced.isEmpty && (!hasRoster || isKept) else {
            throw CloudError(
                .alreadyExists,
                "There is a deployment, or data of one. It was left as it is. To have it moved aside: --in-place",
                details: [
                    "deployment": place.files.directory, "data": place.dataFolder,
                    "services": replaced.map(\.rawValue).joined(separator: " "),
                ])
        }
        try requireModes()
        try requireStopped()
        return (name, manifest, replaced)
    }

    private var isKept: Bool { if case .kept = keys { true } else { false } }

    /// The services would not start in folders that others have access to.
    private func requireModes() throws {
        if access(place.files.directory, F_OK) == 0 { try place.files.requireOwnFolder() }
        for folder in ServiceName.all.map({ place.folder(of: $0) }) where access(folder, F_OK) == 0 {
            try DeploymentFiles.requirePrivateFolder(folder)
        }
    }

    /// Each service's folder may be on a disk of its own.
    private func requireRoom(_ manifest: Manifest) throws {
        var needed: [UInt64: (bytes: Int, folder: String)] = [:]
        for database in manifest.databases {
            let service = ServiceName(database.service)
            let folder = place.folder(of: service)
            let bytes = database.bytes + manifest.segmentBytes(of: service)
            // What one that was killed has copied goes before anything is copied anew.
            let left = FileCopy.treeBytes(stage(of: service))
            needed[Self.device(of: folder), default: (0, folder)].bytes += bytes - left
        }
        for (bytes, folder) in needed.values { try FileCopy.requireRoom(for: bytes, at: folder) }
    }

    private static func device(of folder: String) -> UInt64 {
        var path = folder
        var information = stat()
        while stat(path, &information) != 0, path.count > 1 { path = (path as NSString).deletingLastPathComponent }
        return UInt64(information.st_dev)
    }

    private func requireStopped() throws {
        let run = RunFolder(deployment: place.files.directory)
        guard RunFolder.Place.all.allSatisfy({ run.holder(of: $0) == nil }) else { throw Self.running }
        for service in ServiceName.all where access(Self.lock(place.database(of: service)), F_OK) == 0 {
            _ = try hold(service)
        }
    }

    private static func lock(_ database: String) -> String { database + ".lock" }

    private static let running = CloudError(
        .constraintViolation,
        "Services of this deployment run. Stop them first: nephos down, docker-compose stop, or systemctl stop nephos.target"
    )

    /// No service starts on this data while it is held.
    private func hold(_ service: ServiceName) throws -> FileLock {
        let path = Self.lock(place.database(of: service))
        do { return try FileLock(path) } catch .held { throw Self.running } catch .unusable(let number) {
            throw FileCopy.failure(path, number)
        }
    }

    // MARK: Keys

    /// The files that are to be written; empty: the host's stay.
    private func secrets(of name: String, _ manifest: Manifest) throws -> [String: Data] {
        switch keys {
        case .unknown: return [:]
        case .sealed(let key):
            guard let listed = manifest.keys else { throw Self.withoutKeys(name) }
            let path = folder.keysPath(of: name)
            let sealed = try FileCopy.contents(of: path, max: DeploymentSecrets.sealedBytesMax)
            // Before they are opened: of damaged ones nobody is to be told that the key is a wrong one.
            guard sealed.count == listed.bytes, hex(SHA256.hash(data: sealed)) == listed.sha256 else {
                throw CloudError(
                    .storageFailure, "The keys of the snapshot are damaged. Use another snapshot.",
                    details: ["file": path])
            }
            return try DeploymentSecrets(opening: Array(sealed), with: key, of: manifest).files
        case .kept:
            let roster = try place.files.roster()
            guard roster.deployment == manifest.deployment else {
                throw CloudError(
                    .configurationInvalid, "The keys on this host are another deployment's, and open nothing of it.",
                    details: ["deployment": roster.deployment, "snapshot": manifest.deployment])
            }
            let own = try place.files.masterKeyNames()
            for (service, names) in manifest.masterKeys.sorted(by: { $0.key < $1.key }) {
                guard let known = own[service], Set(names).isSubset(of: known) else {
                    throw CloudError(
                        .configurationInvalid,
                        "The master keys of this host were rotated since, and do not open this snapshot. Give the recovery key, without --keep-keys.",
                        details: ["service": service, "snapshot": name])
                }
            }
            return [:]
        }
    }

    private static func withoutKeys(_ name: String) -> CloudError {
        CloudError(
            .configurationInvalid,
            "This snapshot was made without keys. Put the deployment's files, from where you keep them, into its folder, and run this with --keep-keys.",
            details: ["snapshot": name])
    }

    // MARK: Doing it

    /// Restores what a plan has checked.
    ///
    /// - Throws: ``CloudError``, and what the observer throws. Before the first file is moved all is as it was; after
    ///   that the services refuse to start until this was run again.
    public func run(_ plan: Plan, at now: Timestamp, _ observer: @escaping BackupObserver) throws -> Outcome {
        if case .unknown = keys { throw CloudError(.invalidArguments, "The recovery key is missing.") }
        let files = try secrets(of: plan.snapshot, plan.manifest)
        if files.isEmpty, !isKept { throw Self.withoutKeys(plan.snapshot) }
        for folder in folders { try FileCopy.makeFolder(folder) }
        let locks = try ServiceName.all.map(hold)
        defer { withExtendedLifetime(locks) {} }
        try requireStopped(but: locks)
        let counting = Counting(.restoring, total: plan.bytes, observer)
        for service in ServiceName.all {
            do { try copy(service, plan, at: now, counting) } catch {
                for service in ServiceName.all { FileTree.remove(stage(of: service)) }
                throw error
            }
        }
        try fault("copied")
        return try replace(plan, files, at: now)
    }

    /// The locks are held by now; a supervisor may have started meanwhile.
    private func requireStopped(but locks: [FileLock]) throws {
        let run = RunFolder(deployment: place.files.directory)
        guard RunFolder.Place.all.allSatisfy({ run.holder(of: $0) == nil }) else { throw Self.running }
    }

    /// Copies a service's data beside its place.
    private func copy(_ service: ServiceName, _ plan: Plan, at now: Timestamp, _ counting: Counting) throws {
        let home = try OpenFolder(place.folder(of: service))
        FileTree.remove(stage(of: service))
        let stage = try home.makeFolder(UnfinishedRestore.staging)
        guard let listed = plan.manifest.databases.first(where: { $0.service == service.rawValue }) else {
            throw CloudError(
                .storageFailure, "The snapshot lacks a service's database. Use another snapshot.",
                details: ["service": service.rawValue])
        }
        try copy(
            folder.path(of: plan.snapshot) + "/" + listed.file, listed.bytes, listed.sha256,
            to: try stage.makeFile("\(service).sqlite"), counting)
        try DatabaseCopy.noteRestored(stage.path + "/\(service).sqlite", at: now)
        if Deployment.contentServices.contains(service) {
            try copyContent(of: service, plan, to: try stage.makeFolder("content"), counting)
        }
        try stage.sync()
        try fault("copied \(service)")
    }

    private func copyContent(
        of service: ServiceName, _ plan: Plan, to content: OpenFolder, _ counting: Counting
    ) throws {
        var partitions: [String: OpenFolder] = [:]
        for segment in plan.manifest.segments where segment.id.service == service {
            guard let source = folder.path(of: segment.file), let name = segment.id.segment.filePath else { continue }
            let (partition, file) = (
                (name as NSString).deletingLastPathComponent, (name as NSString).lastPathComponent
            )
            let target = try partitions[partition] ?? content.makeFolder(partition)
            partitions[partition] = target
            let restored = try target.makeFile(file)
            try copy(source, segment.bytes, segment.sha256, to: restored, counting)
            let others = segment.otherFiles.compactMap { folder.path(of: $0) }
            if !others.isEmpty {
                let database = "\(folder.path(of: plan.snapshot))/\(service).sqlite"
                try SegmentChunks(of: segment.id, namedBy: database).fill(restored, copiedFrom: source, from: others)
            }
            try fault("segment")
        }
        for partition in partitions.values {
            try partition.sync()
            try partition.giveAway()
        }
        try content.sync()
        try content.giveAway()
    }

    private func copy(
        _ source: String, _ bytes: Int, _ sha256: String, to target: FileCopy.Opened, _ counting: Counting
    ) throws {
        let hash = try FileCopy.copy(source, first: bytes, to: target) { try counting.went($0) }
        guard hash == sha256 else {
            throw CloudError(
                .storageFailure, "A file of the backups is not what it was a moment ago. Its disk is failing.",
                details: ["file": source])
        }
    }

    private func replace(_ plan: Plan, _ files: [String: Data], at now: Timestamp) throws -> Outcome {
        let name = freeAside(at: now, in: folders)
        // What earlier runs have moved, which did not come to their end, and what this one will.
        let earlier = Set(folders.flatMap { UnfinishedRestore.read(in: $0)?.asides ?? [] }).sorted()
        let mark = UnfinishedRestore(snapshot: plan.snapshot, aside: name, earlier: earlier)
        for folder in folders { try mark.write(in: folder) }
        try fault("marked")
        for service in ServiceName.all {
            let folder = place.folder(of: service)
            let home = try OpenFolder(folder)
            let kept: Set = ["\(service).sqlite.lock", "restore.unfinished", UnfinishedRestore.staging]
            let present = try self.folder.entries(of: folder)
                .filter { !kept.contains($0) && !$0.hasPrefix(UnfinishedRestore.asidePrefix) }
            try move(present, of: home, aside: name)
            try fault("aside \(service)")
            let stage = try home.folder(UnfinishedRestore.staging)
            for entry in try self.folder.entries(of: stage.path) {
                try stage.move(entry, to: home)
                try fault("moved \(service)")
            }
            FileTree.remove(stage.path)
            try home.giveAway("\(service).sqlite.lock")
            try home.sync()
        }
        if !files.isEmpty {
            try writeDeployment(files, aside: name)
        } else if isKept, let moving {
            var roster = try place.files.roster()
            try moving(&roster)
            try place.files.write(roster)
        }
        try fault("written")
        for folder in folders.reversed() { UnfinishedRestore.remove(in: folder) }
        return Outcome(
            connection: try place.files.roster().connectionString().description,
            aside: folders.flatMap { folder in mark.asides.map { folder + "/" + $0 } }
                .filter { access($0, F_OK) == 0 }.sorted())
    }

    private func freeAside(at now: Timestamp, in folders: [String]) -> String {
        let name = UnfinishedRestore.asidePrefix + now.snapshotName
        var (free, count) = (name, 2)
        while folders.contains(where: { access($0 + "/" + free, F_OK) == 0 }) {
            free = name + "-\(count)"
            count += 1
        }
        return free
    }

    private func move(_ entries: [String], of folder: OpenFolder, aside name: String) throws {
        guard !entries.isEmpty else { return }
        let aside = try folder.makeFolder(name)
        for entry in entries { try folder.move(entry, to: aside) }
        try aside.sync()
        try folder.sync()
        try aside.giveAway()
    }

    private func writeDeployment(_ files: [String: Data], aside name: String) throws {
        let directory = place.files.directory
        let present = try folder.entries(of: directory).filter { $0.hasSuffix(".json") }
        try move(present, of: try OpenFolder(directory), aside: name)
        try fault("deployment aside")
        for (name, data) in files.sorted(by: { $0.key < $1.key }) where name != "roster.json" {
            try AtomicFile.write(data, to: directory + "/" + name, mode: 0o600)
        }
        guard var roster = try roster(in: files) else {
            throw CloudError(.storageFailure, "The keys of the snapshot lack the roster. Use another snapshot.")
        }
        try moving?(&roster)
        // Last, since it is what tells that a deployment is complete.
        try place.files.write(roster)
    }

    private func roster(in files: [String: Data]) throws -> Roster? {
        try files["roster.json"].map { try JSONDecoder().decode(Roster.self, from: $0) }
    }
}
