internal import NephosCore
internal import NephosFiles

#if canImport(Musl)
    internal import Musl
#else
    internal import Glibc
#endif

/// Holds a database for one writer, through a file `<database>.lock` beside it.
///
/// SQLite would let several processes write in turn; but an engine keeps heads
/// and prepared state that only one writer can own.
final class WriterLock {
    private let lock: FileLock

    init(database path: String) throws {
        do { lock = try FileLock(path + ".lock") } catch .held {
            throw CloudError(
                .storageFailure,
                "Another process has this database open. Stop it first: one process writes to a database at a time.",
                details: ["file": path])
        } catch .unusable(let number) {
            throw CloudError(
                .storageFailure,
                "The database file cannot be written. Its directory must exist and belong to the service's user.",
                details: ["file": path, "errno": String(number)])
        }
    }

    /// Creates the database file, readable by its owner only, unless it is there.
    /// The files SQLite puts beside it get the same mode.
    func createDatabase(at path: String) throws {
        let database = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        guard database >= 0 else { throw SQLiteFailure.error(14) }  // SQLITE_CANTOPEN
        close(database)
    }
}
