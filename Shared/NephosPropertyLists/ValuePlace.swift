internal import NephosCore

/// Where in a document a reader is, how much it has read, and what it says when it stops.
///
/// A few bytes of a property list can stand for more values than any machine holds, since its parts may be shared.
struct ValuePlace {
    private var steps: [String] = []
    private var nodes = 0
    private var bytes = 0

    /// No store holds more: each value in another takes four bytes at least.
    private static let nodesMax = 1 << 18
    private static let bytesMax = 16 << 20
    /// A little more than values may have, so that what is a little too deep is refused where all are.
    private static let depthMax = PropertyValue.depthMax * 2

    /// As a person writes it: `list[2].name`.
    var path: String {
        steps.reduce("") { path, step in path + (path.isEmpty || step.hasPrefix("[") ? "" : ".") + step }
    }

    /// Counts a value that begins.
    mutating func count(bytes size: Int = 0) throws(CloudError) {
        nodes += 1
        bytes += size
        guard nodes <= Self.nodesMax, bytes <= Self.bytesMax else {
            throw failure("It has more in it than any store can hold.")
        }
    }

    mutating func enter(key: String) throws(CloudError) { try enter(step: key) }

    mutating func enter(index: Int) throws(CloudError) { try enter(step: "[\(index)]") }

    private mutating func enter(step: String) throws(CloudError) {
        guard steps.count < Self.depthMax else { throw failure("It nests too deeply.") }
        steps.append(step)
    }

    /// Only where all is well: a failure tells where it was.
    mutating func leave() { steps.removeLast() }

    /// - Parameter reason: A constant sentence.
    func failure(_ reason: String) -> CloudError {
        var details = ["reason": reason]
        if !steps.isEmpty { details["key"] = path }
        return CloudError(.invalidArguments, "This cannot be taken over as it is. Nothing was.", details: details)
    }
}
