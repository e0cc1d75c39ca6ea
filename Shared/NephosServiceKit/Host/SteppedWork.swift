internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// Work that is done in short steps, each in a group of its own, so that nobody waits for it: when something has called
/// for it, and now and then, since what a step would do is in rows and outlives a restart.
///
/// On the loop only.
public final class SteppedWork {
    private static let pause: Duration = .milliseconds(10)

    private let name: String
    private let interval: Duration
    private let step: (any HandlerTransaction) throws -> Bool
    private weak var host: (any ServiceRuntime)?
    private var isRunning = false
    /// It was called for while the last step was under way, which may have looked before.
    private var wasCalled = false

    /// - Parameters:
    ///   - name: What an operator reads when it fails, such as "Removing folders".
    ///   - interval: How often it is looked whether there is anything to do.
    ///   - step: Does some of it; returns whether there may be more.
    public init(_ name: String, every interval: Duration, _ step: @escaping (any HandlerTransaction) throws -> Bool) {
        self.name = name
        self.interval = interval
        self.step = step
    }

    /// Begins, for as long as the service runs.
    public func start(_ host: any ServiceRuntime) {
        self.host = host
        beginSoon()
        repeatLater(host)
    }

    private func repeatLater(_ host: any ServiceRuntime) {
        host.loop.schedule(after: interval) { [weak self, weak host] in
            guard let self, let host else { return }
            beginSoon()
            repeatLater(host)
        }
    }

    /// There is something to do.
    public func beginSoon() {
        wasCalled = true
        guard !isRunning, let host else { return }
        isRunning = true
        run(host)
    }

    private func run(_ host: any ServiceRuntime) {
        var hasMore = false
        wasCalled = false
        host.submit { [weak self] in
            hasMore = try self?.step($0) ?? false
        } then: { [weak self, weak host] failure in
            guard let self, let host else { return }
            if let failure {
                host.report("\(name) has failed. It is tried again later", details: ["error": failure.code.description])
            }
            guard failure == nil, hasMore || wasCalled else {
                isRunning = false
                return
            }
            host.loop.schedule(after: Self.pause) { [weak self, weak host] in
                if let self, let host { run(host) }
            }
        }
    }
}
