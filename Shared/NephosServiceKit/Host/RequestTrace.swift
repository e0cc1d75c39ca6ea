internal import Logging
internal import NephosCore

/// Which request the loop is at, for what is logged meanwhile. On the loop only.
final class RequestTrace {
    private var request: OperationID?
    private var cause: OperationID?

    /// What is logged while the body runs is about this request, or this event's cause.
    func during<Value>(_ request: OperationID?, causedBy cause: OperationID?, _ body: () throws -> Value) rethrows
        -> Value
    {
        let before = (self.request, self.cause)
        (self.request, self.cause) = (request, cause)
        defer { (self.request, self.cause) = before }
        return try body()
    }

    var metadata: Logger.Metadata { Self.metadata(request, causedBy: cause) }

    static func metadata(_ request: OperationID?, causedBy cause: OperationID?) -> Logger.Metadata {
        var metadata: Logger.Metadata = [:]
        if let request { metadata["request.id"] = "\(request)" }
        if let cause { metadata["cause.id"] = "\(cause)" }
        return metadata
    }
}
