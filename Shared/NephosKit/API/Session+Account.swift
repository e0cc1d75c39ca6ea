public import NephosCore
internal import NephosWire

// What a person does with the account, from one of its devices.
extension Session {
    /// Gives a device of the account another name.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`, or `.invalidArguments` for a name that is empty, longer than
    ///   256 bytes, or has characters that cannot be seen.
    @discardableResult
    public func rename(_ device: DeviceID, to name: String) async throws(CloudError) -> DeviceInformation {
        var request = WireRenameDevice()
        request.deviceID = device.rawValue
        request.name = name
        let renamed = DeviceInformation(try await call(.identity, request, as: WireRenameDeviceReply.self).device)
        await noteName(renamed.name, of: renamed.id)
        return renamed
    }

    /// Notes what a device is called, as the server has said. If it is this one, it signs in again under that name.
    package func noteName(_ name: String, of device: DeviceID) async {
        guard let known = try? account, known.deviceID == device, known.deviceName != name else { return }
        // What cannot be kept now is said again.
        _ = try? await engine.perform { engine, completion in
            completion(
                Result { () throws(CloudError) in
                    try engine.changeSession { session, _ in
                        if session.deviceID == device { session.deviceName = name }
                    }
                })
        }
    }

    /// Changes the account's password.
    ///
    /// - Parameters:
    ///   - current: The password until now.
    ///   - new: The password from now on.
    ///   - signsOutOthers: Whether every other device has to sign in again.
    ///   - timeout: How long to wait for the answer; nil: as long as any call of this session.
    /// - Returns: How many devices were signed out.
    /// - Throws: ``CloudError`` `.wrongCredentials` when `current` is not the present one,
    ///   `.requestRateLimited` after too many of those.
    @discardableResult
    public func changePassword(
        from current: String, to new: String, signsOutOthers: Bool = false, timeout: Duration? = nil
    ) async throws(CloudError) -> Int {
        var request = WireChangePassword()
        request.currentPassword = current
        request.newPassword = new
        request.signOutOthers = signsOutOthers
        let reply = try await call(.identity, request, as: WireChangePasswordReply.self, timeout: timeout)
        return Int(reply.signedOut)
    }

    /// Closes the account permanently: every service destroys its keys and removes its data. Copies on devices stay
    /// until they sign in elsewhere.
    ///
    /// - Parameters:
    ///   - password: The account's password.
    ///   - timeout: How long to wait for the answer; nil: as long as any call of this session.
    /// - Throws: ``CloudError`` `.wrongCredentials`.
    public func closeAccount(password: String, timeout: Duration? = nil) async throws(CloudError) {
        var request = WireCloseAccount()
        request.password = password
        _ = try await call(.identity, request, as: WireCloseAccountReply.self, timeout: timeout)
    }

    /// The account's audit log, newest first.
    ///
    /// - Parameters:
    ///   - number: Only entries before this one; nil: from the newest.
    ///   - limit: At most 1000.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.networkUnavailable` and the like (try again).
    public func audit(before number: UInt64? = nil, limit: Int = 100) async throws(CloudError) -> [AuditEntry] {
        var request = WireListAudit()
        request.before = number ?? 0
        request.limit = UInt32(clamping: limit)
        return try await call(.identity, request, as: WireListAuditReply.self).entries.map(AuditEntry.init)
    }

