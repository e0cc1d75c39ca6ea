internal import Crypto
internal import Foundation
public import NephosContent
public import NephosCore
internal import NephosServiceKit

/// Names a segment within a deployment: two services may have one of the same partition and number.
public struct ServiceSegment: Hashable, Sendable, Comparable {
    public var service: ServiceName
    public var segment: SegmentID

    public init(_ service: ServiceName, _ segment: SegmentID) {
        self.service = service
        self.segment = segment
    }

    /// Within a folder of backups: `SERVICE/PARTITION/NUMBER.segment`. Nil: no service of a deployment has such a segment.
    var filePath: String? {
        Deployment.contentServices.contains(service) ? segment.filePath.map { "\(service)/\($0)" } : nil
    }

    public static func < (one: ServiceSegment, other: ServiceSegment) -> Bool {
        (one.service.rawValue, one.segment.partition, one.segment.number)
            < (other.service.rawValue, other.segment.partition, other.segment.number)
    }
}

/// One of the copies of a segment: the first one, or one that differs from those before it.
struct SegmentCopy: Hashable, Comparable {
    var segment: ServiceSegment
    /// 1 is the first.
    var number: Int

    init(_ segment: ServiceSegment, _ number: Int) {
        self.segment = segment
        self.number = number
    }

    /// The copy whose file is at this place among a service's: `PARTITION/NUMBER.segment`, or with a further copy's number
    /// behind it. Nil: it is none of ours.
    init?(_ service: ServiceName, filePath: String) {
        let parts = filePath.split(separator: ".", omittingEmptySubsequences: false)
        let number = parts.count == 3 ? Int(parts[2]) : 1
        guard let number, let id = SegmentID(filePath: parts.prefix(2).joined(separator: ".")) else { return nil }
        self.init(ServiceSegment(service, id), number)
        guard self.filePath == "\(service)/\(filePath)" else { return nil }
    }

    /// Within a folder of backups.
    var filePath: String? { segment.filePath.map { number == 1 ? $0 : "\($0).\(number)" } }

    static func < (one: SegmentCopy, other: SegmentCopy) -> Bool {
        (one.segment, one.number) < (other.segment, other.number)
    }
}

/// What a snapshot consists of. Its file is written last, so that a snapshot without it is none.
public struct Manifest: Codable, Hashable, Sendable {
    /// Of a database's copy.
    public struct Database: Codable, Hashable, Sendable {
        public var service: String
        public var bytes: Int
        /// SHA-256, in hex.
        public var sha256: String

        /// Within the snapshot's folder.
        public var file: String { service + ".sqlite" }
    }

    /// The first bytes of a segment's copy. Nothing that a database names is ever changed in its segment, so that a
    /// longer copy begins with a shorter one. A file that does not begin like a copy of it has another copy, beside that.
    public struct Segment: Codable, Hashable, Sendable {
        public var service: String
        public var partition: Int
        public var number: Int64
        /// The number of the copy.
        public var copy: Int
        public var bytes: Int
        /// SHA-256, in hex.
        public var sha256: String
        /// Whether some of it could not be read when it was copied, and is zeros. Nil: no.
        public var isPartial: Bool?
        /// Further copies, where chunks are damaged in this one: they may have them whole. Nil: none.
        public var others: [Int]?

        public var id: ServiceSegment {
            ServiceSegment(ServiceName(service), SegmentID(partition: partition, number: number))
        }

        init(_ copy: SegmentCopy, bytes: Int, sha256: String) {
            let id = copy.segment
            (service, partition, number) = (id.service.rawValue, id.segment.partition, id.segment.number)
            (self.copy, self.bytes, self.sha256) = (copy.number, bytes, sha256)
        }

        var file: SegmentCopy { SegmentCopy(id, copy) }
        var otherFiles: [SegmentCopy] { (others ?? []).map { SegmentCopy(id, $0) } }

        /// Whether the copies are such as a backup makes.
        fileprivate var arePossible: Bool {
            let all = [copy] + (others ?? [])
            return Set(all).count == all.count && all.allSatisfy { (1...Manifest.copiesMax).contains($0) }
        }
    }

    /// The deployment's secrets, sealed.
    public struct Keys: Codable, Hashable, Sendable {
        /// ``PublicRecoveryKey/id`` of the key that they are sealed to.
        public var recoveryKey: String
        public var bytes: Int
        public var sha256: String
    }

    /// What this release writes. Another one is refused, not guessed at.
    public static let format = 3

