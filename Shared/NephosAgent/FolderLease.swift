internal import Foundation
package import NephosCore
internal import NephosFiles

/// A program's request that the agent leave a folder alone, for as long as the program runs.
///
/// It is a file in the home that is locked. The system unlocks it with its process, so none outlives its program.
package final class FolderLease: Sendable {
    private let file: String
    private let lock: FileLock
    private let control: AgentControl

    /// - Throws: ``CloudError`` `.storageFailure`.
    package init(_ folder: AgentFolder, _ control: AgentControl) throws(CloudError) {
        do {
            let leases = Self.leases(of: folder, control)
            try FileManager.default.createDirectory(
                atPath: leases, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            let name = UUID().uuidString
            // It is locked before the agent can see it.
            let part = control.folder + "/lease-" + name
            file = leases + "/" + name
            lock = try FileLock(part)
            guard rename(part, file) == 0 else { throw FileFailure() }
            self.control = control
        } catch {
            throw CloudError(
                .storageFailure, "The agent's folder in the home cannot be written to.",
                details: ["folder": control.folder])
        }
        control.wake()
    }

    /// Whether the agent leaves the folder alone from now on.
    package var isRespected: Bool { FileManager.default.fileExists(atPath: file + Self.respectedSuffix) }

    /// The agent goes on with the folder.
    package func end() {
        Self.remove(file)
        control.wake()
    }

    /// Whether a program has a lease of the folder.
    package static func isHeld(_ folder: AgentFolder, _ control: AgentControl) -> Bool {
        !active(folder, control).isEmpty
    }

    // MARK: Agent

    private static let respectedSuffix = ".respected"

    private static func leases(of folder: AgentFolder, _ control: AgentControl) -> String {
        control.folder + "/leases/\(folder.id)"
    }

    private static func remove(_ file: String) {
        unlink(file)
        unlink(file + respectedSuffix)
    }

    /// The files of a folder's leases. Those of programs that have ended are removed.
    static func active(_ folder: AgentFolder, _ control: AgentControl) -> [String] {
        let leases = leases(of: folder, control)
        let names = (try? FileManager.default.contentsOfDirectory(atPath: leases)) ?? []
        return names.filter { !$0.hasSuffix(respectedSuffix) }.map { leases + "/" + $0 }.filter { file in
            do { _ = try FileLock(file) } catch { return true }
            remove(file)
            return false
        }
    }

    /// Tells the programs that nothing is under way in the folder.
    static func confirm(_ files: [String]) {
        for file in files {
            let descriptor = open(file + respectedSuffix, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
            if descriptor >= 0 { close(descriptor) }
        }
    }
}
