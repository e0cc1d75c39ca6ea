internal import GRDB
internal import GRDBSQLite
internal import NephosCore

/// What SQLite's result codes mean to us.
///
/// Texts of SQLite's own are left out, except where a statement does not
/// compile: they can hold stored values.
enum SQLiteFailure {
    static func error(_ code: Int32) -> CloudError {
        let details = ["sqlite_code": String(code), "reason": String(cString: sqlite3_errstr(code))]
        return switch code & 0xff {
        case SQLITE_CONSTRAINT:
            CloudError(.constraintViolation, "The change would break a rule that the database keeps.", details: details)
        case SQLITE_TOOBIG:
            CloudError(.limitExceeded, "A value is too large for the database. Split it.", details: details)
        case SQLITE_FULL:
            CloudError(.storageFailure, "The disk is full; nothing was stored. Free some space.", details: details)
        case SQLITE_BUSY, SQLITE_LOCKED:
            CloudError(
                .storageFailure,
                "Another program holds the database; nothing was stored. Stop whatever writes to it.",
                details: details
            )
        case SQLITE_CORRUPT, SQLITE_NOTADB:
            CloudError(
                .storageFailure,
                "The database file is damaged. Stop the service, move the file aside and restore the last backup.",
                details: details
            )
        case SQLITE_CANTOPEN, SQLITE_PERM, SQLITE_READONLY, SQLITE_AUTH:
            CloudError(
                .storageFailure,
                "The database file cannot be written. Its directory must exist and belong to the service's user.",
                details: details
            )
        case SQLITE_ERROR, SQLITE_MISUSE, SQLITE_RANGE, SQLITE_MISMATCH, SQLITE_SCHEMA:
            CloudError(.internalError, "A statement does not fit the database.", details: details)
        default:
            CloudError(.storageFailure, "The database could not be read or written.", details: details)
        }
    }

    /// GRDB's errors, which occur at opening and at migrating only.
    static func error(_ error: any Error) -> any Error {
        guard let error = error as? DatabaseError else { return error }
        var result = Self.error(error.extendedResultCode.rawValue)
        if result.code == .internalError { result.details["sqlite_message"] = error.message }
        return result
    }

    /// Whether the failed statement alone was undone, so that the transaction can go on.
    static func isOfStatement(_ code: Int32) -> Bool {
        switch code & 0xff {
        case SQLITE_CONSTRAINT, SQLITE_TOOBIG, SQLITE_ERROR, SQLITE_MISUSE, SQLITE_RANGE, SQLITE_MISMATCH: true
        default: false
        }
    }
}
