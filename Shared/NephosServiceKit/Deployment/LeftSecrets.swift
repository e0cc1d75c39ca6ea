internal import Foundation
public import NephosCore
internal import NephosFiles

/// A folder with secrets and without a roster: either the making of a deployment was cut off, and nothing was ever
/// stored with them, or the roster was lost, and they are all that opens what is stored.
extension DeploymentFiles {
    /// Is there while secrets are written that nobody uses yet.
    private var makingPath: String { "\(directory)/making" }

    func beginMaking() throws(CloudError) {
        do { try AtomicFile.write(Data(), to: makingPath, mode: 0o600) } catch {
            throw CloudError(
                .configurationInvalid, "A deployment file cannot be written. Check the folder's owner and space.",
                details: ["file": makingPath])
        }
    }

    /// Before the roster is written: of what a crash leaves between the two nobody can say that it was never used.
    func endMaking() { try? FileManager.default.removeItem(atPath: makingPath) }

    /// Requires that no deployment has lost its roster here: to make another over it would take the keys of all that is
    /// stored.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`; the message names the cure.
    public func requireNoLeftSecrets() throws(CloudError) {
        let left = ServiceName.all.map { secretsPath(of: $0) }.filter { FileManager.default.fileExists(atPath: $0) }
        guard let first = left.first, !FileManager.default.fileExists(atPath: rosterPath),
            !FileManager.default.fileExists(atPath: makingPath)
        else { return }
        throw CloudError(
            .configurationInvalid,
            "The roster of this deployment is missing, and its secrets are here, without which nothing that is stored can be read. Restore the roster from a copy, such as one that was handed out. If nothing was ever stored, move the secrets away.",
            details: ["file": rosterPath, "secret": first])
    }
}
