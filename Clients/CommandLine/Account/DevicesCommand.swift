import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import NephosWire

struct DevicesCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "devices", abstract: "List, rename and revoke the account's devices.", discussion: lastSeen,
        subcommands: [List.self, Rename.self, Revoke.self, AllowSignIn.self], defaultSubcommand: List.self)

    private static let lastSeen =
        "LAST SEEN is the time of the last sign-in or renewal. A device in use renews its access every ten minutes."

    private struct Row: Encodable {
        var id: String
        var name: String
        var model: String
        var platform: String
        var policyClass: DevicePolicyClass
        var enrolled: UInt64
        var lastSeen: UInt64
        var revoked: Bool
        var thisDevice: Bool

        init(_ wire: WireDevice, this: DeviceID?) {
            id = wire.deviceID
            name = wire.name
            model = wire.model
            platform = wire.platform
            policyClass = wire.policyClass == .smallDevice ? .smallDevice : .computer
            enrolled = wire.enrolledAt
            lastSeen = wire.lastSeenAt
            revoked = wire.revoked
            thisDevice = wire.deviceID == this?.rawValue
        }

        func cells(_ now: Timestamp) -> [String] {
            let state = revoked ? "revoked" : thisDevice ? "this device" : "active"
            let seen = tableTime(Timestamp(milliseconds: lastSeen), now: now)
            return [name, policyClass.rawValue, state, seen, String(id.prefix(12))]
        }
    }

    /// The one device of this name, or whose id begins with this.
    private static func find(_ text: String, _ speaker: SpeakerOptions) async throws -> WireDevice {
        let devices = try await devices(speaker)
        let matches = devices.filter {
            $0.deviceID == text || ($0.name == text && !$0.revoked)
                || (text.hasPrefix("dev_") && text.count > 4 && $0.deviceID.hasPrefix(text))
        }
        guard let match = matches.first else {
            throw CloudError(.unknownItem, "The account has no such device. See: nephos devices")
        }
        guard matches.count == 1 else {
            throw CloudError(.invalidArguments, "Several devices are called so. Use the id. See: nephos devices")
        }
        return match
    }

    private static func devices(_ speaker: SpeakerOptions) async throws -> [WireDevice] {
        var devices: [WireDevice] = []
        while true {
            let after = devices.last?.deviceID ?? ""
            let reply = try await speaker.call(returning: WireListDevicesReply.self) { account in
                var request = WireListDevices()
                request.accountName = account
                request.after = after
                return request
            }
            devices += reply.devices
            guard reply.more, !reply.devices.isEmpty else { break }
        }
        try await speaker.note(devices)
        return devices
    }

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the account's devices.", discussion: lastSeen)

        @OptionGroup var speaker: SpeakerOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let this = try await speaker.thisDevice()
            let rows = try await DevicesCommand.devices(speaker).map { Row($0, this: this) }
            let now = Timestamp(milliseconds: UInt64(Date().timeIntervalSince1970 * 1000))
            try output.print(
                rows, text: table(["NAME", "CLASS", "STATE", "LAST SEEN", "ID"], rows.map { $0.cells(now) }))
        }
    }

    struct Rename: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Rename a device.")

        @Argument(help: "The device's name, or the start of its id.") var target: String
        @Argument(help: "The new name.") var name: String
        @OptionGroup var speaker: SpeakerOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let device = try await DevicesCommand.find(target, speaker)
            let reply = try await speaker.call(returning: WireRenameDeviceReply.self) { account in
                var request = WireRenameDevice()
                request.deviceID = device.deviceID
                request.name = name
                request.accountName = account
                return request
            }
            try await speaker.note([reply.device])
            try output.print(
                Row(reply.device, this: nil), text: "\(device.name) is called \(reply.device.name) now.")
        }
    }

    struct AllowSignIn: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Create a code that lets a new device sign in at once.",
            discussion: """
                After many wrong passwords the server makes new devices wait. A code from a signed-in device \
                skips this wait. It is good for one attempt within ten minutes. The new device needs the \
                password too: nephos sign-in ... --code CODE
                """)

        @OptionGroup var speaker: SpeakerOptions
        @OptionGroup var output: OutputOptions

        private struct Code: Encodable {
            var code: String
            var lifetimeMilliseconds: UInt64
        }

        func run() async throws {
            let reply = try await speaker.call(returning: WireAllowSignInReply.self) { account in
                var request = WireAllowSignIn()
                request.accountName = account
                return request
            }
            try output.print(
                Code(code: reply.code, lifetimeMilliseconds: reply.lifetimeMilliseconds),
                text: """
                    \(reply.code)
                    Good for one attempt within \(reply.lifetimeMilliseconds / 60_000) minutes: nephos sign-in ... --code \(reply.code)
                    """)
        }
    }

    struct Revoke: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Revoke a device: within seconds it can neither read nor write.")

        @Argument(help: "The device's name, or the start of its id.") var target: String
        @OptionGroup var speaker: SpeakerOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let device = try await DevicesCommand.find(target, speaker)
            let reply = try await speaker.call(returning: WireRevokeDeviceReply.self) { account in
                var request = WireRevokeDevice()
                request.deviceID = device.deviceID
                request.accountName = account
                return request
            }
            try output.print(Row(reply.device, this: nil), text: "Revoked \(reply.device.name).")
        }
    }
}
