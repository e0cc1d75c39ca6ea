internal import Foundation
package import NephosCore
internal import NephosFiles

/// A program's request that the agent leave a file or folder alone, for as long as the program runs (as
/// `NSFileCoordinator` has it for a writer). Nothing at the path or beneath it is sent, replaced, moved or removed meanwhile.
///
/// It is a file in the home that is locked. The system unlocks it with its process, so none outlives its program.
package final class PathLease: Sendable {
    private let file: String
    private let lock: FileLock
    private let control: AgentControl

    /// - Parameter path: Absolute.
    /// - Throws: ``CloudError`` `.storageFailure`.
    package init(_ path: String, _ control: AgentControl) throws(CloudError) {
        do {
            try FileManager.default.createDirectory(
                atPath: Self.folder(control), withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            let name = UUID().uuidString
            // It is complete and locked before the agent can see it.
            let part = control.folder + "/lease-" + name
            file = Self.folder(control) + "/" + name
            lock = try FileLock(part)
            let handle = try FileHandle(forWritingTo: URL(fileURLWithPath: part))
            try handle.write(contentsOf: Data(path.utf8))
            try handle.close()
            guard rename(part, file) == 0 else { throw FileFailure() }
            self.control = control
        } catch {
            throw CloudError(
                .storageFailure, "The agent's folder in the home cannot be written to.",
                details: ["folder": control.folder])
        }
        control.wake()
    }

    /// Whether the agent leaves the path alone from now on.
    package var isRespected: Bool { FileManager.default.fileExists(atPath: file + Self.respectedSuffix) }

    /// The agent goes on with the path.
    package func end() {
        unlink(file)
        unlink(file + Self.respectedSuffix)
        control.wake()
    }

    // MARK: Agent

    private static let respectedSuffix = ".respected"

    private static func folder(_ control: AgentControl) -> String { control.folder + "/leases" }

    /// The paths that are leased now, each with the file of its lease. Those of programs that have ended are removed.
    static func active(_ control: AgentControl) -> [(path: String, file: String)] {
        let folder = folder(control)
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
        return names.filter { !$0.hasSuffix(respectedSuffix) }.compactMap { name in
            let file = folder + "/" + name
            do {
                _ = try FileLock(file)
                unlink(file)
                unlink(file + respectedSuffix)
                return nil
            } catch {
                guard let data = FileManager.default.contents(atPath: file) else { return nil }
                return (String(decoding: data, as: UTF8.self), file)
            }
        }
    }

    /// Tells the program that nothing is under way at its path.
    static func confirm(_ file: String) {
        let descriptor = open(file + respectedSuffix, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        if descriptor >= 0 { close(descriptor) }
    }
}
