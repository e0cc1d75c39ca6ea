internal import Foundation
public import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Reads snapshots through, and compares all of it with what was written.
public struct Verification {
    /// What was found of a snapshot.
    public struct Finding: Sendable {
        public var snapshot: String
        public var manifest: Manifest?
        /// What is wrong; empty: it is whole.
        public var failures: [CloudError]
        /// Files of segments that have several copies, because the deployment's file was damaged when the snapshot was made:
        /// first what was copied of it then. A restore takes each chunk from a copy that has it whole.
        public var differingCopies: [[String]] = []
    }

    public let folder: BackupFolder

    public init(of folder: BackupFolder) { self.folder = folder }

    /// Looks at one snapshot, or all. What is found is noted, so that thinning does not count on what is damaged.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`, `.constraintViolation` (a backup is under way), and what the observer
    ///   throws. What is damaged is a finding.
    public func run(_ snapshot: String?, _ observer: @escaping BackupObserver) throws -> [Finding] {
        try folder.requireBackups()
        // On a disk that nobody can write to nothing has to be held, and nothing can be noted.
        let lock = folder.isReadOnly ? nil : try folder.lock()
        defer { withExtendedLifetime(lock) {} }
        var chosen = try folder.snapshots()
        if let snapshot {
            chosen = chosen.filter { $0.name == snapshot }
            if chosen.isEmpty {
                throw CloudError(
                    .unknownItem, "There is no such snapshot. See: nephos backup list", details: ["snapshot": snapshot])
            }
        }
        let manifests = chosen.compactMap(\.manifest)
        let wanted = Self.wanted(manifests)
        let total =
            manifests.reduce(0) { $0 + $1.databaseBytes }
            + wanted.values.reduce(0) { $0 + ($1.map(\.bytes).max() ?? 0) }
        let counting = Counting(.verifying, total: total, observer)
        let damaged = try damagedSegments(wanted, counting)
        var findings: [Finding] = []
        for snapshot in chosen {
            var finding = Finding(snapshot: snapshot.name, manifest: snapshot.manifest, failures: [])
            if let failure = snapshot.failure { finding.failures = [failure] }
            if let manifest = snapshot.manifest {
                finding.failures = try failures(of: snapshot.name, manifest, damaged, counting)
                finding.differingCopies = manifest.segments.filter { $0.others != nil }
                    .map { ([$0.file] + $0.otherFiles).compactMap { folder.path(of: $0) } }
            }
            // Where that cannot be noted, the others are looked at all the same.
            if lock != nil {
                do { try folder.note(snapshot.name, isDamaged: !finding.failures.isEmpty) } catch {
                    finding.failures.append(CloudError(wrapping: error))
                }
            }
            findings.append(finding)
        }
        return findings
    }

    /// Of each copy of a segment what manifests name.
    static func wanted(_ manifests: [Manifest]) -> [SegmentCopy: Set<Manifest.Segment>] {
        var wanted: [SegmentCopy: Set<Manifest.Segment>] = [:]
        for segment in manifests.flatMap(\.segments) { wanted[segment.file, default: []].insert(segment) }
        return wanted
    }

    /// Each copy is read once for each length, however many snapshots name it.
    ///
    /// - Returns: Those that are damaged.
    func damagedSegments(
        _ wanted: [SegmentCopy: Set<Manifest.Segment>], _ counting: Counting
    ) throws -> [Manifest.Segment: CloudError] {
        var damaged: [Manifest.Segment: CloudError] = [:]
        for (_, segments) in wanted.sorted(by: { $0.key < $1.key }) {
            var read = 0
            for segment in segments.sorted(by: { ($0.bytes, $0.sha256) < ($1.bytes, $1.sha256) }) {
                damaged[segment] = try damage(
                    of: segment, { try counting.went($0) }, countingFrom: read)
                read = segment.bytes
            }
        }
        return damaged
    }

    private func damage(
        of segment: Manifest.Segment, _ went: (Int) throws -> Void, countingFrom before: Int
    ) throws -> CloudError? {
        guard let path = folder.path(of: segment.file) else {
            return CloudError(.storageFailure, "There is no such segment.")
        }
        guard var failure = try Self.damage(of: path, segment.bytes, segment.sha256, skipping: before, went) else {
            return nil
        }
        failure.message += " The next backup copies it anew, if the deployment has it whole."
        return failure
    }

    /// What is wrong with a file that has to begin with so many bytes of this hash; nil: nothing.
    static func damage(
        of path: String, _ bytes: Int, _ hash: String, skipping: Int = 0, isExact: Bool = false,
        _ went: (Int) throws -> Void
    ) throws -> CloudError? {
        guard let size = FileCopy.byteCount(path) else { return FileCopy.failure(path) }
        guard isExact ? size == bytes : size >= bytes else {
            return CloudError(.storageFailure, "A file of the backups has another length.", details: ["file": path])
        }
        var skipped = 0
        var cancelled = false
        do {
            let found = try FileCopy.hash(path, first: bytes) { count in
                let counted = max(0, count - max(0, skipping - skipped))
                skipped += count
                do { try went(counted) } catch {
                    cancelled = true
                    throw error
                }
            }
            guard found == hash else {
                return CloudError(.storageFailure, "A file of the backups is damaged.", details: ["file": path])
            }
            return nil
        } catch let error as CloudError where !cancelled {
            return error
        }
    }

    /// What is wrong with a snapshot, once its segments are known.
    func failures(
        of name: String, _ manifest: Manifest, _ damaged: [Manifest.Segment: CloudError],
        _ counting: Counting
    ) throws -> [CloudError] {
        var failures: [CloudError] = []
        for database in manifest.databases {
            let path = folder.path(of: name) + "/" + database.file
            if let failure = try Self.damage(
                of: path, database.bytes, database.sha256, isExact: true, { try counting.went($0) })
            {
                failures.append(failure)
                continue
            }
            do { try DatabaseCopy.requireSound(path, isThorough: true) } catch {
                failures.append(CloudError(wrapping: error))
            }
        }
        if let keys = manifest.keys,
            let failure = try Self.damage(
                of: folder.keysPath(of: name), keys.bytes, keys.sha256, isExact: true, { _ in })
        {
            failures.append(failure)
        }
        failures += manifest.segments.compactMap { damaged[$0] }
        if failures.isEmpty, let failure = Self.difference(manifest, folder.path(of: name)) { failures.append(failure) }
        return failures
    }

    /// The manifest has to have what the database of each service that moves content names.
    private static func difference(_ manifest: Manifest, _ folder: String) -> CloudError? {
        let listed = Dictionary(manifest.segments.map { ($0.id, $0.bytes) }) { first, _ in first }
        for service in Deployment.contentServices {
            let database = "\(folder)/\(service).sqlite"
            do {
                let named = try SegmentCopying.named(by: database, of: service)
                guard named.allSatisfy({ listed[$0.id] == $0.bytes }) else {
                    return CloudError(
                        .storageFailure, "The snapshot lacks segments that a service's database names.",
                        details: ["file": database, "service": service.rawValue])
                }
            } catch {
                return CloudError(wrapping: error)
            }
        }
        return nil
    }
}
