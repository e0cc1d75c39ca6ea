import Foundation
import NephosCore
import NephosFiles

/// What the system says of a file, so that one that was put is not read again to learn that nothing was written to it.
///
/// The time of the last change of any kind is part of it: no program can set that back, whatever it does to the time of
/// the last writing. (As restic and git compare; rsync looks at size and time of writing alone.)
struct FileStamp: Hashable, Sendable {
    /// For so long after a change a second one may leave the same times.
    private static let grain: Int64 = 2_000_000_000

    let device: Int64
    let number: Int64
    let size: Int64
    /// In nanoseconds since 1970; a date outside of the years 1677 to 2262 is the nearest end of them.
    let modified: Int64
    let changed: Int64

    init(_ status: stat) {
        device = Int64(truncatingIfNeeded: status.st_dev)
        number = Int64(truncatingIfNeeded: status.st_ino)
        size = Int64(status.st_size)
        modified = Self.nanoseconds(status.st_mtim)
        changed = Self.nanoseconds(status.st_ctim)
    }

    /// - Returns: Nil: the row keeps no stamp of this release.
    init?(data: Data) {
        guard data.count == 5 * MemoryLayout<Int64>.size else { return nil }
        let fields = data.withUnsafeBytes { bytes in
            (0..<5).map { Int64(littleEndian: bytes.loadUnaligned(fromByteOffset: $0 * 8, as: Int64.self)) }
        }
        (device, number, size, modified, changed) = (fields[0], fields[1], fields[2], fields[3], fields[4])
    }

    /// By the clock that files' times are of.
    static var now: Int64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return nanoseconds(time)
    }

    private static func nanoseconds(_ time: timespec) -> Int64 {
        let (seconds, isOutside) = Int64(time.tv_sec).multipliedReportingOverflow(by: 1_000_000_000)
        let (sum, isBeyond) = seconds.addingReportingOverflow(Int64(time.tv_nsec))
        return isOutside || isBeyond ? (time.tv_sec < 0 ? .min : .max) : sum
    }

    /// Whether a file that was read then, and has this stamp later, has the bytes that were read.
    ///
    /// - Parameter time: When its reading began, in nanoseconds since 1970.
    func isSettled(at time: Int64) -> Bool { max(modified, changed) < time - Self.grain }

    /// Whether a file that this process has just written, and nobody else knew of before, has these bytes for as long as
    /// it has this stamp.
    ///
    /// The file got the time of its content, which is older. So whoever writes to the file gives it another time of
    /// writing, however soon that is. Only the time of the last change of any kind is as new as the file.
    ///
    /// - Parameter time: When the file took its place, in nanoseconds since 1970.
    func isSettledAsWritten(at time: Int64) -> Bool { modified < time - Self.grain }

    /// As a row keeps it.
    var data: Data {
        withUnsafeTemporaryAllocation(of: Int64.self, capacity: 5) { fields in
            for (index, field) in [device, number, size, modified, changed].enumerated() {
                fields.initializeElement(at: index, to: field.littleEndian)
            }
            return Data(UnsafeRawBufferPointer(fields))
        }
    }
}

/// Which file or folder of this machine it is, whatever is written to it. One that takes its place is another.
struct FileIdentity: Hashable, Sendable {
    /// 0 where the file system says when the file was made: some devices have another number after each start.
    let device: Int64
    let number: Int64
    /// In nanoseconds since 1970: a file system may give the number of a removed file to the next one. 0: unknown.
    let born: Int64

    /// - Returns: Nil: it is not there, or cannot be looked at.
    init?(_ file: LocalPath) {
        guard let status = (try? file.status()) ?? nil else { return nil }
        let stamp = FileStamp(status)
        born = file.withCString { FileTree.birth(of: $0) }
        (device, number) = (born == 0 ? stamp.device : 0, stamp.number)
    }

    /// - Returns: Nil: the row keeps no identity.
    init?(data: Data) {
        guard data.count == 3 * MemoryLayout<Int64>.size else { return nil }
        let fields = data.withUnsafeBytes { bytes in
            (0..<3).map { Int64(littleEndian: bytes.loadUnaligned(fromByteOffset: $0 * 8, as: Int64.self)) }
        }
        (device, number, born) = (fields[0], fields[1], fields[2])
    }

    /// As a row keeps it.
    var data: Data {
        [device, number, born].reduce(into: Data()) { data, field in
            withUnsafeBytes(of: field.littleEndian) { data.append(contentsOf: $0) }
        }
    }
}

extension timespec {
    /// The date as the system takes it: whole seconds since 1970, rounded down, and the nanoseconds above them.
    init(_ date: DocumentDate) {
        let (seconds, rest) = date.nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
        self =
            rest < 0
            ? timespec(tv_sec: Int(seconds) - 1, tv_nsec: Int(rest) + 1_000_000_000)
            : timespec(tv_sec: Int(seconds), tv_nsec: Int(rest))
    }
}
