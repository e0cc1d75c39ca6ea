public import Core
private import Foundation
private import Synchronization

/// What must stay secret on a device. In `device.secret.json`, mode 0600.
public struct DeviceSecrets: Codable, Sendable {
    struct AccessToken: Codable, Sendable {
        var token: String
        var issued: UInt64
        var expires: UInt64

        /// Two thirds of its life, when it is time for another.
        var refreshAt: Timestamp { Timestamp(milliseconds: issued + (expires - issued) / 3 * 2) }
        func isValid(at now: Timestamp) -> Bool { now.milliseconds < expires && now.milliseconds + 1000 >= issued }
    }

    /// A refresh whose answer has not arrived: a used refresh token is only
    /// accepted again under the same operation id.
    struct Refresh: Codable, Sendable {
        var operation: String
        var app: String
    }

    /// CURVE keys, Z85: the device's identity.
    var publicKey: String?
    var secretKey: String?
    var refreshToken: String?
    var refresh: Refresh?
    var accessTokens: [String: AccessToken] = [:]

    public init() {}

    var keys: KeyPair? {
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

/// Where a device keeps its secrets.
public protocol SecretStore: AnyObject, Sendable {
    func load() throws(CloudError) -> DeviceSecrets
    func save(_ secrets: DeviceSecrets) throws(CloudError)
    /// Takes the lock that lets one process of this home refresh at a time; false: another has it.
    func tryLock() -> Bool
    func unlock()
}

/// Secrets in memory, for simulations.
public final class MemorySecrets: SecretStore {
    private let secrets = Mutex(DeviceSecrets())
    private let locked = Mutex(false)

    public init() {}

    public func load() -> DeviceSecrets { secrets.withLock { $0 } }
    public func save(_ secrets: DeviceSecrets) { self.secrets.withLock { $0 = secrets } }
    public func tryLock() -> Bool {
        locked.withLock { locked in
            defer { locked = true }
            return !locked
        }
    }
    public func unlock() { locked.withLock { $0 = false } }
}

/// Secrets in a file of the device's home, replaced as a whole and flushed.
public final class SecretFile: SecretStore {
    private let path: String
    private let lockPath: String
    private let lock = Mutex<Int32?>(nil)

    public init(home: String) {
        path = home + "/device.secret.json"
        lockPath = home + "/refresh.lock"
    }

    public func load() throws(CloudError) -> DeviceSecrets {
        guard FileManager.default.fileExists(atPath: path) else { return DeviceSecrets() }
        do {
            return try JSONDecoder().decode(DeviceSecrets.self, from: Data(contentsOf: URL(fileURLWithPath: path)))
        } catch {
            throw CloudError(
                .configurationInvalid, "The device's secret file cannot be read. Remove it and sign in again.",
                details: ["path": path])
        }
    }

    public func save(_ secrets: DeviceSecrets) throws(CloudError) {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .prettyPrinted]
        do { try AtomicFile.write(encoder.encode(secrets), to: path, mode: 0o600) } catch {
            throw CloudError(.storageFailure, "The device's secret file cannot be written.", details: ["path": path])
        }
    }

    public func tryLock() -> Bool {
        lock.withLock { descriptor in
            guard descriptor == nil else { return false }
            let opened = open(lockPath, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
            guard opened >= 0 else { return false }
            guard flock(opened, LOCK_EX | LOCK_NB) == 0 else {
                close(opened)
                return false
            }
            descriptor = opened
            return true
        }
    }

    public func unlock() {
        lock.withLock { descriptor in
            if let opened = descriptor { close(opened) }
            descriptor = nil
        }
    }
}
