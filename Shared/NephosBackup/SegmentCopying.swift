internal import Foundation
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Copies what is not there yet of the segments that the databases of a snapshot name.
///
/// A file of the deployment that begins like a copy of it takes that copy's place. One that does not gets a copy of its own:
/// nobody can know then which of the two is damaged, and both are kept.
struct SegmentCopying {
    let place: DeploymentPlace
    let folder: BackupFolder
    /// What the newest snapshot that names a segment has of it.
    private var last: [ServiceSegment: Manifest.Segment] = [:]
    /// The longest that any snapshot has of each copy.
    private var known: [ServiceSegment: [Int: Manifest.Segment]] = [:]
    /// The copies of a segment that snapshots name.
    private var numbers: [ServiceSegment: Set<Int>] = [:]
    /// Named by a snapshot that is known to be damaged: their last copy is read before it is counted on.
    private let suspect: Set<ServiceSegment>
    /// Of those, what is damaged indeed.
    private var damaged: Set<ServiceSegment> = []
    private let fault: (String) throws -> Void
    private(set) var copiedSegments = 0
    private(set) var copiedBytes = 0
    /// Files of the deployment that could not be read whole, or lack chunks that they had when they were copied before.
    private(set) var damagedFiles: [String] = []
    /// Copies that were not what they had been, or were not there, and were made again just as they were.
    private(set) var damagedCopies: [String] = []

    /// - Parameter snapshots: Those that there are, in their order.
    init(
        from place: DeploymentPlace, to folder: BackupFolder, known snapshots: [BackupFolder.Snapshot],
        fault: @escaping (String) throws -> Void
    ) {
        self.place = place
        self.folder = folder
        self.fault = fault
        suspect = Set(snapshots.filter(\.isKnownDamaged).flatMap { $0.manifest?.segments.map(\.id) ?? [] })
        for segment in snapshots.compactMap(\.manifest).flatMap(\.segments) {
            last[segment.id] = segment
            numbers[segment.id, default: []].formUnion([segment.copy] + (segment.others ?? []))
            if known[segment.id]?[segment.copy].map({ $0.bytes < segment.bytes }) ?? true {
                known[segment.id, default: [:]][segment.copy] = segment
            }
        }
    }

    /// What the copy of a service's database names: each segment, and how much of it.
    static func named(by database: String, of service: ServiceName) throws -> [(id: ServiceSegment, bytes: Int)] {
        try DatabaseCopy.integers(
            "SELECT partition_number, segment_number, length FROM content_segments ORDER BY 1, 2", of: database
        ).map { row in
            let id = SegmentID(partition: Int(clamping: row[0]), number: row[1])
            guard id.filePath != nil, row[2] >= 0 else {
                throw CloudError(
                    .storageFailure, "A row of a service's database is damaged: it names no segment.",
                    details: ["file": database, "service": service.rawValue])
            }
            return (ServiceSegment(service, id), Int(clamping: row[2]))
        }
    }

    /// - Parameter making: The snapshot's folder, which has the databases' copies.
    mutating func run(namedIn making: String, _ observer: @escaping BackupObserver) throws -> [Manifest.Segment] {
        // Of all services before anything is copied: there is room for all of it, or nothing is begun.
        let named = try Deployment.contentServices.flatMap { service in
            let named = try Self.named(by: "\(making)/\(service).sqlite", of: service)
            try requireMounted(service, having: named.map(\.id.segment))
            return named
        }
        for id in named.map(\.id) where suspect.contains(id) {
            guard let before = last[id], let path = folder.path(of: before.file) else { continue }
            let checking = Counting(.verifying, observer)
            let damage = try Verification.damage(of: path, before.bytes, before.sha256) { try checking.went($0) }
            if damage != nil { damaged.insert(id) }
        }
        // A longer copy is written as a whole, beside the shorter one.
        let missing = named.filter { !isCopied($0.id, $0.bytes) }.reduce(0) { $0 + $1.bytes }
        try FileCopy.requireRoom(for: missing, at: folder.path)
        let counting = Counting(.segments, total: 2 * missing, observer)
        var folders: Set<String> = []
        let segments = try named.map { id, bytes in
            if let before = last[id], isCopied(id, bytes) { return before }
            folders.formUnion([folderPath(of: id), folder.segmentsPath(of: id.service)])
            let segment = try copy(id, bytes, namedIn: making, counting)
            try fault("segment")
            return segment
        }
        for folder in folders { try FileCopy.sync(folder) }
        return segments
    }

    /// The folder of its partition.
    private func folderPath(of id: ServiceSegment) -> String {
        ((folder.path(of: SegmentCopy(id, 1)) ?? "") as NSString).deletingLastPathComponent
    }

    private func isCopied(_ id: ServiceSegment, _ bytes: Int) -> Bool {
        guard let before = last[id] else { return false }
        return before.bytes == bytes && before.isPartial == nil && !damaged.contains(id)
            && byteCount(of: before.file) >= bytes
    }

    private func byteCount(of copy: SegmentCopy) -> Int {
        folder.path(of: copy).flatMap { FileCopy.byteCount($0) } ?? 0
    }

