/// A bookmark in a change feed: a reader that holds it misses nothing after it.
///
/// Sequences rise within an epoch. A database that comes back from a copy gets
/// another epoch, so that a token from the lost future is recognised instead of
/// silently matching other changes.
public struct ChangeToken: Hashable, Sendable, Comparable, CustomStringConvertible {
    public var epoch: UInt64
    public var sequence: UInt64
    /// By what the service that gave the token out knows it again. Two tokens are compared without it.
    public var check: TokenCheck

    public init(epoch: UInt64, sequence: UInt64, check: TokenCheck = .none) {
        self.epoch = epoch
        self.sequence = sequence
        self.check = check
    }

    /// The token of a reader that has seen nothing.
    public static let zero = ChangeToken(epoch: 0, sequence: 0)

    public static func == (left: ChangeToken, right: ChangeToken) -> Bool {
        left.epoch == right.epoch && left.sequence == right.sequence
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(epoch)
        hasher.combine(sequence)
    }

    public static func < (left: ChangeToken, right: ChangeToken) -> Bool {
        (left.epoch, left.sequence) < (right.epoch, right.sequence)
    }

    /// Whether both name the same place in the same history. Equal numbers are
    /// not enough where a database was written on after it had come back from a copy.
    public func isSamePlace(as other: ChangeToken) -> Bool {
        self == other && (check == other.check || check == .none || other.check == .none)
    }

    public var description: String { "\(epoch):\(sequence)" }
}

/// A short keyed check that goes with a change token. Only the service that
/// made it can make one or read it; for everybody else it is 16 bytes to keep.
///
/// It names the run of the service in which the token's change was written, so
/// that a token tells not only how far its history had come but which history
/// it was.
public struct TokenCheck: Hashable, Sendable {
    /// Bytes on the wire.
    public static let byteCount = 16

    /// The run that wrote the change; they rise.
    public var run: UInt64
    /// A keyed hash of the token, its partition and the run.
    public var mark: UInt64

    public init(run: UInt64, mark: UInt64) {
        self.run = run
        self.mark = mark
    }

    /// No check: the token proves nothing.
    public static let none = TokenCheck(run: 0, mark: 0)

    /// From the bytes on the wire; anything else is no check.
    ///
    /// Not of any collection: this is done for every event, and a generic is not specialised across modules.
    public init(bytes: UnsafeRawBufferPointer) {
        guard bytes.count == Self.byteCount else {
            self = .none
            return
        }
        self.init(
            run: UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
            mark: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)))
    }

    public init(bytes: [UInt8]) { self = bytes.withUnsafeBytes { TokenCheck(bytes: $0) } }

    /// Most significant byte first; empty for ``none``.
    public var bytes: [UInt8] {
        guard self != .none else { return [] }
        return withUnsafeBytes(of: (run.bigEndian, mark.bigEndian)) { [UInt8]($0) }
    }
}
