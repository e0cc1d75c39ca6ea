private import Foundation

/// Writes down what is prepared, so that `dev/check-sql` can try it on PostgreSQL: each statement once, to the file
/// that `NEPHOS_SQL_RECORD` names, if there is one.
enum SQLRecord {
    private static let file: FileHandle? = {
        guard let path = ProcessInfo.processInfo.environment["NEPHOS_SQL_RECORD"] else { return nil }
        let file = FileHandle(forWritingAtPath: path)
        _ = try? file?.seekToEnd()
        return file
    }()

    /// - Parameter place: `migration/` and its name, or the source file.
    static func note(_ text: String, of place: String) {
        guard let file else { return }
        try? file.write(contentsOf: Data("\(place)\u{1f}\(text)\u{1e}".utf8))
    }
}
