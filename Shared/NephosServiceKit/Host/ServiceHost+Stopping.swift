internal import Logging
internal import NephosBus
internal import NephosCore

// A service that is told to stop.
extension ServiceHost {
    private static let lookPause: Duration = .milliseconds(5)

    /// Takes no further requests, answers those that it has, tells those who are subscribed, and closes.
    ///
    /// Whoever asks meanwhile is told that the service stops, and when to try again. What is not done in time is not
    /// answered: whoever asked repeats it under its id.
    ///
    /// - Parameters:
    ///   - reason: For the log.
    ///   - limit: How long what is under way may take.
    ///   - completion: Called when all is closed.
    func stop(because reason: String, within limit: Duration, then completion: @escaping () -> Void) {
        let start = loop.monotonicNow
        let open = runner.unanswered
        gate.isStopping = true
        service.stopsSoon()
        func end() {
            let left = runner.unanswered
            close { [self] in
                let now = loop.monotonicNow
                logger.notice(
                    "The service has stopped",
                    metadata: [
                        "reason": "\(reason)", "ran_seconds": "\((now - started).milliseconds / 1000)",
                        "requests": "\(counters.values["requests"] ?? 0)", "open": "\(open)", "unanswered": "\(left)",
                        "took_ms": "\((now - start).milliseconds)",
                    ])
                completion()
            }
        }
        func look() {
            guard !isClosed else { return completion() }
            guard runner.unanswered > 0, loop.monotonicNow - start < limit else { return end() }
            loop.schedule(after: Self.lookPause) { look() }
        }
        look()
    }
}