    /// The account's plan and its use, by service, app and device.
    ///
    /// - Parameter timeout: How long to wait for each service's answer; nil: as long as any call of this session.
    /// - Throws: ``CloudError`` `.notSignedIn`, `.networkUnavailable` and the like (try again).
    public func storage(timeout: Duration? = nil) async throws(CloudError) -> StorageInformation {
        let reply = try await call(.identity, WireReadStorage(), as: WireReadStorageReply.self, timeout: timeout)
        var services: [StorageInformation.Service] = []
        var silent: [ServiceName] = []
        for service in [ServiceName.keyValue, .documents, .records] {
            // What can be asked is shown; a service that is away does not hide the others.
            let usage: WireListUsageReply
            do throws(CloudError) {
                usage = try await call(service, WireListUsage(), as: WireListUsageReply.self, timeout: timeout)
            } catch {
                // One that is there and has no such list stores nothing.
                if error.code != .unknownMethod { silent.append(service) }
                continue
            }
            let items = usage.items.map {
                StorageInformation.Item(app: $0.appID, device: $0.deviceID, bytes: $0.usedBytes)
            }
            services.append(
                StorageInformation.Service(
                    service: service, bytes: items.reduce(0) { $0 + $1.bytes }, countsOnPlan: usage.countsOnPlan,
                    items: items))
        }
        return StorageInformation(
            plan: reply.plan.planID, planBytes: reply.plan.sizeBytes,
            usedBytes: reply.services.reduce(0) { $0 + $1.usedBytes }, services: services, silent: silent)
    }

    /// Delivers a notice when use of the plan rises above 80, 90 or 95 percent, or falls again; first the present
    /// state, if it has ever passed a threshold.
    public var storageNotices: AsyncStream<StorageNotice> {
        let (engine, events) = (engine, events)
        return AsyncStream { continuation in
            let task = Task {
                // Both on the loop: what is told after the present state is heard, and nothing twice.
                let begun: (StorageNotice?, AsyncStream<DeviceEvent>)? = try? await engine.perform {
                    engine, completion in
                    let source = events.subscribe { if case .storage = $0 { true } else { false } }
                    completion(.success((engine.home.storageNotice, source)))
                }
                if let (present, source) = begun {
                    if let present { continuation.yield(present) }
                    for await event in source {
                        if case .storage(let notice) = event { continuation.yield(notice) }
                    }
                }
                continuation.finish()
            }
            continuation.onTermination = { _ in task.cancel() }
        }
    }
}

/// A password that a program uses in the place of the account's own. Its devices reach the documents alone.
public struct AppPassword: Sendable, Hashable {
    /// Its permanent id.
    public var id: String
    /// A name that the person has chosen.
    public var name: String
    /// By the server's clock.
    public var created: Timestamp
    /// When a device of it last signed in or renewed its tokens; nil: none ever did.
    public var lastUsed: Timestamp?

    init(_ wire: WireAppPassword) {
        id = wire.passwordID
        name = wire.name
        created = Timestamp(milliseconds: wire.createdAt)
        lastUsed = wire.lastUsedAt == 0 ? nil : Timestamp(milliseconds: wire.lastUsedAt)
    }
}

extension Session {
    /// Creates an app password for WebDAV.
    ///
    /// - Parameter name: A name; no two app passwords of an account have the same.
    /// - Returns: It, and the text for the program, which is not returned again.
    /// - Throws: ``CloudError`` `.alreadyExists`, `.limitExceeded` (revoke one), `.invalidArguments` for a name that is
    ///   empty or longer than 256 bytes; else as ``whoAmI()`` does.
    public func createAppPassword(_ name: String) async throws(CloudError) -> (password: AppPassword, secret: String) {
        var request = WireCreateAppPassword()
        request.name = name
        request.scope = .webdav
        let reply = try await call(.identity, request, as: WireCreateAppPasswordReply.self)
        return (AppPassword(reply.appPassword), reply.secret)
    }

    /// The account's app passwords, the oldest first.
    ///
    /// - Throws: ``CloudError`` as ``whoAmI()`` does.
    public func appPasswords() async throws(CloudError) -> [AppPassword] {
        try await call(.identity, WireListAppPasswords(), as: WireListAppPasswordsReply.self).appPasswords
            .map(AppPassword.init)
    }

    /// Revokes an app password: within seconds its devices can neither read nor write any more.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`; else as ``whoAmI()`` does.
    public func revokeAppPassword(_ id: String) async throws(CloudError) {
        var request = WireRevokeAppPassword()
        request.passwordID = id
        _ = try await call(.identity, request, as: WireRevokeAppPasswordReply.self)
    }
}
