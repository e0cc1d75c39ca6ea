internal import Foundation
internal import NephosContent
internal import NephosCore

/// Finds out who is right where a segment of the deployment is not what was copied of it before.
///
/// The copy has its own hash, and so has what the deployment's file was then. What neither is, is taken record by record
/// from where it is whole (``SegmentMerge``): nothing that one of the two has is lost.
struct SegmentDispute {
    let id: ServiceSegment
    /// The deployment's file.
    let origin: String
    /// The backup's.
    let target: String
    let before: Manifest.Segment
    /// How much of it the snapshot's database names.
    let bytes: Int

    struct Verdict {
        /// Of what the segment is put together; as long as the longest that any snapshot names.
        var pieces: [FileCopy.Piece] = []
        var isOriginDamaged = false
        var isCopyDamaged = false
    }

    /// - Parameter marks: Where its records begin, as far as the database knows.
    /// - Throws: ``CloudError`` `.storageFailure` where both are whole and go on differently; and what `went` throws.
    func settle(marks: [Int], went: (Int) throws -> Void) throws -> Verdict {
        let isCopyWhole = try Verification.damage(of: target, before, went) == nil
        let isOriginWhole = try Verification.damage(of: origin, before, went) == nil
        let paths = [origin, target]
        let lengths = paths.map { FileCopy.byteCount($0) ?? 0 }
        let files = paths.map { try? FileCopy.Opened($0, O_RDONLY) }
        func merged(counting copied: Int) throws -> [SegmentMerge.Run]? {
            var merge = SegmentMerge(of: id.segment, lengths: (lengths[0], copied)) { files[$0]?.bytes(in: $1) }
            return try merge.merged(length: length, marks: marks)
        }
        let length = max(bytes, min(before.bytes, lengths.max() ?? 0))
        // What a backup that came to no end has left behind what a snapshot names, is nobody's where it is another.
        guard
            let runs = try merged(counting: lengths[1]) ?? merged(counting: min(lengths[1], before.bytes))
        else { throw wentApart }
        var verdict = Verdict(isCopyDamaged: !isCopyWhole)
        func pieces(_ range: Range<Int>, _ path: (SegmentMerge.Run) -> String) -> [FileCopy.Piece] {
            runs.compactMap { run in
                let part = run.range.clamped(to: range)
                return part.isEmpty ? nil : FileCopy.Piece(path: path(run), range: part)
            }
        }
        // What has gaps may be had from either by now.
        if before.gaps == nil, isCopyWhole || isOriginWhole {
            verdict.pieces = [FileCopy.Piece(path: isCopyWhole ? target : origin, range: 0..<before.bytes)]
        } else {
            verdict.pieces = pieces(0..<before.bytes) { paths[$0.copy] }
        }
        // What a copy has beyond what a snapshot names, and is not whole, may be the zeros of a backup that came to no end.
        verdict.pieces += pieces(before.bytes..<max(length, before.bytes)) { $0.isWhole ? paths[$0.copy] : origin }
        // One that was brought back may end before what was copied of it, and be whole as far as it goes.
        let isMended = verdict.pieces.contains { $0.path == target && $0.range.lowerBound < bytes }
        verdict.isOriginDamaged = !isOriginWhole && (lengths[0] >= before.bytes || isMended)
        return verdict
    }

    private var wentApart: CloudError {
        CloudError(
            .storageFailure,
            "A segment goes on differently from what was copied of it before, and both are whole: as when an old state of the whole machine came back while it ran. Back up into another folder, and keep this one.",
            details: ["file": origin, "copy": target])
    }
}
