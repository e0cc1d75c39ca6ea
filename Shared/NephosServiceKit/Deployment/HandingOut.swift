internal import Foundation
public import NephosCore
internal import NephosFiles

extension DeploymentFiles {
    /// Gives each service, and the web's program, a folder of its own, with the roster, the deployment's settings and that
    /// service's secrets, and nothing else: for programs that share no disk, or no user. The web's program has no secrets.
    ///
    /// Files that are up to date are not written again.
    ///
    /// - Parameter folder: Has a folder for each service, named like it; those are made.
    /// - Returns: The programs whose files changed: they have to be started again.
    /// - Throws: ``CloudError`` `.configurationInvalid` for what cannot be read or written; `.constraintViolation` where a
    ///   service has a master key that this deployment does not have.
    public func handOut(to folder: String) throws(CloudError) -> [ServiceName] {
        let (roster, settings) = (try roster(), try settings())
        var changed: [ServiceName] = []
        for service in ServiceName.programs {
            let own = DeploymentFiles(directory: "\(folder)/\(service)")
            do {
                try FileManager.default.createDirectory(
                    atPath: own.directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            } catch {
                throw CloudError(
                    .configurationInvalid, "A folder to hand out to cannot be made. Check its owner and space.",
                    details: ["folder": own.directory])
            }
            let hasSecrets = service != .web
            if hasSecrets { try requireKeys(of: own, service) }
            var isNew = false
            if hasSecrets {
                isNew = try copy(to: own.secretsPath(of: service), from: secretsPath(of: service), mode: 0o600)
            }
            if try copySettings(settings, to: own, of: service) { isNew = true }
            // Last, since it is what tells that the folder is complete.
            if try copy(to: own.rosterPath, from: rosterPath, mode: 0o644) { isNew = true }
            // What is wrong with them is said here, and not by each service's end.
            if hasSecrets { _ = try own.secrets(of: service) }
            guard try own.roster() == roster else {
                throw CloudError(
                    .constraintViolation, "The deployment was changed while it was handed out. Do it again.")
            }
            if isNew { changed.append(service) }
        }
        return changed
    }

    /// With a master key goes all that it opens: the last copy of one is not replaced.
    private func requireKeys(of own: DeploymentFiles, _ service: ServiceName) throws(CloudError) {
        guard let theirs = try? own.readSecrets(of: service).masterKeys.first,
            try !secrets(of: service).masterKeys.contains(theirs)
        else { return }
        throw CloudError(
            .constraintViolation,
            "The service was handed a master key that this deployment does not have, and may need it to read what it stores. Restore the deployment's files from a copy; or, where it is not needed any more, move what was handed out away.",
            details: ["file": own.secretsPath(of: service)])
    }

    /// - Returns: Whether the settings that concern the service have changed.
    private func copySettings(
        _ settings: SettingsFile, to own: DeploymentFiles, of service: ServiceName
    ) throws(CloudError) -> Bool {
        let before = (try? own.settings()) ?? SettingsFile()
        guard before != settings else { return false }
        try own.write(settings)
        func concerning(_ settings: SettingsFile) -> [String: String] {
            settings.values.filter { SettingNames.services(of: $0.key).contains(service) }
        }
        return concerning(before) != concerning(settings)
    }

    private func copy(to target: String, from source: String, mode: mode_t) throws(CloudError) -> Bool {
        guard let data = FileManager.default.contents(atPath: source) else {
            throw CloudError(
                .configurationInvalid, "A deployment file is missing or cannot be read. Restore it from a copy.",
                details: ["file": source])
        }
        guard FileManager.default.contents(atPath: target) != data || Self.mode(of: target) != Int(mode) else {
            return false
        }
        do { try AtomicFile.write(data, to: target, mode: mode) } catch {
            throw CloudError(
                .configurationInvalid, "A deployment file cannot be written. Check the folder's owner and space.",
                details: ["file": target])
        }
        return true
    }
}
