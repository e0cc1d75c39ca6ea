import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosWire
import NephosZeroMQ
import Synchronization

/// An operator's tap on identity's events, as they are published. Those of other services carry what is their owners'
/// alone; their sockets let nobody in but notifications.
struct BusTap {
    var deployment: DeploymentOptions
    var output: OutputOptions
    var exitAfter: Int?

    private struct Line: Encodable {
        var service: String
        var partition: UInt32
        var token: String
        var previous: UInt64
        var owner: String
        var scope: String
        var reason: Int
        var device: String
        var items: [String]
        var operation: String
    }

    func run() async throws {
        let directory = deployment.directory
        try directory.requireDeployment()
        let files = DeploymentFiles(directory: directory.path)
        let roster = try files.roster()
        let keys = try files.operatorKeys()
        let entry = try roster.entry(of: .identity)
        let (events, continuation) = AsyncStream.makeStream(
            of: WireEvent.self, bufferingPolicy: .bufferingNewest(10_000))
        let loop = try ZeroMQTransport().startLoop(named: "tap") { loop in
            let options = SubscribeSocketOptions(
                endpoints: [entry.events], serverKey: try entry.key, keys: keys, topics: ["\(entry.service)/"])
            _ = try loop.makeSubscribeSocket(options) { messages in
                for message in messages where message.count > 1 {
                    for event in (try? message[1].decode(WireEventBatch.self))?.events ?? [] {
                        continuation.yield(event)
                    }
                }
            }
        }
        defer { loop.stop() }
        var printed = 0
        // Heartbeats, which only repeat a head, are left out.
        for await event in events where event.hasNotification {
            let line = Self.line(event)
            try output.print(
                line,
                text: "\(WatchCommand.time) \(line.service)/\(line.partition) \(line.previous)→\(line.token) "
                    + "\(line.scope) reason \(line.reason) \(line.items.joined(separator: ","))")
            printed += 1
            if let exitAfter, printed >= exitAfter { return }
        }
    }

    private static func line(_ event: WireEvent) -> Line {
        Line(
            service: event.service, partition: event.partition, token: ChangeToken(event.position).description,
            previous: event.previousSequence, owner: event.notification.owner, scope: event.notification.scope,
            reason: event.notification.reason.rawValue, device: event.notification.deviceID,
            items: event.notification.changes.map(\.item),
            operation: OperationID(bytes: event.notification.operationID)?.description ?? "")
    }
}
