private import Foundation
package import NephosCore
private import NephosFiles

extension Session {
    /// Removes what a home has: its database, its secrets and the contents of files. Other files in the folder stay, and
    /// the folder with them.
    ///
    /// Close the session before.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation` when another program uses the home (end it first), `.storageFailure` when a
    ///   file cannot be removed; the details name it.
    package static func removeHome(_ home: String) throws(CloudError) {
        let lock = try lock(home)
        let files = FileManager.default
        guard let names = try? files.contentsOfDirectory(atPath: home) else { throw unremovable(home) }
        // The database last: as long as it is there, the rest is known to be a home's.
        let own = names.filter(isOwn).sorted { !$0.hasPrefix("device.") && $1.hasPrefix("device.") }
        for name in own {
            let path = "\(home)/\(name)"
            if name == "agent" {
                for file in ["wake", "lock"] { unlink("\(path)/\(file)") }
                rmdir(path)
                continue
            }
            guard ["content", "parts", "processes"].contains(name) else {
                // SQLite may remove its files in this moment, since the database was just closed.
                do { try files.removeItem(atPath: path) } catch {
                    guard access(path, F_OK) != 0, errno == ENOENT else { throw unremovable(path) }
                }
                continue
            }
            for item in (try? files.contentsOfDirectory(atPath: path)) ?? [] where isContent(item) {
                guard unlink("\(path)/\(item)") == 0 || errno == ENOENT else { throw unremovable("\(path)/\(item)") }
            }
            rmdir(path)
        }
        withExtendedLifetime(lock) {}
        // Only where nothing else lies in it.
        rmdir(home)
    }

    /// Checks that no program uses the home.
    ///
    /// - Throws: ``CloudError`` as ``removeHome(_:)``.
    package static func requireUnused(_ home: String) throws(CloudError) { _ = try lock(home) }

    private static func lock(_ home: String) throws(CloudError) -> FileLock {
        do { return try FileLock(home + "/engine.lock") } catch .held {
            throw CloudError(
                .constraintViolation,
                "Another program uses this home. End it (nephos agent run, nephos watch, or the app), and try again.",
                details: ["home": home])
        } catch { throw unremovable(home) }
    }

    /// The files of a home by their exact names: a person may have put others beside them.
    private static func isOwn(_ name: String) -> Bool {
        ["", "-wal", "-shm", "-journal"].contains { name == "device.sqlite" + $0 || name == "agent.sqlite" + $0 }
            || name.hasPrefix("device.") && name.hasSuffix(".secret.json")
            || ["content", "content.lock", "parts", "refresh.lock", "engine.lock", "processes", "agent"].contains(name)
    }

    /// Contents are called after versions, notes of parts after hashes, and processes' sockets by chance: 16 hexadecimal
    /// digits at least.
    private static func isContent(_ name: String) -> Bool {
        let stem = name.utf8.prefix { $0 != UInt8(ascii: ".") }
        return stem.count >= 16 && stem.allSatisfy { isHexadecimal($0) }
    }

    private static func isHexadecimal(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte)
    }

    private static func unremovable(_ path: String) -> CloudError {
        CloudError(
            .storageFailure, "A file of the home cannot be removed. Check who may write there.", details: ["file": path]
        )
    }
}