    private mutating func copy(
        _ id: ServiceSegment, _ bytes: Int, namedIn making: String, _ counting: Counting
    ) throws -> Manifest.Segment {
        guard let name = id.segment.filePath, let part = folder.path(of: SegmentCopy(id, 1)).map(Self.partPath) else {
            throw CloudError(.internalError, "There is no such segment.")
        }
        let origin = place.contentFolder(of: id.service) + "/" + name
        try FileCopy.makeFolder(folderPath(of: id))
        if FileCopy.byteCount(origin) ?? 0 < bytes { try requireNamed(id, origin) }
        defer { unlink(part) }
        let written = try write(bytes, of: origin, to: part, stops: Set(known[id, default: [:]].values.map(\.bytes))) {
            try counting.went($0)
        }
        let found = try likeness(of: written, id, bytes, counting)
        let copy = SegmentCopy(id, found?.copy ?? (numbers[id]?.max() ?? 0) + 1)
        guard let target = folder.path(of: copy) else { throw CloudError(.internalError, "There is no such segment.") }
        let isGone = found.map { byteCount(of: copy) < $0.bytes || damaged.contains(id) && copy == last[id]?.file }
        if found.map({ $0.bytes < bytes || $0.bytes == bytes && isGone == true }) ?? true {
            try FileCopy.rename(part, to: target)
            copiedSegments += 1
            copiedBytes += bytes
            if isGone == true { damagedCopies.append(target) }
        }
        var segment = Manifest.Segment(copy, bytes: bytes, sha256: written.hash)
        segment.isPartial = written.isPartial ? true : nil
        let others = numbers[id, default: []].filter { $0 != copy.number && byteCount(of: SegmentCopy(id, $0)) > 0 }
        var isWhole = !written.isPartial
        // What is new, and what is as it was before, is compared with nothing.
        if found == nil && last[id] != nil || !others.isEmpty,
            try !SegmentChunks(of: id, namedBy: "\(making)/\(id.service).sqlite").areWhole(in: target)
        {
            segment.others = others.isEmpty ? nil : others.sorted()
            isWhole = false
        }
        if !isWhole { damagedFiles.append(origin) }
        return segment
    }

    /// What was written of a file.
    private struct Written {
        /// SHA-256 of all of it, and of it up to each stop.
        var hash: String
        var hashes: [Int: String]
        /// Whether some of it could not be read, and is zeros.
        var isPartial: Bool
    }

    private static func partPath(_ target: String) -> String { target + BackupFolder.unfinished }

    /// Writes what can be read of the first bytes of a file, and reads it back.
    private func write(
        _ bytes: Int, of origin: String, to part: String, stops: Set<Int>, went: @escaping (Int) throws -> Void
    ) throws -> Written {
        var salvage = Salvage(to: try FileCopy.Opened(part, O_WRONLY | O_CREAT | O_TRUNC), went: went)
        let hashes = try salvage.run(origin, 0..<bytes, stops: stops)
        guard let hash = hashes[bytes], try FileCopy.hash(part, first: bytes, went: went) == hash else {
            throw CloudError(
                .storageFailure,
                "What was written does not read as it was written. The disk of the backups is failing.",
                details: ["file": part])
        }
        return Written(hash: hash, hashes: hashes, isPartial: salvage.missingBytes > 0)
    }

    /// The copy that the file begins like, the last one rather than others; nil: it differs from all.
    ///
    /// What could not be read whole takes the place of no copy that could.
    private func likeness(
        of written: Written, _ id: ServiceSegment, _ bytes: Int, _ counting: Counting
    ) throws -> Manifest.Segment? {
        let copies = known[id, default: [:]].values.filter { !written.isPartial || $0.isPartial == true }
        return try copies.sorted { $0.copy > $1.copy }.first { copy in
            guard copy.bytes > bytes else { return written.hashes[copy.bytes] == copy.sha256 }
            // It has more than this database names, as when that was brought back itself.
            guard let path = folder.path(of: copy.file) else { return false }
            return try Verification.damage(of: path, bytes, written.hash) { _ in try counting.went(0) } == nil
        }
    }

    /// A folder whose disk is not mounted looks as if all were lost: a snapshot of zeros would look like one. By the rule
    /// by which its service asks no device for anything then.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`.
    private func requireMounted(_ service: ServiceName, having segments: [SegmentID]) throws {
        let content = place.contentFolder(of: service)
        let there = segments.count { segment in
            segment.filePath.map { access(content + "/" + $0, F_OK) == 0 } ?? false
        }
        guard 2 * there >= segments.count || access(content + "/" + SegmentStore.acceptedLoss, F_OK) == 0 else {
            throw CloudError(
                .storageFailure,
                "Most files of content that the database of \(service) names are not in their folder; nothing was copied. Its disk is not mounted: mount it, and run it again. If they are lost for good, make an empty file \(SegmentStore.acceptedLoss) in the folder, and what is there is copied.",
                details: ["folder": content, "there": String(there), "named": String(segments.count)])
        }
    }

    /// What is not there any more is lost, and a gap, if its service still counts on it.
    ///
    /// Its file stays for a day after the last row that names it is gone, unless the disk has little room.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`: the service has let it go since its database was copied.
    private func requireNamed(_ id: ServiceSegment, _ origin: String) throws {
        let query = """
            SELECT 1 FROM content_segments
            WHERE partition_number = \(id.segment.partition) AND segment_number = \(id.segment.number)
            """
        guard try !DatabaseCopy.integers(query, ofLive: place.database(of: id.service)).isEmpty else {
            throw CloudError(
                .storageFailure,
                "A segment that the snapshot names is gone, or shorter. Either the backup took longer than a day, or the disk of the content has little room and gave it up early: run it again.",
                details: ["file": origin])
        }
    }
}
