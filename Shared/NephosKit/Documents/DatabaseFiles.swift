private import Foundation
package import NephosCore
internal import NephosFiles

/// Databases of SQLite that somebody has open, or had when they were cut off.
///
/// What is in them lies in several files, which are one only at a moment of SQLite's own: a copy of each is torn,
/// however quickly it is made.
package enum DatabaseFiles {
    private static let companions = ["-wal", "-shm", "-journal"]
    private static let databaseMark = [UInt8]("SQLite format 3\0".utf8)
    /// A log's, in the order of bytes of either kind of machine, and a rollback journal's.
    private static let companionMarks: [[UInt8]] = [
        [0x37, 0x7f, 0x06, 0x82], [0x37, 0x7f, 0x06, 0x83], [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7],
    ]

    /// Why the file is not put; nil: it is no such database, and no part of one.
    ///
    /// A database that nobody has open has nothing beside it, and is a file like any other.
    ///
    /// - Parameter file: Where it leads, if it is a link.
    package static func refusal(of file: LocalPath) -> CloudError? {
        let file = resolved(file)
        for companion in companions where file.bytes.suffix(companion.utf8.count).elementsEqual(companion.utf8) {
            let database = LocalPath(bytes: file.bytes.dropLast(companion.utf8.count))
            if isDatabase(database) || isCompanion(file) { return refusal(of: file, beside: database, database) }
        }
        let beside = companions.map { LocalPath(bytes: file.bytes + $0.utf8) }.filter { beside in
            beside.withCString { access($0, F_OK) } == 0
        }
        guard let first = beside.first, isDatabase(file) || beside.contains(where: isCompanion) else { return nil }
        return refusal(of: file, beside: first, file)
    }

    private static func refusal(of file: LocalPath, beside other: LocalPath, _ database: LocalPath) -> CloudError {
        CloudError(
            .constraintViolation,
            """
            This is a SQLite database in use, or a part of one: a copy of its files would be torn. Make a whole one and \
            put that, with sqlite3's .backup or VACUUM INTO; or keep the rows in records.
            """,
            details: [
                "file": file.text, "beside": other.text,
                "command": "sqlite3 " + ShellCommand.word(database.text) + " " + ShellCommand.word(".backup COPY"),
            ])
    }

    /// Only where the file itself is a link do its companions lie elsewhere.
    private static func resolved(_ file: LocalPath) -> LocalPath {
        var status = stat()
        guard file.withCString({ lstat($0, &status) }) == 0, status.st_mode & S_IFMT == S_IFLNK else { return file }
        guard let path = file.withCString({ realpath($0, nil) }) else { return file }
        defer { free(path) }
        return LocalPath(bytes: UnsafeBufferPointer(start: path, count: strlen(path)).map { UInt8(bitPattern: $0) })
    }

    private static func isDatabase(_ file: LocalPath) -> Bool { start(of: file, databaseMark.count) == databaseMark }

    private static func isCompanion(_ file: LocalPath) -> Bool {
        companionMarks.contains { start(of: file, $0.count) == $0 }
    }

    /// Its first bytes; none of what is no file, or cannot be read.
    private static func start(of file: LocalPath, _ count: Int) -> [UInt8] {
        // What is no file must not be waited for.
        let descriptor = file.withCString { path in
            FileSystem.openUnnoticed { open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | $0) }
        }
        guard descriptor >= 0 else { return [] }
        defer { close(descriptor) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else { return [] }
        var bytes = [UInt8](repeating: 0, count: count)
        let filled = pread(descriptor, &bytes, count, 0)
        return filled == count ? bytes : []
    }
}
