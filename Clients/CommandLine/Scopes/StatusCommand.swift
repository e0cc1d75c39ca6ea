import ArgumentParser
import Foundation
import NephosCore
import NephosKit

struct StatusCommand: AsyncParsableCommand, OwnTimeout {
    private static let waits: Duration = .seconds(2)
    static let standardTimeout: Duration? = waits
    static let configuration = CommandConfiguration(
        commandName: "status",
        abstract: "Show the services, the signed-in account, and whether everything is in sync.",
        discussion: """
            Pending changes are sent first. One part shows this machine's deployment, the other this device \
            with one line for each app and each folder of the agent; a part without data is left out. With --app or --service only the \
            device is shown, without folders. The exit code is the deployment's; if it is 0, that of the first \
            line that is not in sync.
            """)

    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var scopes: ScopeOptions
    @OptionGroup var columns: TableOptions
    @OptionGroup var output: OutputOptions

    @Flag(help: "Print only the connection string.")
    var connection = false

    @Flag(
        name: .shortAndLong,
        help: "Also print epochs, change tokens, digests and the links between services.")
    var verbose = false

    private struct Report: Encodable {
        var deployment: DeploymentStatus?
        var device: DeviceStatus?

        func encode(to encoder: any Encoder) throws {
            try deployment?.encode(to: encoder)
            try device?.encode(to: encoder)
        }
    }

    func validate() throws {
        guard !connection || scopes.isAll else {
            throw ValidationError("--connection is the deployment's, and --app and --service are this device's.")
        }
    }

    func run() async throws {
        let directory = deployment.directory
        if connection {
            try directory.requireDeployment()
            return try StandardOutput.line("\(try OperatorConnection(directory: directory).connectionString)")
        }
        // A home that is named is asked for, and missed where it is not there. So is a deployment.
        let isNamed = scopes.device.home != nil
        let isOfDevice = try isNamed || scopes.device.hasHome
        // Of a machine that has neither, the deployment is what is missed.
        let isOfDeployment = try scopes.isAll && (directory.exists || deployment.deployment != nil || !isOfDevice)
        if isOfDeployment { try directory.requireDeployment() }
        let deployment = isOfDeployment ? try DeploymentStatus(directory) : nil
        let limit = directory.timeout ?? Self.waits
        let device =
            isOfDevice || !scopes.isAll
            ? try await scopes.device.withSession { session in try await DeviceStatus(session, scopes, within: limit) }
            : nil
        let texts = [deployment?.text(directory, isVerbose: verbose), device?.text(isVerbose: verbose)].compactMap {
            $0
        }
        try output.print(Report(deployment: deployment, device: device), text: texts.joined(separator: "\n\n"))
        try deployment?.end()
        // Beside a deployment that nobody here uses, this user's home without an account is nothing wrong.
        try device?.end(needsAccount: isNamed || deployment == nil)
    }
}

/// Who is signed in on a device, and where everything stands that it keeps in step.
private struct DeviceStatus: Encodable {
    private struct Device: Encodable {
        var home: String
        var account: String?
        var device: String?
        var deviceId: String?
        /// Why the server has turned it away.
        var reason: String?
        /// Where nobody is signed in: how many requests wait here for their account to do so.
        var unsent: Int?
        /// And how much of it was refused, or conflicts with others.
        var undecided: Int?
    }

    private struct Line: Encodable {
        var app: String
        var service: String
        var name: String?
        var state: String
        var token: String
        var following: Bool
        var pending: Int
        var refused: Int
        var leftBehind: Int
        /// Conflicts of files and records that a person has to decide.
        var conflicts: Int
        var reason: String?
        var notes: [String]
    }

    private enum Keys: CodingKey { case device, scopes, folders }

    private let device: Device
    private let left: LeftUnsent?
    /// Of the agent.
    private var folders: [FolderStatus] = []
    private var found: [(scope: Scope, standing: Standing, status: StoreStatus, conflicts: Int)] = []

