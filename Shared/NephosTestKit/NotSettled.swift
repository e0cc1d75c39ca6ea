/// The cloud did not settle in time.
public struct NotSettled: Error, CustomStringConvertible {
    /// What was left to send or to hear, a sentence each.
    public let left: [String]

    public var description: String { "Not settled: " + left.joined(separator: "; ") }
}
