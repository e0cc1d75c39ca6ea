internal import Crypto
internal import Foundation
public import NephosCore
internal import NephosFiles
public import NephosServiceKit

/// A deployment's files as they go along with a snapshot: the roster, the settings and all secrets.
struct DeploymentSecrets: Codable {
    /// Names and bytes, as they lie in the deployment's folder.
    var files: [String: Data]
    /// ``Manifest/digest()`` of the snapshot that they go with: whoever does not know the secrets cannot make another
    /// snapshot to which they belong.
    var snapshot: String

    /// What they may have, sealed: 16 MiB.
    static let sealedBytesMax = 16 << 20

    private static let settings = "settings"

    /// The files that every deployment has.
    static func names(_ roster: Roster) -> [String] {
        ["roster.json", "operator.secret.json"] + roster.services.map { $0.service + ".secret.json" }
    }

    /// - Throws: ``CloudError`` `.configurationInvalid`: one is missing.
    init(of deployment: DeploymentFiles, with snapshot: String) throws {
        files = [:]
        self.snapshot = snapshot
        for name in Self.names(try deployment.roster()) {
            files[name] = try Self.contents(of: deployment.directory + "/" + name)
        }
        // There is none where the keys are sealed to one that was given for this run.
        files["recovery.json"] = FileManager.default.contents(atPath: deployment.recoveryPath)
        files[Self.settings] = FileManager.default.contents(atPath: deployment.settingsPath)
    }

    private static func contents(of path: String) throws -> Data {
        if let data = FileManager.default.contents(atPath: path) { return data }
        if access(path, R_OK) != 0, errno == EACCES { throw FileCopy.failure(path, EACCES) }
        throw CloudError(
            .configurationInvalid, "A deployment file is missing. Restore it from a copy.", details: ["file": path])
    }

    func sealed(to key: PublicRecoveryKey) throws -> [UInt8] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        return key.seal(Array(try encoder.encode(self)))
    }

    /// - Throws: ``CloudError`` `.wrongCredentials`: another key. `.storageFailure`: they belong to another snapshot.
    init(opening sealed: [UInt8], with key: RecoveryKey, of manifest: Manifest) throws {
        let opened = try key.open(sealed)
        guard let secrets = try? JSONDecoder().decode(DeploymentSecrets.self, from: Data(opened)) else {
            throw CloudError(.storageFailure, "The keys of the snapshot are damaged. Use another snapshot.")
        }
        guard secrets.snapshot == (try manifest.digest()) else {
            throw CloudError(
                .storageFailure,
                "The keys of the snapshot belong to another one: somebody has changed what is in this folder. Use another copy."
            )
        }
        // They are written by these names.
        let areNames = secrets.files.keys.allSatisfy { name in
            name == Self.settings || name.hasSuffix(".json") && !name.contains("/") && !name.hasPrefix(".")
        }
        guard areNames else {
            throw CloudError(.storageFailure, "The keys of the snapshot are damaged. Use another snapshot.")
        }
        self = secrets
    }
}

extension DeploymentFiles {
    private struct Recovery: Codable {
        var publicKey: String
    }

    /// What the deployment's secrets are sealed to in backups; nil: nothing yet.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`: the file is damaged, or others may write it.
    public func recoveryKey() throws(CloudError) -> PublicRecoveryKey? {
        guard access(recoveryPath, F_OK) == 0 else { return nil }
        // Whoever may write it gets everything.
        var information = stat()
        guard stat(recoveryPath, &information) == 0, information.st_mode & 0o022 == 0 else {
            throw CloudError(
                .configurationInvalid, "Others may write a deployment file. Run: chmod go-w FILE",
                details: ["file": recoveryPath])
        }
        guard let data = FileManager.default.contents(atPath: recoveryPath),
            let recovery = try? JSONDecoder().decode(Recovery.self, from: data),
            let key = try? PublicRecoveryKey(recovery.publicKey)
        else {
            throw CloudError(
                .configurationInvalid, "A deployment file is damaged. Make another key: nephos recovery-key new",
                details: ["file": recoveryPath])
        }
        return key
    }

    /// Has the deployment's secrets sealed to this key from now on.
    public func write(_ key: PublicRecoveryKey) throws(CloudError) {
        do {
            let encoder = JSONEncoder()
            encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
            try AtomicFile.write(try encoder.encode(Recovery(publicKey: key.text)), to: recoveryPath, mode: 0o600)
        } catch {
            throw CloudError(
                .configurationInvalid, "A deployment file cannot be written. Check the folder's owner and space.",
                details: ["file": recoveryPath])
        }
    }

    /// By service, which master keys it has, newest first: the start of the SHA-256 of each.
    func masterKeyNames() throws -> [String: [String]] {
        var names: [String: [String]] = [:]
        for service in ServiceName.all {
            names[service.rawValue] = try secrets(of: service).masterKeys.map { Self.name(ofMasterKey: $0) }
        }
        return names
    }

    static func name(ofMasterKey key: String) -> String {
        String(hex(SHA256.hash(data: Array(("nephos master key " + key).utf8))).prefix(16))
    }
}
