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
            let page = noBrowser || output.json ? nil : BrowserPage(address: console.address)
            if let page { Interrupt.first { page.remove() } }
            defer {
                page?.remove()
                withExtendedLifetime(console) {}
            }
            page?.open()
            while true {
                try await Task.sleep(for: .seconds(1))
                if console.isOpened { page?.remove() }
                try requireAccess(session)
            }
        }
    }

    /// - Throws: ``CloudError`` `.notSignedIn`, also of a sign-out meanwhile; `.deviceRevoked`.
    private func requireAccess(_ session: Session) throws(CloudError) {
        if let ending = try session.requireAccount().ending { throw ending }
    }
}

/// A page that leads a browser to an address, in a folder of this user alone: other users of the machine can read a
/// program's arguments, and so would read the address.
struct BrowserPage: Sendable {
    private let folder: String
    private var path: String { folder + "/console.html" }

    /// - Returns: Nil: there is no desktop, or no room. Then the printed address is enough.
    init?(address: String) {
        let environment = ProcessInfo.processInfo.environment
        guard environment["DISPLAY"] != nil || environment["WAYLAND_DISPLAY"] != nil, isatty(STDOUT_FILENO) == 1,
            let page = BrowserPage(address: address, in: environment["HOME"] ?? NSHomeDirectory())
        else { return nil }
        self = page
    }

    /// - Parameter parent: Not `/tmp`, and no hidden folder: browsers that are installed as snaps cannot read those.
    init?(address: String, in parent: String) {
        // The folder's mode is 0700.
        guard let template = strdup(parent + "/nephos-console-XXXXXX") else { return nil }
        defer { free(template) }
        guard mkdtemp(template) != nil else { return nil }
        folder = String(cString: template)
        let text = "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=\(address)\">\n"
        let isMade = FileManager.default.createFile(
            atPath: path, contents: Data(text.utf8), attributes: [.posixPermissions: 0o600])
        guard isMade else {
            remove()
            return nil
        }
    }

    func open() {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["xdg-open", path]
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle.nullDevice
        try? process.run()
    }

    func remove() { try? FileManager.default.removeItem(atPath: folder) }
}
