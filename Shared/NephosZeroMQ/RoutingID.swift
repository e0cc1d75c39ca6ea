/// How a ROUTER names a connection: 33 bits.
///
/// The admission gives each connection an id, in the place of any that its
/// client chose (the property `Identity` of its answer). Otherwise libzmq would
/// make ids of its own by counting, and end the process when a client had
/// chosen the one that is next (`Assertion failed: ok` in `add_out_pipe`).
///
/// Rarely an answer comes before libzmq has looked at what the client wants,
/// and then the client's choice counts: one without a choice gets an id that
/// libzmq made; the others are cut as soon as they say something.
struct RoutingID: Hashable {
    /// The high bit is set when the admission has made it.
    let number: UInt64
    private static let given: UInt64 = 1 << 32

    init(number: UInt64) { self.number = number }

    /// From the id's bytes; nil: it is neither the admission's nor libzmq's.
    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == 5, bytes[0] <= 1 else { return nil }
        let low = UInt64(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: UInt32.self)))
        number = UInt64(bytes[0]) << 32 | low
    }

    /// Whether the admission has made it; else libzmq has, or a client who says so.
    var isGiven: Bool { number & Self.given != 0 }

    /// Whether the connection was made later than the other, as far as that can be told. Both count upward, and around.
    func isLater(than other: RoutingID) -> Bool {
        isGiven != other.isGiven
            || Int32(bitPattern: UInt32(truncatingIfNeeded: number) &- UInt32(truncatingIfNeeded: other.number)) >= 0
    }

    /// The id as it is in memory: a byte that tells whose, and four of a number, the high one first.
    func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        let low = UInt64(UInt32(truncatingIfNeeded: number).bigEndian)
        return withUnsafeBytes(of: UInt64(littleEndian: low << 8 | number >> 32)) {
            body(UnsafeRawBufferPointer(rebasing: $0[..<5]))
        }
    }

    /// The admission's answer with the id of the peer of this number.
    static func metadata(_ peer: UInt32) -> [UInt8] {
        let id = RoutingID(number: given | UInt64(peer)).withBytes { Array($0) }
        return [8] + Array("Identity".utf8) + [0, 0, 0, UInt8(id.count)] + id
    }
}
