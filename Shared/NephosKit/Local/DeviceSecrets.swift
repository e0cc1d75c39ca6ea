package import Crypto
private import Foundation
package import NephosCore
internal import NephosFiles
private import Synchronization

/// What must stay secret on a device: the secrets of one sign-in. In `device.NAME.secret.json`, mode 0600, whose
/// name the ``SessionRecord`` has: so both change in one moment, when that is committed.
package struct DeviceSecrets: Codable, Sendable {
    struct AccessToken: Codable, Sendable {
        var token: String
        var issued: UInt64
        var expires: UInt64
    }

    /// CURVE keys, Z85: the device's identity.
    var publicKey: String?
    var secretKey: String?
    package var refreshToken: String?
    /// What the app ships, where there is no account: in exchange for it there are access tokens.
    var appToken: String?
    /// The id of the request that exchanges it, until that is answered, however long it takes: under
    /// another one the server would take this device for a copy of itself.
    var refreshOperation: String?
    var accessTokens: [String: AccessToken] = [:]

    package init() {}

    /// Whether they let anybody in.
    package var hasTokens: Bool { refreshToken != nil || !accessTokens.isEmpty }

    package var keys: KeyPair? {
        get {
            guard let publicKey = publicKey.flatMap({ PublicKey(z85: $0) }),
                let secretKey = secretKey.flatMap({ SecretKey(z85: $0) })
            else { return nil }
            return KeyPair(publicKey: publicKey, secretKey: secretKey)
        }
        set {
            publicKey = newValue?.publicKey.z85
            secretKey = newValue?.secretKey.z85
        }
    }
}

/// Where a device keeps its secrets, those of each sign-in under a name of their own.
package protocol SecretStore: AnyObject, Sendable {
    /// None were saved under the name: empty ones.
    func load(_ name: String) throws(CloudError) -> DeviceSecrets
    func save(_ secrets: DeviceSecrets, as name: String) throws(CloudError)
    /// Whether there is anything under other names.
    func hasOthers(than name: String?) -> Bool
    /// Removes what is under other names, as far as that is possible now.
    func removeOthers(than name: String?)
    /// Takes the lock that lets one process of this home refresh at a time; false: another has it.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` when nobody can have it.
    func tryLock() throws(CloudError) -> Bool
    func unlock()
    /// Takes the room that a new sign-in's secrets need, before the server is asked for them: what it has given it
    /// does not take back, and the sign-in before would end with that.
    ///
    /// - Throws: ``CloudError`` `.storageFailure` when there is none.
    func reserveRoom() throws(CloudError)
    /// Gives it up again, for the secrets themselves or because there are none.
    func releaseRoom()
}

extension SecretStore {
    package func reserveRoom() throws(CloudError) {}
    package func releaseRoom() {}
}

/// Secrets in memory, for simulations.
package final class MemorySecrets: SecretStore {
    private final class Home: Sendable {
        let secrets = Mutex<[String: DeviceSecrets]>([:])
        let saveCount = Mutex(0)
        let holder = Mutex<ObjectIdentifier?>(nil)
    }

    private let home: Home

    package init() { home = Home() }

    /// Another process of the same home.
    package init(sharing other: MemorySecrets) { home = other.home }

    /// A home that was copied as it is now.
    package init(copyOf other: MemorySecrets) {
        home = Home()
        let copied = other.home.secrets.withLock { $0 }
        home.secrets.withLock { $0 = copied }
    }

    deinit { unlock() }

    /// How often secrets were saved.
    package var saveCount: Int { home.saveCount.withLock { $0 } }
    /// Under which names there are any.
    package var names: [String] { home.secrets.withLock { $0.keys.sorted() } }

    package func load(_ name: String) -> DeviceSecrets { home.secrets.withLock { $0[name] ?? DeviceSecrets() } }
    package func save(_ secrets: DeviceSecrets, as name: String) {
        home.saveCount.withLock { $0 += 1 }
        home.secrets.withLock { $0[name] = secrets }
    }
    package func hasOthers(than name: String?) -> Bool {
        home.secrets.withLock { $0.keys.contains { $0 != name } }
    }
    package func removeOthers(than name: String?) {
        home.secrets.withLock { secrets in secrets = secrets.filter { $0.key == name } }
    }
    package func tryLock() -> Bool {
        home.holder.withLock { holder in
            guard holder == nil else { return false }
            holder = ObjectIdentifier(self)
            return true
        }
    }
    package func unlock() {
        home.holder.withLock { holder in
            if holder == ObjectIdentifier(self) { holder = nil }
        }
    }
}

