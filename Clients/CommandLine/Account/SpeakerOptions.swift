import ArgumentParser
import NephosCore
import NephosKit
import NephosWire
import SwiftProtobuf

/// Who speaks for an account: one of its devices, or with `--account` the operator.
struct SpeakerOptions: ParsableArguments {
    @OptionGroup var device: DeviceOptionGroup
    @Option(help: "The account, as the operator (default: the signed-in account).")
    var account: String?
    @OptionGroup var deployment: DeploymentOptions

    /// The device that speaks; nil: the operator does.
    func thisDevice() async throws -> DeviceID? {
        guard account == nil else { return nil }
        return try await device.withSession { try $0.requireAccount().deviceID }
    }

    /// Has the device that speaks note what it is called, if that is among these.
    func note(_ devices: [WireDevice]) async throws {
        guard account == nil else { return }
        try await device.withSession { session in
            for device in devices { await session.noteName(device.name, of: DeviceID(device.deviceID)) }
        }
    }

    /// Calls identity.
    ///
    /// - Parameter request: Gets the account's name to put into the request; empty for a device.
    func call<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        returning: Response.Type, _ request: (String) -> Request
    ) async throws -> Response {
        if let account {
            return try OperatorConnection(directory: deployment.directory)
                .call(.identity, request(account), returning: Response.self)
        }
        let request = request("")
        return try await device.withSession { session in
            _ = try session.requireAccount()
            return try await session.call(.identity, request, as: Response.self, timeout: deployment.wait.duration)
        }
    }
}
