import NephosCore

/// Why a change is only kept here, and what sends it, as every command that writes says it.
struct Unsent {
    /// A sentence.
    let reason: String
    /// Whether a later command sends it. A server that has another key is not the one that this device knows, however
    /// often it is asked.
    let isSentLater: Bool

    init(_ cause: CloudError) {
        reason = cause.reasonInWords ?? Standing.words(cause)
        isSentLater = !cause.isOfOtherKey
    }

    /// - Parameters:
    ///   - done: What was done here.
    ///   - isMany: Whether that is more than one thing.
    ///   - consequence: What follows from its being only here; it begins with a space.
    func text(_ done: String, isMany: Bool = false, consequence: String = "") -> String {
        let kept = "\(done) \(isMany ? "They are" : "It is") kept on this device: \(reason)\(consequence)"
        guard isSentLater else { return kept }
        return kept
            + "\nnephos status sends \(isMany ? "them" : "it") once it reaches the server, and so does nephos watch while it runs."
    }
}

extension CloudError {
    /// Whether what answers at the server's address has another key than the server that this device knows.
    var isOfOtherKey: Bool { details["reason"] == "server_key" }
}
