import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import Synchronization

extension KeyValueCommand {
    struct Mirror: AsyncParsableCommand, OwnTimeout {
        static let standardTimeout: Duration? = nil
        static let configuration = CommandConfiguration(
            abstract: "Keep a defaults file (JSON or XML property list) and the store equal, until Ctrl-C.",
            discussion: """
                The mirror ends without deleting keys if the file disappears or cannot be read. It also ends if \
                more than 5 keys, and more than half of all, are missing at once.

                Edits made while no mirror ran are applied; the values they overwrite are in nephos kv history. \
                If this device has never mirrored the file, and its values differ from the store's, the file is \
                left alone (exit code 1). Choose a side with --prefer.
                """)

        @Argument(help: "The file; it is created if it is missing.", completion: .file()) var file: String
        @Flag(help: "Allow the file to delete many keys at once.") var deleteMany = false
        @Option(help: "The side whose values stay if it is not known which are newer: file or store.")
        var prefer: Side?
        @OptionGroup var store: StoreOptions
        @OptionGroup var wait: WaitOptions

        /// As it is typed.
        enum Side: String, ExpressibleByArgument, CaseIterable {
            case file
            case store
        }

        func run() async throws {
            let prefers = prefer.flatMap { DefaultsMirror.Side(rawValue: $0.rawValue) }
            try await store.withStore(within: wait.duration) { store, _ in
                try await waitForDownload(store)
                let mirror = DefaultsMirror(
                    store: store, file: URL(fileURLWithPath: file), deletesMany: deleteMany, prefers: prefers)
                let (begun, beginning) = AsyncStream.makeStream(of: Void.self)
                try await withThrowingTaskGroup(of: Bool.self) { group in
                    group.addTask {
                        try await mirror.run { beginning.yield() }
                        return true
                    }
                    group.addTask {
                        for await _ in begun {
                            try StandardOutput.line("Mirroring \(file). End with Ctrl-C.")
                            try await tell(of: store.scope)
                        }
                        return false
                    }
                    // Until the mirror has ended, or what there is to say cannot be said.
                    while let isOver = try await group.next(), !isOver {}
                    group.cancelAll()
                }
            }
        }

        /// Says what keeps the store from going to the server and coming from there, once, and when that is over.
        private func tell(of scope: Scope) async throws {
            let said = Said(scope, isOneOfMany: false)
            let hasTrouble = Mutex(false)
            let looking = Looking(scope: scope, said: said, saysEachLook: true) { status, failure in
                let standing = Standing(status, failure: failure)
                guard said.isNews(standing, isInOrder: false) else { return }
                let isWorthALine = hasTrouble.withLock { hasTrouble in
                    let had = hasTrouble
                    hasTrouble = standing.state != .inSync
                    return had || hasTrouble
                }
                guard isWorthALine else { return }
                let lines = ["\(WatchCommand.time) \(standing.line)"] + standing.notes.map { "  \($0)" }
                try StandardOutput.line(lines.joined(separator: "\n"))
            }
            // The mirror ends for the same reason, and says what became of the file.
            do { try await looking.run() } catch is CloudError {}
        }

        /// How long one attempt may take, which nothing can cancel, until it is said what is waited for.
        private static let attemptMax: Duration = .seconds(1)

        /// Waits for the first download, as long as it takes unless something else was said, and says what keeps it.
        ///
        /// - Throws: ``CloudError`` with the reason when it does not come by itself, or not in time.
        private func waitForDownload(_ store: KeyValueStore) async throws {
            let deadline = wait.given.map { ContinuousClock.now + $0 }
            var said: String?
            while try await !store.status().initialSyncFinished {
                let left = deadline.map { ContinuousClock.now.duration(to: $0) } ?? Self.attemptMax
                var failure: CloudError?
                do throws(CloudError) {
                    try await store.waitUntilCurrent(
                        timeout: min(max(left, .milliseconds(1)), Self.attemptMax), isImpatient: true)
                } catch { failure = error }
                let status = try await store.status()
                if status.initialSyncFinished { return }
                let cause = status.problem ?? failure
                if let cause, ExitStatus.of(cause) == .refused || deadline.map({ $0 <= .now }) == true { throw cause }
                let standing = Standing(status, failure: failure)
                if said != standing.line {
                    try StandardOutput.line("Waiting for the store: \(standing.line)")
                    said = standing.line
                }
                try await Task.sleep(for: .milliseconds(500))
            }
        }
    }
}
