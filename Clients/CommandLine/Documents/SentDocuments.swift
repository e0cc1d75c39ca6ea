import Foundation
import NephosCore
import NephosKit

/// Waits for the server's word on changes, and says how it went.
struct SentDocuments {
    private struct Report: Encodable {
        var state: String
        var items: [DocumentRow]
        /// What was deleted in one go.
        var batch: String?
        var reason: String?
        /// What could not be done.
        var failures: [ItemFailures.Row]?
    }

    private let container: UbiquityContainer
    /// What was refused before.
    private let refused: [String: Timestamp]

    init(_ container: UbiquityContainer) async throws {
        self.container = container
        refused = Dictionary(
            try await container.scope.status().refused.map { ($0.key.rawValue, $0.at) }
        ) { max($0, $1) }
    }

    /// - Parameters:
    ///   - items: What was changed, as it is here.
    ///   - failures: What of it could not be done.
    ///   - done: What was done here.
    /// - Throws: ``CloudError`` of a refusal.
    func wait(
        _ items: [DocumentEntry], _ network: DocumentsCommand.NetworkOptions, _ output: OutputOptions,
        batch: DocumentID? = nil, failures: ItemFailures = ItemFailures(), done: String
    ) async throws {
        var report = Report(
            state: "queued", items: items.map(DocumentRow.init), batch: batch?.description,
            failures: failures.isEmpty ? nil : failures.rows)
        guard failures.isEmpty || !items.isEmpty else {
            report.state = "failed"
            return try output.print(report, text: "Nothing was changed.")
        }
        if network.offline {
            return try output.print(report, text: "\(done) It is kept here, and sent later.")
        }
        do {
            try await waitUntilSent(within: network.duration, shows: !output.json)
        } catch {
            guard ExitStatus.of(error) == .unreachable else {
                // It waits for a person, who has to hear of it.
                report.state = "blocked"
                try output.print(report, text: "\(done) It is kept on this device.")
                throw error
            }
            let cause = try await container.scope.status().problem ?? error
            report.reason = cause.details["reason"] ?? Standing.words(cause)
            return try output.print(
                report,
                text: """
                    \(done) It is kept on this device: \(report.reason ?? "")
                    The next command that reaches the server sends it, or nephos watch while it runs.
                    """)
        }
        if let refusal = try await container.scope.status().refused.first(where: { refusal in
            refused[refusal.key.rawValue].map { $0 < refusal.at } ?? true
        }) {
            var error = refusal.error
            error.details["path"] = refusal.key.rawValue
            throw error
        }
        var now: [DocumentEntry] = []
        for item in items { now.append(try await container.item(item.id) ?? item) }
        report.state = "sent"
        report.items = now.map(DocumentRow.init)
        try output.print(report, text: done)
    }

    /// Waits for as long as something moves.
    private func waitUntilSent(within patience: Duration, shows: Bool) async throws(CloudError) {
        let line = ProgressLine(isShown: shows)
        defer { line.clear() }
        var last = (done: -1, waiting: -1)
        var moved = ContinuousClock.now
        while true {
            do throws(CloudError) {
                return try await container.scope.waitUntilSent(
                    timeout: min(patience, .milliseconds(500)), isImpatient: true)
            } catch {
                guard error.code == .deadlineExceeded else { throw error }
                let progress = try await container.uploadProgress()
                let waiting = try await container.scope.status().pending.count
                if (progress.done, waiting) != last || progress.isPaced {
                    last = (progress.done, waiting)
                    moved = .now
                } else if moved.duration(to: .now) >= patience {
                    throw error
                }
                line.show(done: progress.done, total: progress.total)
            }
        }
    }
}

/// How far something is, on a terminal, in one line that is written over.
final class ProgressLine: Sendable {
    private let isShown: Bool

    /// - Parameter isShown: False: nobody wants it; nor is it shown where nobody sees it.
    init(isShown: Bool) { self.isShown = isShown && isatty(2) == 1 }

    func show(done: Int, total: Int, name: String = "") {
        guard isShown, total > 0 else { return }
        let percent = min(100, Double(done) / Double(total) * 100)
        let text = String(
            format: "%3.0f %%  %@ of %@  %@", percent, describe(bytes: UInt64(clamping: done)),
            describe(bytes: UInt64(clamping: total)), shortened(inLine(name), to: 40))
        _ = Standard.write(Array("\r\u{1b}[K\(text)".utf8), to: 2)
    }

    func clear() {
        guard isShown else { return }
        _ = Standard.write(Array("\r\u{1b}[K".utf8), to: 2)
    }
}
