internal import NephosBus
public import NephosCore
internal import NephosStorage

/// How a running service is, as other threads may ask.
public struct ServiceStanding: Sendable {
    /// Which service it is.
    public let name: ServiceName
    private let loop: any LoopHandle
    private let host: LoopBound<ServiceHost>

    init(_ name: ServiceName, _ host: LoopBound<ServiceHost>, on loop: any LoopHandle) {
        self.name = name
        self.host = host
        self.loop = loop
    }

    /// - Parameter completion: Called when its loop gets to it; not if it never does.
    public func isAlive(_ completion: @escaping @Sendable () -> Void) { loop.execute { _ in completion() } }

    /// - Parameter completion: Called when storage has answered: with whether it takes whatever comes. Not if it never
    ///   answers, or the service has stopped.
    public func isReady(_ completion: @escaping @Sendable (Bool) -> Void) {
        loop.execute { loop in
            host.withValue(on: loop) { host in
                host.submit { _ in
                } then: { [weak host] failure in
                    completion(failure == nil && host?.engine.isShortOfRoom == false)
                }
            }
        }
    }
}
