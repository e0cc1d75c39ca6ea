import Foundation
import NephosCore

/// The disk that a home lies on, as full as it is now.
struct LocalDisk {
    /// Bytes of the disk that copies leave free, for the database that lies there too: at most so many, and this part
    /// of a smaller disk.
    private static let reserveBytesMax: UInt64 = 1 << 30
    private static let reservePart: UInt64 = 20
    /// Of the reserve, what the database itself leaves when it reads a large scope.
    private static let databasePart: UInt64 = 4

    /// Bytes that it has left.
    let free: UInt64
    /// Those of them that no copy may take.
    let reserve: UInt64

    /// - Parameter path: A file or folder of the home. Nil is returned where nobody knows.
    init?(at path: String) {
        var disk = statvfs()
        guard statvfs(path, &disk) == 0 else { return nil }
        free = UInt64(disk.f_bavail).multipliedReportingOverflow(by: UInt64(disk.f_frsize)).partialValue
        let total = UInt64(disk.f_blocks).multipliedReportingOverflow(by: UInt64(disk.f_frsize)).partialValue
        reserve = min(Self.reserveBytesMax, total / Self.reservePart)
    }

    /// - Throws: ``CloudError`` `.storageFailure`: with so many bytes of copies more it would be as good as full.
    func requireRoom(forCopies bytes: Int) throws(CloudError) { try require(bytes, beside: reserve) }

    /// - Throws: ``CloudError`` `.storageFailure`: the same of what the database is about to take in.
    func requireRoom(forDatabase bytes: Int) throws(CloudError) {
        try require(bytes, beside: reserve / Self.databasePart)
    }

    /// - Throws: ``CloudError`` `.storageFailure`: the same where this is the disk of ``temporaryFolder``.
    func requireRoom(forStage bytes: Int) throws(CloudError) {
        try require(bytes, beside: reserve / Self.databasePart, or: LocalFailure.noTemporaryRoom)
    }

    /// Where SQLite puts what it keeps apart from the database, as it finds that out; nil: nowhere.
    static var temporaryFolder: String? {
        let environment = ProcessInfo.processInfo.environment
        let named = ["SQLITE_TMPDIR", "TMPDIR"].compactMap { environment[$0] }
        return (named + ["/var/tmp", "/usr/tmp", "/tmp", "."]).first { folder in
            var isFolder: ObjCBool = false
            return FileManager.default.fileExists(atPath: folder, isDirectory: &isFolder) && isFolder.boolValue
                && access(folder, W_OK | X_OK) == 0
        }
    }

    private func require(
        _ bytes: Int, beside reserve: UInt64, or message: String = LocalFailure.noRoom
    ) throws(CloudError) {
        let needed = UInt64(clamping: bytes).addingReportingOverflow(reserve).partialValue
        guard free >= needed else {
            throw CloudError(
                .storageFailure, message,
                details: ["bytes": "\(bytes)", "free_bytes": "\(free)", "reserve_bytes": "\(reserve)"])
        }
    }
}