/// Secrets in files of the device's home, each replaced as a whole and flushed.
package final class SecretFile: SecretStore {
    private static let suffix = ".secret.json"
    private let home: String
    private let lockPath: String
    private let lock = Mutex<FileLock?>(nil)
    /// Called before a file is written.
    private let fault: (@Sendable (String) throws -> Void)?

    private let sealingKey: SymmetricKey?

    /// - Parameters:
    ///   - sealingKey: See ``DeviceOptions/sealingKey``.
    ///   - fault: See ``DeviceOptions/fault``; ``HalfDone`` leaves half of what was to be written, as a crash does.
    package init(
        home: String, sealingKey: SymmetricKey? = nil, fault: (@Sendable (String) throws -> Void)? = nil
    ) {
        self.home = home
        self.sealingKey = sealingKey
        self.fault = fault
        lockPath = home + "/refresh.lock"
    }

    private func path(_ name: String) -> String { "\(home)/device.\(name)\(Self.suffix)" }

    package func load(_ name: String) throws(CloudError) -> DeviceSecrets {
        let path = path(name)
        guard FileManager.default.fileExists(atPath: path) else { return DeviceSecrets() }
        do {
            var data = try Data(contentsOf: URL(fileURLWithPath: path))
            if let sealingKey { data = try ChaChaPoly.open(ChaChaPoly.SealedBox(combined: data), using: sealingKey) }
            return try JSONDecoder().decode(DeviceSecrets.self, from: data)
        } catch {
            throw CloudError(
                .configurationInvalid, "The device's secret file cannot be read. Remove it and sign in again.",
                details: ["path": path])
        }
    }

    package func save(_ secrets: DeviceSecrets, as name: String) throws(CloudError) {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .prettyPrinted]
        do {
            var data = try encoder.encode(secrets)
            if let sealingKey { data = try ChaChaPoly.seal(data, using: sealingKey).combined }
            try HalfDone.leave(of: data, at: path(name)) { try fault?("secrets") }
            try AtomicFile.write(data, to: path(name), mode: 0o600)
        } catch {
            throw failure(error, path(name))
        }
    }

    private func failure(_ error: any Error, _ path: String) -> CloudError {
        let number = Self.number(of: error as NSError)
        return LocalFailure.error(ofNumber: number, at: path)
            ?? CloudError(.storageFailure, LocalFailure.secretUnwritable, details: ["path": path])
    }

    /// What the system said; 0: it did not.
    private static func number(of error: NSError) -> Int32 {
        let cause = error.userInfo[NSUnderlyingErrorKey] as? NSError ?? error
        if cause.domain == NSPOSIXErrorDomain { return Int32(truncatingIfNeeded: cause.code) }
        return error.domain == NSCocoaErrorDomain && error.code == CocoaError.Code.fileWriteOutOfSpace.rawValue
            ? ENOSPC : 0
    }

    /// Among the secrets, so that one that a crash has left goes with those that nobody needs. Each process has its own.
    private let roomName = "\(SecretFile.room)-\(UUID().uuidString)"
    private var roomPath: String { path(roomName) }
    private static let room = "room"
    /// For so long a sign-in or sign-out may need what it has taken.
    private static let roomPatience: TimeInterval = 300
    /// The secrets and the transaction that names them are much smaller.
    private static let roomBytes = 256 << 10

    package func reserveRoom() throws(CloudError) {
        do { try AtomicFile.write(Data(repeating: 1, count: Self.roomBytes), to: roomPath, mode: 0o600) } catch {
            throw failure(error, roomPath)
        }
    }

    package func releaseRoom() { unlink(roomPath) }

    package func hasOthers(than name: String?) -> Bool { !others(than: name).isEmpty }

    package func removeOthers(than name: String?) { for path in others(than: name) { unlink(path) } }

    private func others(than name: String?) -> [String] {
        let kept = name.map(path)
        let names = (try? FileManager.default.contentsOfDirectory(atPath: home)) ?? []
        return names.filter { $0.hasPrefix("device.") && $0.hasSuffix(Self.suffix) }.map { "\(home)/\($0)" }
            .filter { $0 != kept && !isRoomInUse($0) }
    }

    /// Whether this is the room for secrets that another process may be about to save.
    private func isRoomInUse(_ path: String) -> Bool {
        guard path.hasPrefix("\(home)/device.\(Self.room)"),
            let taken = try? FileManager.default.attributesOfItem(atPath: path)[.modificationDate] as? Date
        else { return false }
        // A clock that was set back makes none last.
        return abs(taken.timeIntervalSinceNow) < Self.roomPatience
    }

    package func tryLock() throws(CloudError) -> Bool {
        try lock.withLock { lock throws(CloudError) in
            guard lock == nil else { return false }
            do throws(FileLock.Failure) { lock = try FileLock(lockPath) } catch {
                guard case .unusable(let number) = error else { return false }
                throw unlockable(number)
            }
            return true
        }
    }

    private func unlockable(_ number: Int32) -> CloudError {
        CloudError(
            .storageFailure, LocalFailure.unlockable,
            details: ["path": lockPath, "reason": String(cString: strerror(number))])
    }

    package func unlock() {
        lock.withLock { $0 = nil }
    }
}
