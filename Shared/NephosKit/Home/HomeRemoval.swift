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
            do { try files.removeItem(atPath: "\(home)/\(name)") } catch { throw unremovable("\(home)/\(name)") }
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
                "Another program uses this home. End it (nephos watch, or the app), and try again.",
                details: ["home": home])
        } catch { throw unremovable(home) }
    }

    private static func isOwn(_ name: String) -> Bool {
        name.hasPrefix("device.") || name.hasPrefix("content.")
            || ["content", "parts", "refresh.lock", "engine.lock", "engine.socket"].contains(name)
    }

    private static func unremovable(_ path: String) -> CloudError {
        CloudError(
            .storageFailure, "A file of the home cannot be removed. Check who may write there.", details: ["file": path]
        )
    }
}
