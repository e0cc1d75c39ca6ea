import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import NephosWeb

struct ConsoleCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "console", abstract: "Show this device's data in a browser, until Ctrl-C.",
        discussion: """
            It shows files, values, devices and what waits to be sent, also without a network. It listens on this \
            machine alone. The address works once; run the command again for another. Exit code 4: no account is \
            signed in on this device, or not any more.
            """)

    @Option(help: "The port (default: one that is free).") var port = 0
    @Flag(help: "Only print the address, and start no browser.") var noBrowser = false
    @OptionGroup var device: DeviceOptionGroup
    @OptionGroup var output: OutputOptions

    func validate() throws {
        guard (0...65_535).contains(port) else { throw ValidationError("--port is 0 to 65535.") }
    }

    func run() async throws {
        try await device.withSession { session in
            try requireAccess(session)
            let console = try HomeConsole(session, port: port)
            try output.print(
                ["address": console.address], text: "Open this address in a browser:\n\(console.address)")
            if !noBrowser, !output.json { startBrowser(console.address) }
            defer { withExtendedLifetime(console) {} }
            while true {
                try await Task.sleep(for: .seconds(1))
                try requireAccess(session)
            }
        }
    }

    /// - Throws: ``CloudError`` `.notSignedIn`, also of a sign-out meanwhile; `.deviceRevoked`.
    private func requireAccess(_ session: Session) throws(CloudError) {
        if let ending = try session.requireAccount().ending { throw ending }
    }

    /// On a desktop. Elsewhere the printed address is enough.
    private func startBrowser(_ address: String) {
        let environment = ProcessInfo.processInfo.environment
        guard environment["DISPLAY"] != nil || environment["WAYLAND_DISPLAY"] != nil, isatty(STDOUT_FILENO) == 1 else {
            return
        }
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["xdg-open", address]
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle.nullDevice
        try? process.run()
    }
}
