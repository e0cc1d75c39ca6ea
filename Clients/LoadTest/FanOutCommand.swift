import ArgumentParser
import Foundation
import NephosBus
import NephosCore
import NephosWire
import NephosZeroMQ

struct FanOutCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fan-out", abstract: "Deliveries a second to many subscribers, and the memory of each.",
        discussion: """
            One writer pushes to a store that many connections follow. At --window 1 the next push is sent when every \
            subscriber has been told of the last; a wider window keeps more pushes on their way. NOTIFIED counts \
            from the write to the last delivery. The subscribers are connections of devices, 64 of each, \
            spread over loopback addresses. With --public the writer saves a record of a public database, and the \
            devices, each of an account of its own, follow its zone.
            """)

    @OptionGroup var options: LoadOptions
    @Option(help: "Subscribed connections.") var subscribers = Numbers([100, 1000, 5000])
    @Option(help: "Pushes on their way at once.") var window = Numbers([1, 16])
    @Flag(name: .customLong("public"), help: "A record of a public database, followed by many accounts.")
    var isPublic = false

    func run() throws {
        let deployment = try LoadDeployment(directory: options.deployment)
        defer { deployment.close() }
        let transport = ZeroMQTransport()
        var results: [LoadResult] = []
        for count in subscribers.values {
            for width in window.values {
                var runs: [LoadResult] = []
                for number in 1...options.runs {
                    let label = "\(count) subscribers, window \(width), run \(number) of \(options.runs)"
                    runs.append(try run(count, window: width, on: deployment, transport, label: label))
                }
                if let result = median(runs) { results.append(result) }
            }
        }
        try report(results, columns: ["subscribers", "window"], json: options.json)
    }

    private func run(
        _ count: Int, window: Int, on deployment: LoadDeployment, _ transport: ZeroMQTransport, label: String
    ) throws -> LoadResult {
        let enrolment = try Enrolment(in: deployment, transport: transport)
        defer { enrolment.close() }
        let connections = FanOutGenerator.connectionsOfDevice
        let devices = try enrolment.devices(
            1 + (count + connections - 1) / connections, eachOfAnotherAccount: isPublic)
        let changes: FanOutChanges =
            isPublic
            ? .saves(SampleRecords(container: enrolment.container, count: 1), owner: Owner(AppID(enrolment.store)))
            : .pushes(store: enrolment.store)
        if case .saves(let records, _) = changes {
            // The app's room is asked for by the first save, which is told to come back.
            _ = try enrolment.call(
                records.publicSave(0, bytes: options.bytes), to: enrolment.records, keys: devices[0].keys,
                accessToken: devices[0].accessToken, returning: WireModifyRecordsReply.self)
        }
        let plan = FanOutPlan(
            changes: changes, service: isPublic ? enrolment.records : enrolment.keyValue,
            subscriptions: enrolment.subscriptions, writer: devices[0], followers: Array(devices[1...]),
            subscribers: count, window: window,
            valueBytes: options.bytes, warmUp: .seconds(options.warmUp), duration: .seconds(options.seconds))
        let outcome = WriteOutcome()
        let before = deployment.residentBytes(of: .notifications) ?? 0
        let (figures, used) = try measure(deployment, transport, outcome, label: label, quiet: options.quiet) {
            try FanOutGenerator(loop: $0, plan: plan, outcome: outcome) {
                deployment.residentBytes(of: .notifications) ?? 0
            }
        }
        var extra = used.microseconds(perEachOf: figures.delivered)
        extra["frames_per_s"] = (Double(figures.frames) / figures.seconds).rounded()
        if figures.residentBytes > before {
            extra["kb_per_subscriber"] = (Double(figures.residentBytes - before) / 102.4 / Double(count)).rounded() / 10
        }
        return LoadResult(
            scenario: isPublic ? "fan-out of a public database" : "fan-out",
            parameters: ["subscribers": Double(count), "window": Double(window)],
            perSecond: Double(figures.delivered) / figures.seconds, reply: figures.replies.summary,
            notified: figures.notified.summary, failures: figures.failures, extra: extra)
    }
}
