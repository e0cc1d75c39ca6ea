import NephosBus
import NephosCore
import NephosWire
import NephosZeroMQ
import SwiftProtobuf

/// A deployment of its own with a zone of so many records, and clients that save and read them.
struct RecordsBench {
    /// Records of one request.
    static let batch = 400

    let deployment: LoadDeployment
    let transport = ZeroMQTransport()
    let enrolment: Enrolment
    let devices: [LoadDevice]
    let sample: SampleRecords
    let progress: Progress
    private let quiet: Bool

    /// Makes a deployment for each number of records, and removes it when its rows are there.
    static func rows<Row>(
        of counts: Numbers, quiet: Bool, _ body: (LoadDeployment, Int) throws -> [Row]
    ) throws -> [Row] {
        defer { Progress(quiet: quiet).done() }
        return try counts.values.flatMap { count in
            let deployment = try LoadDeployment(directory: nil)
            defer { deployment.close() }
            return try body(deployment, count)
        }
    }

    /// - Parameters:
    ///   - clients: How many are signed in.
    ///   - dataBytes: Of a record.
    init(_ deployment: LoadDeployment, clients: Int, count: Int, dataBytes: Int = 100, quiet: Bool) throws {
        self.deployment = deployment
        self.quiet = quiet
        progress = Progress(quiet: quiet)
        progress.show("signing in")
        enrolment = try Enrolment(in: deployment, transport: transport)
        devices = try enrolment.devices(clients)
        sample = SampleRecords(container: enrolment.container, count: count, dataBytes: dataBytes)
    }

    /// Calls a method of records by the first client. It waits until the service answers.
    func call<Request: SwiftProtobuf.Message, Reply: SwiftProtobuf.Message>(
        _ request: Request, returning reply: Reply.Type
    ) throws -> Reply {
        try enrolment.call(
            request, to: enrolment.records, keys: devices[0].keys, accessToken: devices[0].accessToken,
            returning: reply)
    }

    /// The indexes of the zone's database.
    func indexes() throws -> [WireRecordIndexState] {
        var request = WireListRecordIndexes()
        request.container = enrolment.container
        return try call(request, returning: WireListRecordIndexesReply.self).indexes
    }

    /// Keeps so many clients busy, each with one request at a time.
    ///
    /// - Parameters:
    ///   - outcome: What comes of it is counted there.
    ///   - next: The next request; nil: there is none any more.
    func measureClients(
        _ clients: Int, _ label: String, warmUp: Duration = .zero, duration: Duration = .seconds(7200),
        _ outcome: WriteOutcome, _ next: @escaping @Sendable (Int) -> LoadRequest?
    ) throws -> WriteOutcome.Figures {
        let plan = (address: enrolment.records, devices: (0..<clients).map { devices[$0 % devices.count] })
        return try measure(
            deployment, transport, outcome, label: "\(sample.count) records: \(label)", quiet: quiet
        ) { loop in
            try ClosedLoop(
                loop: loop, to: plan.address, devices: plan.devices, warmUp: warmUp, duration: duration,
                outcome: outcome, next: next)
        }.figures
    }
}
