internal import Foundation
public import NephosCore
internal import NephosFiles

/// A folder with secrets and without a roster: either the making of a deployment was cut off, and nothing was ever
/// stored with them, or the roster was lost, and they are all that opens what is stored.
extension DeploymentFiles {
    /// Is there while secrets are written that nobody uses yet.
    private var makingPath: String { "\(directory)/making" }
    /// Held by whoever makes a deployment.
    private var turnPath: String { "\(directory)/making.turn" }

    /// Requires that there is no deployment, nor the secrets of one, in its turn: one that is being made has secrets and no
    /// roster, too.
    ///
    /// - Throws: As ``takeTurn()`` and ``requireNone()`` do.
    func requireNoneInTurn() throws(CloudError) {
        guard FileManager.default.fileExists(atPath: directory) else { return }
        guard !FileManager.default.fileExists(atPath: rosterPath) else { return try requireNone() }
        let turn = try takeTurn()
        defer { endTurn(turn) }
        try requireNone()
    }

    /// - Throws: ``CloudError`` `.alreadyExists`, and as ``requireNoLeftSecrets()`` does.
    func requireNone() throws(CloudError) {
        guard !FileManager.default.fileExists(atPath: rosterPath) else {
            throw CloudError(
                .alreadyExists, "There is a deployment in this folder already. Choose another folder.",
                details: ["deployment": directory])
        }
        try requireNoLeftSecrets()
    }

    /// Waits until nobody else makes a deployment in the folder, for ten seconds at most.
    ///
    /// - Returns: A descriptor: until ``endTurn(_:)`` nobody else does.
    /// - Throws: ``CloudError`` `.serviceBusy`; `.configurationInvalid`: the folder cannot be written.
    func takeTurn() throws(CloudError) -> Int32 {
        for _ in 0..<200 {
            // A file of its own: whoever uses the folder may hold that itself, as a load test does.
            let descriptor = open(turnPath, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
            guard descriptor >= 0 else {
                throw CloudError(
                    .configurationInvalid, "A deployment file cannot be written. Check the folder's owner and space.",
                    details: ["file": turnPath])
            }
            if flock(descriptor, LOCK_EX | LOCK_NB) == 0, isTurn(descriptor) { return descriptor }
            close(descriptor)
            usleep(50_000)
        }
        throw CloudError(
            .serviceBusy, "Another nephos init makes a deployment in this folder. Run this again.",
            details: ["deployment": directory])
    }

    /// Whether what is held is still the file that others find: who had the turn before has removed it.
    private func isTurn(_ descriptor: Int32) -> Bool {
        var (held, found) = (stat(), stat())
        return fstat(descriptor, &held) == 0 && lstat(turnPath, &found) == 0 && held.st_ino == found.st_ino
            && held.st_dev == found.st_dev
    }

    func endTurn(_ descriptor: Int32) {
        unlink(turnPath)
        close(descriptor)
    }

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
