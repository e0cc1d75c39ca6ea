internal import Foundation
internal import NephosCore
internal import NephosHTTP
internal import NephosKit
internal import Synchronization

/// The live stream of a browser (`GET /api/events`, an EventSource).
///
/// An event says that something of the account has changed here, and not what: the pages ask for what they show. So a
/// page that was away misses nothing, and a burst of changes is one event.
enum ConsoleEvents {
    /// How often a page hears that it is connected.
    static let beat: Duration = .seconds(5)

    /// - Parameter onUse: Called with each event, since the stream keeps a session in use.
    static func response(_ user: WebUser, onUse: @escaping @Sendable () async -> Void) -> HTTPResponse {
        let feed = Feed(user)
        let stream = HTTPBodyStream(onEnd: { feed.end() }) {
            await onUse()
            return try await feed.next()
        }
        return HTTPResponse(
            200,
            headers: [
                (name: "Content-Type", value: "text/event-stream"),
                // A proxy that collects answers would keep events back.
                (name: "X-Accel-Buffering", value: "no"),
            ], .stream(stream))
    }

    /// The events of one stream. At most one of each kind waits to be written.
    private final class Feed: Sendable {
        private enum Event: Sendable { case changed, beat }

        private let user: WebUser
        private let events: AsyncStream<Event>
        private let tasks: [Task<Void, Never>]
        private let waiting: Waiting

        private final class Waiting: Sendable {
            let change = Atomic(true)
            let beat = Atomic(false)
            let isOver = Atomic(false)
        }

        init(_ user: WebUser) {
            self.user = user
            // A session hears of its end with what it follows, and pages such as that of devices follow nothing.
            _ = try? user.session.keyValueStore()
            let (events, continuation) = AsyncStream.makeStream(of: Event.self)
            let (bells, waiting) = (user.session.changes(), Waiting())
            // There may have been changes before the stream began.
            continuation.yield(.changed)
            (self.events, self.waiting) = (events, waiting)
            tasks = [
                Task {
                    for await _ in bells {
                        if !waiting.change.exchange(true, ordering: .relaxed) { continuation.yield(.changed) }
                    }
                    continuation.finish()
                },
                Task {
                    while (try? await Task.sleep(for: ConsoleEvents.beat)) != nil {
                        if !waiting.beat.exchange(true, ordering: .relaxed) { continuation.yield(.beat) }
                    }
                },
            ]
        }

        func end() { for task in tasks { task.cancel() } }

        /// - Returns: Empty: it has ended.
        func next() async throws -> [UInt8] {
            var iterator = events.makeAsyncIterator()
            guard !waiting.isOver.load(ordering: .relaxed), let event = await iterator.next() else { return [] }
            switch event {
            case .changed: waiting.change.store(false, ordering: .relaxed)
            case .beat: waiting.beat.store(false, ordering: .relaxed)
            }
            guard await user.isSignedIn else {
                waiting.isOver.store(true, ordering: .relaxed)
                let error = WebSessions.revoked
                return try Self.text("ended", Ended(code: "\(error.code)", message: error.message))
            }
            return switch event {
            case .changed: try Self.text("changed", ConsoleDone())
            case .beat: try Self.text("beat", Beat(time: Int64(Date().timeIntervalSince1970 * 1000)))
            }
        }

        private struct Ended: Encodable {
            var code: String
            var message: String
        }

        private struct Beat: Encodable {
            var time: Int64
        }

        private static func text(_ name: String, _ data: some Encodable) throws -> [UInt8] {
            Array("event: \(name)\ndata: \(String(decoding: try ConsoleJSON.encode(data), as: UTF8.self))\n\n".utf8)
        }
    }
}
