/// A bookmark in a change feed: a reader that holds it misses nothing after it.
///
/// Sequences rise within an epoch. Restoring a server from backup raises the
/// epoch, so that a token from the lost future is recognised instead of
/// silently matching other changes.
public struct ChangeToken: Hashable, Sendable, Comparable, CustomStringConvertible {
    public var epoch: UInt64
    public var sequence: UInt64

    public init(epoch: UInt64, sequence: UInt64) {
        self.epoch = epoch
        self.sequence = sequence
    }

    /// The token of a reader that has seen nothing.
    public static let zero = ChangeToken(epoch: 0, sequence: 0)

    public static func < (left: ChangeToken, right: ChangeToken) -> Bool {
        (left.epoch, left.sequence) < (right.epoch, right.sequence)
    }

    public var description: String { "\(epoch):\(sequence)" }
}