    init(_ session: Session, _ options: ScopeOptions, within limit: Duration) async throws {
        let account = try session.account
        left = try await session.leftUnsent
        device = Device(
            home: session.home.path, account: account?.accountName, device: account?.deviceName,
            deviceId: account?.deviceID.rawValue,
            reason: account?.ending?.sentence, unsent: left?.count, undecided: left?.undecidedCount)
        guard account != nil else { return }
        found = try await options.scopes(in: session, within: limit).each(in: session) { scope in
            let asked = try await Asked(scope, within: limit)
            let status = try await scope.isFollowed(within: limit, after: asked.status)
            // A conflict is the same on all devices: nothing is out of step for it.
            let conflicts = try await scope.conflictCount()
            var standing = Standing(status, failure: asked.failure)
            if conflicts > 0 {
                standing.notes.append(
                    "\(conflicts == 1 ? "One conflict waits" : "\(conflicts) conflicts wait") to be decided. "
                        + "See: nephos conflicts")
            }
            return (scope, standing, status, conflicts)
        }
        if options.isAll { folders = try await FolderStatus.all(session) }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Keys.self)
        try container.encode(device, forKey: .device)
        try container.encode(
            found.map { scope, standing, status, conflicts in
                Line(
                    app: scope.id.app.rawValue, service: scope.id.service.rawValue,
                    name: scope.id.name.isEmpty ? nil : scope.id.name, state: standing.state.rawValue,
                    token: status.head.description, following: status.isFollowing, pending: status.pending.count,
                    refused: status.refused.count, leftBehind: status.leftBehind.count, conflicts: conflicts,
                    reason: standing.reason,
                    notes: standing.notes)
            }, forKey: .scopes)
        if !folders.isEmpty { try container.encode(folders, forKey: .folders) }
    }

    func text(isVerbose: Bool) -> String {
        guard let account = device.account, let name = device.device else {
            let nobody = "No account is signed in on this device (\(inLine(device.home)))."
            return [nobody, left?.text].compactMap { $0 }.joined(separator: "\n")
        }
        // One thing that is kept in step says itself what holds it up; of several it is said once, before them.
        let heldUpCount = found.count { $0.standing.cause?.sentence == device.reason }
        let reason = heldUpCount == 1 ? nil : device.reason
        let lines = found.flatMap { scope, standing, _, _ in
            let full = isVerbose ? standing.line : standing.briefLine
            let line = reason.map { full.replacing(": \($0)", with: ".") } ?? full
            return ["\(scope.label): \(Colour.highlight(stateOf: line))"] + standing.notes.map { "  \($0)" }
        }
        return
            (["Signed in as \(inLine(account)), device \(inLine(name)), in \(inLine(device.home))"]
            + [reason].compactMap { $0 } + lines + folders.map(\.text)).joined(separator: "\n")
    }

    func end(needsAccount: Bool) throws(ExitStatus) {
        if needsAccount || left != nil, device.account == nil { throw ExitStatus.refused }
        try found.map(\.standing).end()
        if !folders.allSatisfy(\.isSettled) { throw ExitStatus.outOfStep }
    }
}

extension Scope {
    /// The status once it is known whether changes by other devices arrive, or why not.
    ///
    /// - Parameter status: As it was just now.
    fileprivate func isFollowed(within limit: Duration, after status: StoreStatus) async throws -> StoreStatus {
        let deadline = ContinuousClock.now + limit
        var status = status
        while status.problem == nil, !status.isFollowing, status.followingProblem == nil, .now < deadline {
            try await Task.sleep(for: .milliseconds(20))
            status = try await self.status()
        }
        if status.problem == nil, !status.isFollowing, status.followingProblem == nil {
            status.followingProblem = CloudError(.deadlineExceeded, "The server has not answered in time.")
        }
        return status
    }
}
