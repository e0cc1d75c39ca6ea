internal import Dispatch
internal import NephosBus
public import NephosCore
internal import NephosStorage

/// How a running service is, as other threads may ask.
public struct ServiceStanding: Sendable {
    /// Which service it is.
    public let name: ServiceName
    private let loop: any LoopHandle
    private let host: LoopBound<ServiceHost>
    /// Where text is made: not on a loop.
    private let queue = DispatchQueue(label: "metrics", qos: .utility)

    private let sink: LogSink

    init(_ name: ServiceName, _ host: LoopBound<ServiceHost>, on loop: any LoopHandle, _ sink: LogSink) {
        self.sink = sink
        self.name = name
        self.host = host
        self.loop = loop
    }

    /// - Parameter completion: Called when its loop gets to it; not if it never does.
    public func isAlive(_ completion: @escaping @Sendable () -> Void) { loop.execute { _ in completion() } }

    /// - Parameter completion: Called when storage has answered: with why it does not take whatever comes, or does not
    ///   give back what it has; nil: it does. Not if storage never answers, or the service has stopped.
    public func findImpediment(_ completion: @escaping @Sendable (String?) -> Void) {
        loop.execute { loop in
            host.withValue(on: loop) { host in
                host.submit { _ in
                } then: { [weak host] failure in
                    if let failure { return completion(failure.message) }
                    guard let host else { return completion("The service has stopped.") }
                    completion(host.engine.isShortOfRoom ? "The disk is full." : host.service.impediment)
                }
            }
        }
    }

    /// What the service has counted and holds, as text.
    ///
    /// The loop copies its figures, in some ten microseconds; text is made of them elsewhere.
    ///
    /// - Parameter completion: Called on a thread of its own; not if a loop of the service does not answer.
    public func metrics(as format: MetricsFormat, _ completion: @escaping @Sendable (String) -> Void) {
        loop.execute { [queue, sink] loop in
            host.withValue(on: loop) { host in
                let figures = host.figures()
                host.service.measure { own in
                    queue.async {
                        let process = ProcessFigures(
                            ProcessFigures.StorageFiles(database: figures.storage.path, log: figures.storage.logPath))
                        var own = own
                        own["log.left_out"] = sink.leftOut
                        let source = Metric.Source(service: figures, own: own, process: process)
                        completion(MetricsText(source, as: format).text)
                    }
                }
            }
        }
    }
}
