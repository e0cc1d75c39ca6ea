public import NephosCore

extension WireFailure {
    /// The failure as it travels in a reply.
    public init(_ error: CloudError) {
        self.init()
        code = error.code.number
        message = error.message
        details = error.details
        retry =
            switch error.code.retry {
            case .never: .never
            case .afterBackoff: .afterBackoff
            case .afterRefetch: .afterRefetch
            }
        if let retryAfter = error.retryAfter {
            // Rounded up: whoever comes a moment too early is refused once more, and of less than one nothing would be said.
            let whole = UInt32(clamping: retryAfter.milliseconds)
            retryAfterMilliseconds = retryAfter > .milliseconds(Int64(whole)) && whole < .max ? whole + 1 : whole
        }
    }
}

extension CloudError {
    /// The error that a reply carried. A code that this build does not know
    /// becomes ``CloudError/Code/internalError`` and keeps its number in the details.
    public init(_ failure: WireFailure) {
        var details = failure.details
        let code = Code(number: failure.code)
        if code == nil { details["code"] = "\(failure.code)" }
        self.init(
            code ?? .internalError,
            failure.message,
            details: details,
            retryAfter: failure.retryAfterMilliseconds == 0
                ? nil : .milliseconds(Int64(failure.retryAfterMilliseconds))
        )
    }
}
