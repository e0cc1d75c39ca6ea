internal import Crypto
package import Foundation
package import Logging
package import NephosCore
internal import NephosFiles
package import NephosKit

/// Opens a device's home; tests open one of a cloud in their own process.
package typealias OpenSession = @Sendable (_ home: URL, _ options: DeviceOptions) async throws(CloudError) -> Session

/// The devices of those who come: each app password is one, and each browser that has signed in. Each has a home of its own
/// in the data folder.
///
/// The secrets in a home are sealed with a key of two halves. One is in the data folder; the other is the app password or
/// the browser's cookie, which is not kept, so one half alone is of no use. A home that was not used for ``homeRetention``
/// is removed; an app password makes another.
package actor WebSessions {
    /// Sessions that are open at a time. The one that was used longest ago is closed for a further one.
    package static let openMax = 200
    /// An unused session is closed after this time.
    static let idleTime: Duration = .seconds(1800)
    static let homeRetention: TimeInterval = 30 * 86_400
    /// Sign-ins at a time, in all and of one address. Further ones are asked to come again.
    private static let signInsMax = 16
    private static let signInsOfAddressMax = 4

    private let folder: String
    private let half: SymmetricKey
    private let connection: ConnectionString
    private let open: OpenSession
    private let logger: Logger
    private var entries: [String: Entry] = [:]
    /// Closed sessions that requests may still use: a home is open once at a time.
    private var closing: [String: Closing] = [:]
    /// Sign-ins under way, by address.
    private var signIns: [String: Int] = [:]
    /// Passwords that were wrong a moment ago: a program that repeats one does not have the account's owner wait.
    private var refused: [String: ContinuousClock.Instant] = [:]
    /// Failed sign-ins of each address within a minute.
    private var failures: [String: (count: Int, since: ContinuousClock.Instant)] = [:]
    /// More of one address in a minute are not tried: each costs this program and identity some work.
    private static let failuresMax = 20

    private struct Entry {
        var user: Task<Result<WebUser, CloudError>, Never>
        var used: ContinuousClock.Instant
        /// Once it is open.
        weak var opened: WebUser?
    }

    private struct Closing {
        weak var user: WebUser?
    }

    /// - Parameters:
    ///   - folder: The data folder, which is this program's alone.
    ///   - connection: The deployment's.
    /// - Throws: ``CloudError`` `.storageFailure` when the folder cannot be written.
    package init(
        folder: String, connection: ConnectionString, logger: Logger, open: @escaping OpenSession
    ) throws(CloudError) {
        self.folder = folder + "/sessions"
        (self.connection, self.logger, self.open) = (connection, logger, open)
        half = try Self.half(in: folder)
        do {
            try FileManager.default.createDirectory(
                atPath: self.folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw CloudError(
                .storageFailure, "The data folder cannot be written. Check its permissions.",
                details: ["folder": folder])
        }
    }

    /// This program's half of the keys that seal secrets, made at the first start.
    private static func half(in folder: String) throws(CloudError) -> SymmetricKey {
        let path = folder + "/web.secret"
        do {
            try FileManager.default.createDirectory(
                atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            if let data = FileManager.default.contents(atPath: path), data.count == 32 {
                return SymmetricKey(data: data)
            }
            let key = SymmetricKey(size: .bits256)
            try AtomicFile.write(key.withUnsafeBytes { Data($0) }, to: path, mode: 0o600)
            return key
        } catch {
            throw CloudError(
                .storageFailure, "The data folder cannot be written. Check its permissions.",
                details: ["path": path])
        }
    }

    // MARK: Coming in

    /// The user of an account's name and an app password.
    ///
    /// - Parameter address: The client's, for ``failuresMax``.
    /// - Throws: ``CloudError`` `.wrongCredentials`, `.deviceRevoked`, `.accountTemporarilyUnavailable`; `.serviceBusy`,
    ///   `.requestRateLimited`, `.networkUnavailable` and the like (come again).
    package func user(account: String, password: String, from address: String) async throws(CloudError) -> WebUser {
        guard let letters = Base32.canonical(password), letters.utf8.count == 26, 1...256 ~= account.utf8.count else {
            throw Self.wrongCredentials
        }
        let name = account.lowercased()
        let id = Self.id("home", name, letters)
        let signIn = SignIn(account: name, password: letters, deviceName: "WebDAV")
        let user = try await open(id, letters, signIn, address)
        guard await user.isSignedIn else {
            // It may have been revoked, or its home lost.
            await forget(id, removingHome: true)
            return try await open(id, letters, signIn, address)
        }
        return user
    }

    /// The user of a browser's cookie.
    ///
    /// - Throws: ``CloudError`` `.notSignedIn` when the cookie is of no use any more, `.deviceRevoked` when its device was
    ///   signed out elsewhere.
    func user(cookie: String) async throws(CloudError) -> WebUser {
        guard cookie.utf8.count == Self.cookieCharacters else { throw Self.notSignedIn }
        let id = Self.id("browser", cookie)
        guard entries[id] != nil || FileManager.default.fileExists(atPath: "\(folder)/\(id)") else {
            throw Self.notSignedIn
        }
        let user = try await open(id, cookie, nil, "")
        guard await user.isSignedIn else {
            let isRevoked = (try? user.session.account)??.revoked == true
            await forget(id, removingHome: true)
            throw isRevoked ? Self.revoked : Self.notSignedIn
        }
        return user
    }

    /// Signs a browser in, as a device of its own, with the account's own password.
    ///
    /// - Parameter code: Of another device, while the password is being guessed; empty: none.
    /// - Returns: The cookie, which is the browser's half of the key.
    /// - Throws: ``CloudError`` as ``Session/signIn(connection:account:password:deviceName:deviceModel:policyClass:app:discardsUnsent:code:timeout:)``
    ///   does.
    func signIn(
        account: String, password: String, code: String, deviceName: String, from address: String
    ) async throws(CloudError) -> (cookie: String, user: WebUser) {
        guard 1...256 ~= account.utf8.count, 1...4096 ~= password.utf8.count else {
            throw CloudError(.wrongCredentials, "The account's name or the password is wrong.")
        }
        let cookie = SymmetricKey(size: .bits256).withUnsafeBytes { Self.hexadecimal($0) }
        let signIn = SignIn(
            account: account.lowercased(), password: password, code: code, deviceName: deviceName, isBrowser: true)
        return (cookie, try await open(Self.id("browser", cookie), cookie, signIn, address))
    }

    /// Signs a browser out: its device leaves the account's list, and its home is removed.
    func signOut(cookie: String) async {
        guard let user = try? await user(cookie: cookie) else { return }
        _ = try? await user.session.signOut(keepsUnsent: true)
        await forget(Self.id("browser", cookie), removingHome: true)
    }

    /// A further use of a session that goes on for long.
    func noteUse(cookie: String) { entries[Self.id("browser", cookie)]?.used = .now }

    /// A new home's sign-in.
    private struct SignIn {
        var account: String
        var password: String
        var code = ""
        var deviceName: String
        var isBrowser = false
    }

    /// - Parameters:
    ///   - secret: The client's half of the key.
    ///   - signIn: Nil: the home is there.
    private func open(
        _ id: String, _ secret: String, _ signIn: SignIn?, _ address: String
    ) async throws(CloudError) -> WebUser {
        entries[id]?.used = .now
        if let entry = entries[id] { return try await entry.user.value.get() }
        if let user = closing.removeValue(forKey: id)?.user {
            entries[id] = Entry(user: Task { .success(user) }, used: .now, opened: user)
            return user
        }
        if let time = refused[id], .now - time < .seconds(60) { throw Self.wrongCredentials }
        // Those with a home have signed in before, and do not wait for those who guess from the same address.
        let isKnown = FileManager.default.fileExists(atPath: "\(folder)/\(id)")
        if !isKnown, let failed = failures[address], failed.count >= Self.failuresMax,
            .now - failed.since < .seconds(60)
        {
            throw CloudError(
                .requestRateLimited, "Too many wrong passwords came from this address. Try again in a minute.",
                retryAfter: .seconds(60))
        }
        if !isKnown {
            let own = signIns[address] ?? 0
            guard own < Self.signInsOfAddressMax, signIns.values.reduce(0, +) < Self.signInsMax else {
                throw CloudError(.serviceBusy, "Many sign in at this moment. Try again.", retryAfter: .seconds(2))
            }
            signIns[address] = own + 1
        }
        let task = Task { await openUser(id, secret, signIn) }
        entries[id] = Entry(user: task, used: .now)
        let result = await task.value
        if !isKnown { signIns[address] = signIns[address].flatMap { $0 > 1 ? $0 - 1 : nil } }
        switch result {
        case .success(let user): entries[id]?.opened = user
        case .failure(let error):
            await forget(id, removingHome: false)
            if error.code == .wrongCredentials { noteRefusal(id) }
            // Identity answers the others while somebody guesses.
            if !isKnown, [.wrongCredentials, .requestRateLimited, .serviceBusy].contains(error.code) {
                noteFailure(address)
            }
        }
        closeIdle()
        return try result.get()
    }

    private func noteRefusal(_ id: String) {
        if refused.count >= 1000 { refused = [:] }
        refused[id] = .now
    }

    private func noteFailure(_ address: String) {
        let now = ContinuousClock.now
        if failures.count >= 1000 { failures = failures.filter { now - $0.value.since < .seconds(60) } }
        let former = failures[address].flatMap { now - $0.since < .seconds(60) ? $0 : nil }
        failures[address] = ((former?.count ?? 0) + 1, former?.since ?? now)
    }

    private static let wrongCredentials = CloudError(
        .wrongCredentials,
        "The account's name or the app password is wrong. Create one: nephos account app-password create")

    static let notSignedIn = CloudError(.notSignedIn, "You are not signed in.")
    static let revoked = CloudError(.deviceRevoked, "This browser was signed out on another device.")

    /// The home's name. The client's half of the key cannot be found from it, since it has 128 random bits or more.
    private static func id(_ kind: String, _ parts: String...) -> String {
        let digest = SHA256.hash(data: Data((["nephos web \(kind)"] + parts).joined(separator: "\0").utf8))
        return hexadecimal(digest.prefix(16))
    }

    /// An app password is for one program, and does not open the whole account.
    private func requireOwnPassword(_ session: Session) async throws(CloudError) {
        do throws(CloudError) { _ = try await session.appPasswords() } catch {
            _ = try? await session.signOut(keepsUnsent: true)
            guard error.code == .permissionFailure else { throw error }
            throw CloudError(.wrongCredentials, "This is an app password. Sign in with the account's own password.")
        }
    }

    static func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    private static let cookieCharacters = 64

    private func openUser(_ id: String, _ secret: String, _ signIn: SignIn?) async -> Result<WebUser, CloudError> {
        let home = URL(fileURLWithPath: folder + "/" + id, isDirectory: true)
        let isNew = !FileManager.default.fileExists(atPath: home.path)
        do throws(CloudError) {
            var options = DeviceOptions()
            options.sealingKey = HKDF<SHA256>.deriveKey(
                inputKeyMaterial: SymmetricKey(data: Data(secret.utf8)), salt: half.withUnsafeBytes { Data($0) },
                info: Data("nephos web session".utf8), outputByteCount: 32)
            let session = try await open(home, options)
            do throws(CloudError) {
                if let signIn, try session.account?.accountName.lowercased() != signIn.account {
                    try await session.signIn(
                        connection: connection, account: signIn.account, password: signIn.password,
                        deviceName: signIn.deviceName, deviceModel: signIn.isBrowser ? "browser" : "nephos-web",
                        policyClass: .smallDevice, code: signIn.code)
                    if signIn.isBrowser { try await requireOwnPassword(session) }
                    // Copies of contents are on the server; here they would only take room.
                    try session.setContentCache(maxBytes: 0)
                }
                return .success(try WebUser(session))
            } catch {
                session.close()
                throw error
            }
        } catch {
            if isNew { try? FileManager.default.removeItem(at: home) }
            return .failure(error)
        }
    }

    // MARK: Going

    private func forget(_ id: String, removingHome: Bool) async {
        guard let entry = entries.removeValue(forKey: id) else { return }
        let removed = "\(folder)/\(id)-\(UUID().uuidString)"
        // At once: another request may make the home again meanwhile.
        if removingHome { try? FileManager.default.moveItem(atPath: "\(folder)/\(id)", toPath: removed) }
        if case .success(let user) = await entry.user.value { user.close() }
        if removingHome { try? FileManager.default.removeItem(atPath: removed) }
    }

    /// Closes sessions that were not used for a time, and those above ``openMax``.
    func closeIdle(after time: Duration = WebSessions.idleTime) {
        let now = ContinuousClock.now
        var byUse = entries.sorted { $0.value.used < $1.value.used }.map { ($0.key, $0.value.used) }
        while let (id, used) = byUse.first, byUse.count > Self.openMax || now - used > time {
            byUse.removeFirst()
            // A session that is still read from ends after that.
            if let user = entries.removeValue(forKey: id)?.opened { closing[id] = Closing(user: user) }
        }
        closing = closing.filter { $0.value.user != nil }
    }

    /// Closes unused sessions, and removes homes that were not used for long. To be called from time to time.
    package func sweep() async {
        closeIdle()
        let manager = FileManager.default
        for name in (try? manager.contentsOfDirectory(atPath: folder)) ?? []
        where entries[name] == nil && closing[name] == nil {
            let database = "\(folder)/\(name)/device.sqlite-wal"
            let used = [database, "\(folder)/\(name)"].compactMap {
                (try? manager.attributesOfItem(atPath: $0))?[.modificationDate] as? Date
            }.max()
            guard let used, used.timeIntervalSinceNow < -Self.homeRetention else { continue }
            try? manager.removeItem(atPath: "\(folder)/\(name)")
        }
    }

    /// Closes all sessions.
    package func close() async {
        for id in Array(entries.keys) { await forget(id, removingHome: false) }
    }
}

/// A program or a browser that has signed in, which is a device of an account.
package final class WebUser: Sendable {
    package let session: Session
    package let account: String
    let hidden = HiddenFiles()
    let recent = RecentPlaces()

    /// The session is the person's own, on their own machine: changes are made here at once, and sent when they can be.
    let isOwn: Bool

    package init(_ session: Session, isOwn: Bool = false) throws(CloudError) {
        (self.session, self.isOwn) = (session, isOwn)
        account = try session.account?.accountName.lowercased() ?? ""
    }

    /// Whether the device's sign-in has not ended, as far as is known.
    var isSignedIn: Bool {
        get async { (try? session.account).flatMap { $0 }.map { !$0.revoked } ?? false }
    }

    /// A container whose items are known here: they are not on a new device.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement` where the account has no such container.
    func container(_ name: String) async throws(CloudError) -> UbiquityContainer {
        let container = try await session.container(name)
        do throws(CloudError) { _ = try container.accepted.entry(at: DocumentPath(inDocuments: [])) } catch {
            guard error.code == .storeOutOfStep else { throw error }
            try await container.ready(timeout: .seconds(60))
        }
        return container
    }

    /// A container's items, and changes of them.
    ///
    /// - Throws: ``CloudError`` as ``container(_:)`` does.
    func files(_ name: String) async throws(CloudError) -> AcceptedChanges {
        var files = try await container(name).accepted
        if isOwn { files.patience = nil }
        return files
    }

    func close() { session.close() }
}