    /// Copies of one segment, at most.
    static let copiesMax = 1 << 20

    public var format = Manifest.format
    /// Milliseconds since 1970, when the first database was copied.
    public var createdAt: UInt64
    /// One more than that of the snapshot before: the order in which they were made, whatever clocks have said.
    public var number: Int
    public var deployment: String
    public var databases: [Database]
    public var segments: [Segment]
    /// The start of the SHA-256 of each master key that a service had, by service: what can open its database.
    public var masterKeys: [String: [String]]
    /// Nil: they were left out.
    public var keys: Keys?
    /// SHA-256 of all of the above; see ``encoded()``.
    public private(set) var checksum = ""

    init(
        createdAt: Timestamp, number: Int, deployment: String, databases: [Database], segments: [Segment],
        masterKeys: [String: [String]]
    ) {
        self.createdAt = createdAt.milliseconds
        self.number = number
        self.deployment = deployment
        self.databases = databases
        self.segments = segments
        self.masterKeys = masterKeys
    }

    public var time: Timestamp { Timestamp(milliseconds: createdAt) }
    public var databaseBytes: Int { databases.reduce(0) { $0 + $1.bytes } }
    public var segmentBytes: Int { segments.reduce(0) { $0 + $1.bytes } }

    func segmentBytes(of service: ServiceName) -> Int {
        segments.reduce(0) { $1.service == service.rawValue ? $0 + $1.bytes : $0 }
    }

    /// The file's bytes, with the checksum.
    func encoded() throws -> Data {
        var summed = self
        summed.checksum = try sum()
        return try Self.encode(summed)
    }

    private static func encode(_ manifest: Manifest) throws -> Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return try encoder.encode(manifest)
    }

    private func sum() throws -> String {
        var plain = self
        plain.checksum = ""
        return hex(SHA256.hash(data: try Self.encode(plain)))
    }

    /// What is sealed with the keys, so that nobody without them makes another snapshot of this one.
    func digest() throws -> String {
        var open = self
        open.keys = nil
        return try open.sum()
    }

    private struct Format: Decodable { var format: Int }

    /// What a manifest's file may have: 256 MiB, the names of some two million segments.
    static let fileBytesMax = 256 << 20
    /// What a snapshot's files may have together: 256 TiB. So no sum over snapshots is too large for a number. Greater
    /// too than any snapshot's number and time in milliseconds.
    static let bytesMax = 1 << 48

    /// Whether a backup can have made it. The checksum has no key: whoever can write to the folder can have written
    /// anything here.
    private var isPossible: Bool {
        guard (1...Self.bytesMax).contains(number), createdAt <= UInt64(Self.bytesMax),
            databases.map(\.service).sorted() == ServiceName.all.map(\.rawValue).sorted(),
            segments.allSatisfy({ $0.id.filePath != nil && $0.arePossible }),
            Set(segments.map(\.id)).count == segments.count
        else { return false }
        var sum = 0
        for bytes in databases.map(\.bytes) + segments.map(\.bytes) + [keys?.bytes ?? 0] {
            guard (0...Self.bytesMax - sum).contains(bytes) else { return false }
            sum += bytes
        }
        return true
    }

    /// - Parameter file: Named in errors.
    /// - Throws: ``CloudError`` `.storageFailure`: it is damaged. `.incompatibleVersion`: another release wrote it.
    init(decoding data: Data, of file: String) throws(CloudError) {
        if let format = try? JSONDecoder().decode(Format.self, from: data), format.format != Self.format {
            throw CloudError(
                .incompatibleVersion,
                format.format > Self.format
                    ? "A newer release of Nephos has made this snapshot. Use that release, or a newer one."
                    : "An older release of Nephos has made this snapshot, in a form that is not read any more. Restore it with that release.",
                details: ["file": file, "format": "\(format.format)", "known": "\(Self.format)"])
        }
        guard let manifest = try? JSONDecoder().decode(Manifest.self, from: data),
            let sum = try? manifest.sum(), sum == manifest.checksum, manifest.isPossible
        else {
            throw CloudError(
                .storageFailure, "The manifest of a snapshot is damaged. Use another snapshot: nephos backup list",
                details: ["file": file])
        }
        self = manifest
    }
}

func hex(_ bytes: some Sequence<UInt8>) -> String {
    bytes.map { byte in
        let digits = String(byte, radix: 16)
        return digits.utf8.count < 2 ? "0" + digits : digits
    }.joined()
}
