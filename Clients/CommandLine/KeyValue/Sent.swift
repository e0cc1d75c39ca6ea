import NephosCore
import NephosKit

/// Waits for the server's word on a change, and says how it went.
enum Sent {
    private struct Report: Encodable {
        var state: String
        var keys: [String]
        /// Of a deletion: the keys that this device had not. Whether anybody else had, it does not know.
        var notOnThisDevice: [String]?
        /// The keys of which the account has something newer.
        var superseded: [String]?
        var token: String?
        var reason: String?
    }

    private static let whenSignedOut = "After a sign-in nephos kv adopt offers it."

    /// - Parameters:
    ///   - done: What was done here.
    ///   - superseded: The keys that have another device's newer value, once the server has answered.
    ///   - whenSent: The same with all that is to be said, where those are no reason to fail.
    /// - Throws: ``CloudError`` `.quotaExceeded` or another refusal; ``ExitStatus/outOfStep`` if keys are superseded.
    static func wait(
        _ store: KeyValueStore, keys: [String], unknown: [String] = [], network: KeyValueCommand.NetworkOptions,
        output: OutputOptions, done: String, superseded: () throws -> [String] = { [] },
        whenSent: (() throws -> (superseded: [String], text: String))? = nil
    ) async throws {
        var report = Report(state: "queued", keys: keys, notOnThisDevice: unknown.isEmpty ? nil : unknown)
        if network.offline {
            let isSignedOut = try await store.status().problem?.code == .notSignedIn
            let next = isSignedOut ? whenSignedOut : "It is sent later."
            return try output.print(report, text: "\(done) It is kept here. \(next)")
        }
        do {
            try await store.waitUntilSent(timeout: network.duration, isImpatient: true)
        } catch {
            guard ExitStatus.of(error) == .unreachable else {
                // It waits for a person, who has to hear of it.
                report.state = "blocked"
                let next = error.code == .notSignedIn ? " " + whenSignedOut : ""
                try output.print(report, text: "\(done) It is kept on this device.\(next)")
                throw error
            }
            let unsent = Unsent(try await store.status().problem ?? error)
            report.reason = unsent.reason
            return try output.print(report, text: unsent.text(done))
        }
        let status = try await store.status()
        if let refused = status.refused.first(where: { keys.contains($0.key.rawValue) }) {
            throw refused.error
        }
        report.state = "sent"
        report.token = status.head.description
        let lost = try superseded()
        guard lost.isEmpty else {
            report.superseded = lost
            let names = listed(lost.map(inLine))
            let sentence =
                "Not stored, since another device has changed it at a later time: \(names). See: nephos conflicts"
            try output.print(report, text: lost.count < keys.count ? "\(done)\n\(sentence)" : sentence)
            throw ExitStatus.outOfStep
        }
        let outcome = try whenSent?()
        report.superseded = outcome.flatMap { $0.superseded.isEmpty ? nil : $0.superseded }
        try output.print(report, text: outcome?.text ?? done)
    }
}
