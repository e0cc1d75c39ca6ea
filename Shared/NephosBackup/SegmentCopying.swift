internal import Foundation
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Copies what is not there yet of the segments that the databases of a snapshot name.
struct SegmentCopying {
    let place: DeploymentPlace
    let folder: BackupFolder
    /// Of the newest snapshot that names a segment: what was copied of it.
    private let copied: [ServiceSegment: Manifest.Segment]
    /// Named by a snapshot that is known to be damaged: what was copied of them is read before it is counted on.
    private let suspect: Set<ServiceSegment>
    /// Of those, what is damaged indeed.
    private var damaged: Set<ServiceSegment> = []
    private let snapshots: [BackupFolder.Snapshot]
    private let fault: (String) throws -> Void
    private(set) var copiedSegments = 0
    private(set) var copiedBytes = 0
    /// Files of the deployment that are not what was copied of them.
    private(set) var damagedFiles: [String] = []
    /// Copies that were not what they had been, or were not there, and were made anew.
    private(set) var damagedCopies: [String] = []

    /// - Parameter snapshots: Those that there are, in their order.
    init(
        from place: DeploymentPlace, to folder: BackupFolder, known snapshots: [BackupFolder.Snapshot],
        fault: @escaping (String) throws -> Void
    ) {
        self.place = place
        self.folder = folder
        self.fault = fault
        self.snapshots = snapshots
        let known = snapshots.compactMap(\.manifest)
        suspect = Set(snapshots.filter(\.isKnownDamaged).flatMap { $0.manifest?.segments.map(\.id) ?? [] })
        var copied: [ServiceSegment: Manifest.Segment] = [:]
        for manifest in known {
            for segment in manifest.segments where (copied[segment.id]?.bytes ?? 0) <= segment.bytes {
                copied[segment.id] = segment
            }
        }
        self.copied = copied
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
            guard let path = folder.path(of: id), let before = copied[id] else { continue }
            let checking = Counting(.verifying, observer)
            let damage = try Verification.damage(of: path, before) { try checking.went($0) }
            if damage != nil { damaged.insert(id) }
        }
        // A longer copy is written as a whole, beside the shorter one.
        let missing = named.filter { !isCopied($0.id, $0.bytes) }.reduce(0) { $0 + $1.bytes }
        try FileCopy.requireRoom(for: missing, at: folder.path)
        let counting = Counting(.segments, total: 2 * missing, observer)
        var folders: Set<String> = []
        let segments = try named.map { id, bytes in
            if let before = copied[id], before.bytes == bytes, isCopied(id, bytes) { return before }
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
        ((folder.path(of: id) ?? "") as NSString).deletingLastPathComponent
    }

    private func isCopied(_ id: ServiceSegment, _ bytes: Int) -> Bool {
        copied[id]?.bytes == bytes && copied[id]?.gaps == nil && !damaged.contains(id)
            && (folder.path(of: id).flatMap { FileCopy.byteCount($0) } ?? 0) >= bytes
    }

    private mutating func copy(
        _ id: ServiceSegment, _ bytes: Int, namedIn making: String, _ counting: Counting
    ) throws -> Manifest.Segment {
        guard let name = id.segment.filePath, let target = folder.path(of: id) else {
            throw CloudError(.internalError, "There is no such segment.")
        }
        let origin = place.contentFolder(of: id.service) + "/" + name
        try FileCopy.makeFolder(folderPath(of: id))
        let there = FileCopy.byteCount(target) ?? 0
        let before = copied[id]
        // Where the file is lost, what is there and no snapshot names may be the zeros of a backup that came to no end.
        if let before, before.gaps == nil, there >= bytes, before.bytes > bytes || !damaged.contains(id),
            before.bytes >= bytes || FileCopy.byteCount(origin) != nil
        {
            // A longer copy than this database needs, as when it was brought back itself. It stays.
            guard let hash = try FileCopy.hash(target, first: bytes, went: { try counting.went($0) }) else {
                throw FileCopy.failure(target, EIO)
            }
            let isSame =
                try FileCopy.byteCount(origin) == nil
                || Verification.damage(of: origin, bytes, hash) { try counting.went($0) } == nil
            if isSame { return Manifest.Segment(id, bytes: bytes, sha256: hash) }
            return try settle(id, bytes, origin, target, before, namedIn: making, counting)
        }
        if FileCopy.byteCount(origin) ?? 0 < bytes { try requireNamed(id, origin) }
        if let before, before.gaps != nil {
            return try settle(id, bytes, origin, target, before, namedIn: making, counting)
        }
        do {
            // In the place of a damaged copy comes what it was, and nothing else.
            let segment = try write(
                id, bytes, to: target, [FileCopy.Piece(path: origin, range: 0..<bytes)], from: origin,
                expecting: before?.bytes == bytes ? before?.sha256 : nil,
                midway: before.flatMap { $0.bytes < bytes ? (bytes: $0.bytes, sha256: $0.sha256) : nil }
            ) {
                try counting.went($0)
            }
            if let before, damaged.contains(id) || there < before.bytes { damagedCopies.append(target) }
            return segment
        } catch let error as CloudError where error.details["midway"] != nil {
            guard let before else { throw error }
            return try settle(id, bytes, origin, target, before, namedIn: making, counting)
        }
    }

