import Foundation
import GRDB
import NephosCore
import SwiftProtobuf

/// Why a device's database cannot be used, as a person can cure it.
///
/// SQLite's own codes tell what it was about to do rather than what is wrong, so the disk is asked too.
enum LocalFailure {
    static let full = "The disk of the device's home is full. Make room."
    static let noRoom = "The disk of the device's home has no room for what is to be kept there. Make room."
    static let noTemporaryRoom =
        "The disk of the folder for temporary files has no room for what is read from the server. Make room there, or name another folder by SQLITE_TMPDIR."
    static let readOnly = "The disk of the device's home is mounted read-only."
    static let notPermitted = "This user may not use a file of the device's home. Run this as its owner."
    static let damaged =
        "The device's database is damaged. Move the home away and sign in again: what the server has comes back, and changes that were never sent are lost."
    static let busy = "Another process holds the device's database and does not let go. End it."
    static let unusable = "The device's database could not be used."

    static let contentUnreadable = "A content that waits in the device's home cannot be read. Look after its disk."
    static let contentFolderAway =
        "The folder of the device's home with contents (content) is not there, and what was never sent may be nowhere else. Bring it back. Only if it is lost: remove the file content.made beside it, and it is made anew."
    static let secretUnwritable = "The device's secret file cannot be written."
    static let unlockable = "The lock file of the device's home cannot be used, so its sign-in cannot be renewed."
    static let locked =
        "Another process holds the lock of this device's sign-in (refresh.lock in its home) and does not let go. End it."

    /// Whether the error is of this device's home, and not of the server's disk.
    static func isHere(_ error: CloudError) -> Bool { lasts(error) || error.message == locked }

    /// Whether it stays so until somebody does something about the home.
    static func lasts(_ error: CloudError) -> Bool {
        [
            full, noRoom, noTemporaryRoom, readOnly, notPermitted, damaged, busy, unusable, contentUnreadable,
            contentFolderAway,
            secretUnwritable, unlockable,
        ].contains(error.message)
    }

    /// Why a file of the home cannot be written, by the system's number; nil: for none of the usual reasons.
    static func error(ofNumber number: Int32, at path: String) -> CloudError? {
        switch number {
        case ENOSPC, EDQUOT: CloudError(.storageFailure, full, details: ["path": path])
        case EROFS: CloudError(.storageFailure, readOnly, details: ["path": path])
        case EACCES, EPERM: CloudError(.permissionFailure, notPermitted, details: ["path": path])
        default: nil
        }
    }

    /// What a row has cannot be read.
    ///
    /// - Parameter details: Which it is, as a person may know it.
    static func damagedRow(_ details: [String: String] = [:]) -> CloudError {
        CloudError(.storageFailure, damaged, details: details)
    }

    /// - Parameter path: Where the database is; nil: in memory.
    static func error(of error: any Error, at path: String?) -> CloudError {
        // Rows have messages; what comes from the server is read before a transaction, or with errors of its own.
        let isOfRow = error is BinaryDecodingError || error is SwiftProtobufError
        if var error = isOfRow ? damagedRow() : error as? CloudError {
            if error.message == damaged, error.details["path"] == nil { error.details["path"] = path }
            return error
        }
        if let error = error as? POSIXError {
            return Self.error(ofNumber: error.code.rawValue, at: path ?? "")
                ?? CloudError(.storageFailure, unusable, details: ["path": path ?? ""])
        }
        guard let error = error as? DatabaseError else { return CloudError(wrapping: error) }
        var details = ["sqlite": "\(error.extendedResultCode.rawValue)"]
        details["path"] = path
        switch error.resultCode {
        case .SQLITE_CORRUPT, .SQLITE_NOTADB: return CloudError(.storageFailure, damaged, details: details)
        case .SQLITE_BUSY, .SQLITE_LOCKED: return CloudError(.storageFailure, busy, details: details)
        case .SQLITE_FULL:
            // What is staged lies elsewhere, and SQLite does not say which disk it is.
            guard let path, let folder = LocalDisk.temporaryFolder, let free = LocalDisk(at: folder)?.free,
                let home = LocalDisk(at: path), free < roomMin, home.free >= roomMin
            else { return CloudError(.storageFailure, full, details: details) }
            details["path"] = folder
            return CloudError(.storageFailure, noTemporaryRoom, details: details)
        case .SQLITE_CANTOPEN, .SQLITE_IOERR, .SQLITE_READONLY, .SQLITE_PERM, .SQLITE_AUTH:
            guard let path, let (code, message) = cause(at: path) else { break }
            return CloudError(code, message, details: details)
        default: break
        }
        return CloudError(.storageFailure, unusable, details: details)
    }

    /// Whether what is there may still be read.
    static func isForWantOfRoom(_ error: CloudError) -> Bool { error.message == full || error.message == readOnly }

    /// Room below which even the index of a log may have no place.
    private static let roomMin: UInt64 = 64 << 10

    private static func cause(at path: String) -> (CloudError.Code, String)? {
        let folder = (path as NSString).deletingLastPathComponent
        var disk = statvfs()
        if statvfs(folder, &disk) == 0 {
            if disk.f_flag & UInt(ST_RDONLY) != 0 { return (.storageFailure, readOnly) }
            if UInt64(disk.f_bavail) * UInt64(disk.f_frsize) < roomMin { return (.storageFailure, full) }
        }
        for (place, mode) in [(folder, R_OK | W_OK | X_OK), (path, R_OK | W_OK)]
        where access(place, Int32(mode)) != 0 && errno == EACCES { return (.permissionFailure, notPermitted) }
        return nil
    }
}
