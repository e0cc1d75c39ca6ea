import ArgumentParser
import Foundation
import NephosBackup
import NephosContent
import NephosCore
import NephosServiceKit
import NephosWire

struct ScrubCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "scrub", abstract: "Check all stored content for disk damage now.",
        discussion: """
            The services read all content within seven days by themselves. They fetch lost content from \
            devices that have it. After Ctrl-C the services continue.
            """)

    @Option(help: "Only this service: documents or records (default: both).") var service: String?
    @OptionGroup var data: DataOptions
    @OptionGroup var deployment: DeploymentOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        guard let service else { return }
        guard Deployment.contentServices.contains(where: { $0.rawValue == service }) else {
            throw ValidationError("Only documents and records have content.")
        }
    }

    private struct Row: Encodable {
        var service: String
        /// That were read.
        var bytes: Int
        /// Chunks that cannot be read, from this round and before.
        var damagedChunks: Int
        /// Segments that could not be read through.
        var unreadSegments: Int

        var isWhole: Bool { damagedChunks == 0 && unreadSegments == 0 }

        var text: String {
            let read = "\(service): \(describe(bytes: UInt64(clamping: bytes))) were read"
            guard !isWhole else { return read + ", and are whole." }
            var lines = [read + "."]
            if damagedChunks > 0 {
                lines.append(
                    "  \(counted(damagedChunks, "chunk")) cannot be read. Devices that have them bring them back; the "
                        + "service's log names accounts and containers, and a backup may have them whole.")
            }
            if unreadSegments > 0 {
                lines.append("  \(counted(unreadSegments, "segment")) could not be read through. Look at the disk.")
            }
            return lines.joined(separator: "\n")
        }
    }

    func run() throws {
        try deployment.directory.requireDeployment()
        let services = Deployment.contentServices.filter { service.map($0.rawValue.hasSameBytes(as:)) ?? true }
        let place = data.place(of: deployment)
        let rounds = ScrubRounds(
            try OperatorConnection(directory: deployment.directory),
            of: services.map { ($0, place.contentFolder(of: $0)) })
        Interrupt.hold()
        defer { Interrupt.release() }
        let bar = ProgressLine("reading", isShown: !output.json)
        defer { bar.clear() }
        let found = try rounds.run { bar.show(done: $0, total: $1) }
        bar.clear()
        let rows = found.map { service, counters in
            func number(_ name: String) -> Int { Int(clamping: counters[name] ?? 0) }
            return Row(
                service: service.rawValue, bytes: number("content.scrub.bytes"),
                damagedChunks: number("chunks.damaged"),
                unreadSegments: number("content.scrub.unread_segments"))
        }
        try output.print(rows, text: rows.map(\.text).joined(separator: "\n"))
        if rows.contains(where: { !$0.isWhole }) { throw ExitStatus.files }
    }
}

/// Asks services for a round each, by a file in their folders of content, and waits until they have ended.
private struct ScrubRounds {
    /// Between two looks.
    private static let pause = 0.25
    /// Until a service has seen the file, which it looks for twice a minute; and without any sign of a round afterwards.
    private static let patience: Duration = .seconds(90)
    private static let ended = "content.scrub.rounds"

    private let connection: OperatorConnection
    private let services: [(service: ServiceName, folder: String)]

    init(_ connection: OperatorConnection, of services: [(ServiceName, String)]) {
        self.connection = connection
        self.services = services
    }

    private func request(in folder: String) -> String { folder + "/" + SegmentStore.scrubRequest }

    /// - Parameter progress: Gets the bytes that were read, and of how many, of all services together.
    /// - Returns: What each says of itself in the end.
    /// - Throws: ``CloudError`` `.networkUnavailable`: a service does not answer; `.storageFailure`: its folder is not
    ///   there or not writable, or the service does not find its contents; `.operationCancelled` by Ctrl-C.
    func run(_ progress: (Int, Int) -> Void) throws -> [(ServiceName, [String: UInt64])] {
        var before = try services.map { try counters(of: $0.service)[Self.ended] ?? 0 }
        // Somebody else may have asked, too: the round is for both, and is not taken back for one.
        var made: [String] = []
        for (_, folder) in services {
            let file = open(request(in: folder), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
            guard file >= 0 || errno == EEXIST else {
                made.forEach { unlink($0) }
                throw CloudError(
                    .storageFailure, "The folder of content is not there, or cannot be written. Say where with --data.",
                    details: ["path": folder])
            }
            guard file >= 0 else { continue }
            close(file)
            made.append(request(in: folder))
        }
        var lastSign = ContinuousClock.now
        while true {
            try Interrupt.check()
            let now = try services.map { try counters(of: $0.service) }
            var (ended, underWay) = (0, 0)
            for (place, service) in services.enumerated() {
                let rounds = now[place][Self.ended] ?? 0
                if access(request(in: service.folder), F_OK) == 0 {
                    // What ends until then is another's round.
                    before[place] = rounds
                } else if rounds > before[place] {
                    ended += 1
                } else if now[place]["content.scrub.under_way"] == 1 {
                    underWay += 1
                }
            }
            if let place = now.firstIndex(where: { $0["content.missing"] ?? 0 > 0 }) {
                made.forEach { unlink($0) }
                throw CloudError(
                    .storageFailure,
                    "A service does not find its contents: the disk with them is not there. Bring it back, and ask again.",
                    details: ["service": services[place].service.rawValue, "path": services[place].folder])
            }
            if ended == services.count { return Array(zip(services.map(\.service), now)) }
            if ended + underWay == services.count {
                lastSign = .now
                func sum(_ name: String) -> Int { now.reduce(0) { $0 + Int(clamping: $1[name] ?? 0) } }
                progress(sum("content.scrub.bytes"), sum("content.scrub.bytes_total"))
            }
            guard lastSign.duration(to: .now) < Self.patience else {
                made.forEach { unlink($0) }
                throw CloudError(
                    .serverResponseLost,
                    "A service has not begun to read its content, or was started again. See nephos status, and ask again."
                )
            }
            Thread.sleep(forTimeInterval: Self.pause)
        }
    }

    private func counters(of service: ServiceName) throws -> [String: UInt64] {
        try connection.call(service, WireCheckHealth(), returning: WireCheckHealthReply.self).counters
    }
}