    /// Writes a copy beside its place, reads it back, and puts it there. What cannot be read is a gap.
    ///
    /// - Parameters:
    ///   - bytes: What is named of it; the pieces may have more.
    ///   - origin: Is named as damaged where anything is a gap.
    ///   - known: Gaps that the pieces have already.
    ///   - expected: The hash that all of it has to have; nil: any.
    ///   - midway: A length, and the hash that the bytes up to there have to have.
    /// - Throws: ``CloudError`` `.storageFailure`, with the detail `midway` when it has another hash.
    private mutating func write(
        _ id: ServiceSegment, _ bytes: Int, to target: String, _ pieces: [FileCopy.Piece], from origin: String,
        knowing known: [Range<Int>] = [], expecting expected: String? = nil,
        midway: (bytes: Int, sha256: String)? = nil, went: @escaping (Int) throws -> Void
    ) throws -> Manifest.Segment {
        let part = target + BackupFolder.unfinished
        let length = pieces.last?.range.upperBound ?? 0
        defer { unlink(part) }
        var salvage = Salvage(
            to: try FileCopy.Opened(part, O_WRONLY | O_CREAT | O_TRUNC), midway: midway, went: went)
        let hash = try salvage.run(pieces)
        if let expected, hash != expected { throw FileCopy.differs(target, at: bytes) }
        let gaps = Self.merged(known + salvage.gaps, below: bytes)
        guard try FileCopy.hash(part, first: length, went: went) == hash,
            let named = length == bytes && gaps.isEmpty
                ? hash : try FileCopy.hash(part, first: bytes, gaps: gaps, went: { _ in })
        else {
            throw CloudError(
                .storageFailure,
                "What was written does not read as it was written. The disk of the backups is failing.",
                details: ["file": target])
        }
        try FileCopy.rename(part, to: target)
        if !gaps.isEmpty { noteDamaged(origin) }
        copiedSegments += 1
        copiedBytes += length
        return Manifest.Segment(id, bytes: bytes, sha256: named, gaps: gaps)
    }

    private mutating func noteDamaged(_ origin: String) {
        if damagedFiles.last != origin { damagedFiles.append(origin) }
    }

    /// Gaps in order, those that meet as one.
    private static func merged(_ gaps: [Range<Int>], below bytes: Int) -> [Range<Int>] {
        let within = gaps.map { $0.clamped(to: 0..<bytes) }.filter { !$0.isEmpty }
        return within.sorted { $0.lowerBound < $1.lowerBound }.reduce(into: []) { merged, gap in
            guard let last = merged.last, gap.lowerBound <= last.upperBound else { return merged.append(gap) }
            merged[merged.count - 1] = last.lowerBound..<max(last.upperBound, gap.upperBound)
        }
    }

    /// Of a file of the deployment that is not what was copied of it: takes what is whole in either.
    private mutating func settle(
        _ id: ServiceSegment, _ bytes: Int, _ origin: String, _ target: String, _ before: Manifest.Segment,
        namedIn making: String, _ counting: Counting
    ) throws -> Manifest.Segment {
        let marks = try DatabaseCopy.integers(
            """
            SELECT segment_offset FROM content_chunks
            WHERE partition_number = \(id.segment.partition) AND segment_number = \(id.segment.number) ORDER BY 1
            """, of: "\(making)/\(id.service).sqlite"
        ).map { Int(clamping: $0[0]) }
        let dispute = SegmentDispute(id: id, origin: origin, target: target, before: before, bytes: bytes)
        // How much is read once more was not known before.
        let verdict = try dispute.settle(marks: marks) { _ in try counting.went(0) }
        if verdict.isOriginDamaged { noteDamaged(origin) }
        if verdict.isCopyDamaged { damagedCopies.append(target) }
        let length = verdict.pieces.last?.range.upperBound ?? 0
        // Of what comes from the copy its gaps come too.
        let known = verdict.pieces.filter { $0.path == target }.flatMap { piece in
            (before.gaps ?? []).map { $0.clamped(to: piece.range) }
        }
        let gaps = Self.merged(known, below: bytes)
        if verdict.pieces.allSatisfy({ $0.path == target }), length >= bytes,
            FileCopy.byteCount(target) ?? 0 >= bytes,
            let hash = try FileCopy.hash(target, first: bytes, gaps: gaps, went: { _ in try counting.went(0) })
        {
            if !gaps.isEmpty { noteDamaged(origin) }
            return Manifest.Segment(id, bytes: bytes, sha256: hash, gaps: gaps)
        }
        let segment = try write(id, bytes, to: target, verdict.pieces, from: origin, knowing: known) { _ in
            try counting.went(0)
        }
        if verdict.isCopyDamaged { try noteDamage(of: id, target, counting) }
        return segment
    }

    /// What nobody had whole any more is damaged in the snapshots before, and thinning does not count on those.
    private func noteDamage(of id: ServiceSegment, _ target: String, _ counting: Counting) throws {
        for snapshot in snapshots {
            for segment in snapshot.manifest?.segments ?? [] where segment.id == id {
                let damage = try Verification.damage(of: target, segment) { _ in try counting.went(0) }
                if damage != nil { try folder.note(snapshot.name, isDamaged: true) }
            }
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
