import ArgumentParser
import Foundation
import NephosCore
import NephosServiceKit

struct LogsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "logs",
        abstract:
            "Show the services' logs, and follow them until Ctrl-C.",
        discussion: """
            The lines of all services and of their supervisor are sorted by time. They also tell why a \
            service ended. Under systemd use journalctl -u 'nephos@*', under docker compose use \
            docker-compose logs.
            """)

    @Option(
        name: .customLong("service"),
        help:
            "Only identity, keyvalue, documents, records, notifications or supervisor; repeat for more (default: all).")
    var services: [String] = []

    @Flag(inversion: .prefixedNo, help: "Follow the logs, or end after the present lines.")
    var follow = true

    @Option(help: "Begin with this many of the last lines.")
    var lines = 100

    @Option(help: "The lowest level: trace, debug, info, notice, warning, error or critical.")
    var level: String?

    @Option(help: "Only lines of this request and of its consequences in other services.")
    var request: String?

    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    private static let supervisor = "supervisor"
    private static var names: [String] { ServiceName.programs.map(\.rawValue) + [supervisor] }
    private static let linesMax = 100_000
    /// Between two looks at the files, in microseconds.
    private static let pause: useconds_t = 200_000

    func validate() throws {
        for name in services where !Self.names.contains(name) {
            throw ValidationError("There is no service \(name). There are: \(Self.names.joined(separator: ", ")).")
        }
        guard (0...Self.linesMax).contains(lines) else { throw ValidationError("--lines is 0 to \(Self.linesMax).") }
        if let level, !LoggedLine.levels.contains(level) {
            throw ValidationError("--level is one of: \(LoggedLine.levels.joined(separator: ", ")).")
        }
    }

    func run() throws {
        let directory = deployment.directory
        try directory.requireDeployment()
        var files = (services.isEmpty ? Self.names : services).map { name in
            LogFile(name, name == Self.supervisor ? directory.supervisorLog : directory.log(of: ServiceName(name)))
        }
        guard access(directory.supervisorLog, F_OK) == 0 || directory.supervisor != nil else {
            throw CloudError(
                .unknownItem,
                "nephos up has not run here, and so there are no logs. Under systemd: journalctl -u 'nephos@*'. Under docker compose: docker-compose logs.",
                details: ["deployment": directory.path])
        }
        try show(Self.merged(files.indices.flatMap { files[$0].last(lines, where: isWanted) }).suffix(lines))
        while follow {
            usleep(Self.pause)
            guard !Self.hasNoReader else { throw OutputFailure(number: EPIPE) }
            var news: [LoggedLine] = []
            for index in files.indices { files[index].news { if isWanted($0) { news.append($0) } } }
            try show(Self.merged(news)[...])
        }
    }

    /// Lines of one time stay in the order in which they stand.
    private static func merged(_ lines: [LoggedLine]) -> [LoggedLine] {
        lines.enumerated().sorted { ($0.element.time, $0.offset) < ($1.element.time, $1.offset) }.map(\.element)
    }

    private func isWanted(_ line: LoggedLine) -> Bool {
        let levels = LoggedLine.levels
        if let least = level.flatMap({ levels.firstIndex(of: $0) }), let own = levels.firstIndex(of: line.level),
            own < least
        {
            return false
        }
        return request.map(line.concerns) ?? true
    }

    private func show(_ lines: ArraySlice<LoggedLine>) throws {
        for line in lines {
            // Whatever is in it, it stays one line.
            try StandardOutput.write((output.json ? try OutputOptions.encode(line.object) : inLine(line.text)) + "\n")
        }
    }

    /// Whether whoever read has gone: it would be told at the next line only, and that may be tomorrow's.
    private static var hasNoReader: Bool {
        var output = pollfd(fd: STDOUT_FILENO, events: 0, revents: 0)
        return poll(&output, 1, 0) > 0 && output.revents & Int16(POLLERR) != 0
    }
}
