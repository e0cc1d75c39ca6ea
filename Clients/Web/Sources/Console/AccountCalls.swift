internal import Foundation
internal import NephosCore
internal import NephosKit

/// The calls of the pages of devices, app passwords, storage and activity.
enum AccountCalls {
    private static let auditMax = 100

    static let methods: [String: ConsoleMethod] = [
        "session": ConsoleMethod { user in try session(of: user) },
        "account.devices": ConsoleMethod(devices), "account.renameDevice": ConsoleMethod(renameDevice),
        "account.revokeDevice": ConsoleMethod(revokeDevice), "account.appPasswords": ConsoleMethod(appPasswords),
        "account.createAppPassword": ConsoleMethod(createAppPassword),
        "account.revokeAppPassword": ConsoleMethod(revokeAppPassword),
        "account.changePassword": ConsoleMethod(changePassword), "account.storage": ConsoleMethod(storage),
        "account.activity": ConsoleMethod(activity),
    ]

    struct SessionRow: Encodable {
        struct Device: Encodable {
            var id: String
            var name: String
        }
        var account: String
        var device: Device
        var app: String
        var containers: [String]
        /// Served on the person's own machine, where there is nothing to sign in to.
        var local: Bool?
    }

    static func session(of user: WebUser) throws -> SessionRow {
        guard let account = try user.session.account else { throw WebSessions.notSignedIn }
        return SessionRow(
            account: account.accountName,
            device: SessionRow.Device(id: account.deviceID.rawValue, name: account.deviceName),
            app: account.defaultApp.rawValue, containers: try user.session.containers(),
            local: user.isOwn ? true : nil)
    }

    // MARK: Devices

    private struct Devices: Encodable {
        struct Device: Encodable {
            var id: String
            var name: String
            var model: String
            var platform: String
            var enrolled: UInt64
            var lastSeen: UInt64
            var isRevoked: Bool?
            var isThis: Bool?
            /// The name of the app password that it signed in with.
            var appPassword: String?
        }
        var devices: [Device]
    }

    private static func devices(_ user: WebUser) async throws -> Devices {
        let own = try user.session.account?.deviceID
        return Devices(
            devices: try await user.session.devices().map { device in
                Devices.Device(
                    id: device.id.rawValue, name: device.name, model: device.model, platform: device.platform,
                    enrolled: device.enrolled.milliseconds, lastSeen: device.lastSeen.milliseconds,
                    isRevoked: device.isRevoked ? true : nil, isThis: device.id == own ? true : nil,
                    appPassword: device.appPassword)
            })
    }

    private struct RenameDevice: Decodable {
        var device: String
        var name: String
    }

    private static func renameDevice(_ user: WebUser, _ arguments: RenameDevice) async throws -> ConsoleDone {
        try await user.session.rename(DeviceID(arguments.device), to: arguments.name)
        return ConsoleDone()
    }

    private struct OfDevice: Decodable {
        var device: String
    }

    private static func revokeDevice(_ user: WebUser, _ arguments: OfDevice) async throws -> ConsoleDone {
        try await user.session.revoke(DeviceID(arguments.device))
        return ConsoleDone()
    }

    // MARK: Passwords

    private struct PasswordRow: Encodable {
        var id: String
        var name: String
        var scope = "webdav"
        var created: UInt64
        var lastUsed: UInt64?

        init(_ password: AppPassword) {
            (id, name) = (password.id, password.name)
            (created, lastUsed) = (password.created.milliseconds, password.lastUsed?.milliseconds)
        }
    }

    private struct Passwords: Encodable {
        var passwords: [PasswordRow]
    }

    private static func appPasswords(_ user: WebUser) async throws -> Passwords {
        Passwords(passwords: try await user.session.appPasswords().map(PasswordRow.init))
    }

    private struct CreateAppPassword: Decodable {
        var name: String
    }

    private struct Created: Encodable {
        var password: PasswordRow
        /// Shown once.
        var secret: String
    }

    private static func createAppPassword(_ user: WebUser, _ arguments: CreateAppPassword) async throws -> Created {
        let (password, secret) = try await user.session.createAppPassword(arguments.name)
        return Created(password: PasswordRow(password), secret: secret)
    }

    private struct OfPassword: Decodable {
        var id: String
    }

    private static func revokeAppPassword(_ user: WebUser, _ arguments: OfPassword) async throws -> ConsoleDone {
        try await user.session.revokeAppPassword(arguments.id)
        return ConsoleDone()
    }

    private struct ChangePassword: Decodable {
        var old: String
        var new: String
        var signOutOthers: Bool?
    }

    private static func changePassword(_ user: WebUser, _ arguments: ChangePassword) async throws -> ConsoleDone {
        try await user.session.changePassword(
            from: arguments.old, to: arguments.new, signsOutOthers: arguments.signOutOthers ?? false)
        return ConsoleDone()
    }

    // MARK: Storage

    private struct Storage: Encodable {
        struct Item: Encodable {
            /// The app, or the device of a backup.
            var name: String
            var bytes: UInt64
        }
        struct Service: Encodable {
            var service: String
            var bytes: UInt64
            var countsOnPlan: Bool
            var items: [Item]
        }
        var plan: String
        var planBytes: UInt64
        var usedBytes: UInt64
        /// Services that did not answer.
        var silent: [String]
        var services: [Service]
    }

    private static func storage(_ user: WebUser) async throws -> Storage {
        let storage = try await user.session.storage(timeout: .seconds(10))
        let names = await user.deviceNames()
        return Storage(
            plan: storage.plan, planBytes: storage.planBytes, usedBytes: storage.usedBytes,
            silent: storage.silent.map(\.rawValue),
            services: storage.services.map { service in
                Storage.Service(
                    service: service.service.rawValue, bytes: service.bytes, countsOnPlan: service.countsOnPlan,
                    items: service.items.map { item in
                        let device = item.device.isEmpty ? nil : names[DeviceID(item.device)] ?? item.device
                        return Storage.Item(name: device ?? item.app, bytes: item.bytes)
                    })
            })
    }

    // MARK: Activity

    private struct Activity: Decodable {
        var before: String?
    }

    private struct Audit: Encodable {
        struct Entry: Encodable {
            var number: String
            var time: UInt64
            var event: String
            var deviceName: String
            var byOperator: Bool
            var details: [String: String]
        }
        var entries: [Entry]
        var next: String?
    }

    private static func activity(_ user: WebUser, _ arguments: Activity) async throws -> Audit {
        let entries = try await user.session.audit(before: arguments.before.flatMap { UInt64($0) }, limit: auditMax)
        return Audit(
            entries: entries.map { entry in
                Audit.Entry(
                    number: "\(entry.number)", time: entry.time.milliseconds, event: entry.event,
                    deviceName: entry.deviceName, byOperator: entry.byOperator, details: entry.details)
            },
            next: entries.count == auditMax ? entries.last.map { "\($0.number)" } : nil)
    }
}
