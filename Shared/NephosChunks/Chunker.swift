private import NephosCore

/// Divides a stream into chunks where its content says so: FastCDC (Xia and others, 2016) with a gear hash.
///
/// Where a chunk ends depends on its first bytes' number and its last 64 bytes alone. So bytes that are put in or taken
/// out change the chunks around them, and those behind are found again as they were.
///
/// The stream is given piece by piece, divided in any way; nothing is copied or kept of it:
///
///     while let length = chunker.cut(in: rest) {
///         // A chunk ends with the first `length` bytes of `rest`. It began before them if pieces came without a cut.
///         rest = UnsafeRawBufferPointer(rebasing: rest[length...])
///     }
///
/// and at the end of the stream ``finish()`` tells whether a last chunk is left.
public struct Chunker: Sendable {
    /// Bytes before the first at which a chunk may end: only the last of a content is this short, or shorter.
    public static let minimum = 64 << 10
    /// From here on a chunk ends sixteen times more readily.
    public static let normal = 192 << 10
    /// Bytes of a chunk, at most.
    public static let maximum = BulkLimits.chunkBytesMax

    /// A chunk ends where the hash is less: at one byte in 2^20 before ``normal``, and in 2^16 from there on.
    private static let limitBeforeNormal: UInt64 = 1 << 44
    private static let limitFromNormal: UInt64 = 1 << 48
    /// The hash forgets a byte after as many as it has bits.
    private static let window = 64

    /// What each byte adds to the hash.
    static let gear: [UInt64] = {
        var random = SplitMix64(seed: 0x6e65_7068_6f73)
        return (0..<256).map { _ in random.next() }
    }()

    private var hash: UInt64 = 0
    /// Bytes that the chunk has so far; less than ``maximum``.
    public private(set) var begun = 0

    public init() {}

    /// Takes the next bytes of the stream, up to the end of the chunk.
    ///
    /// - Returns: How many of them belong to the chunk that ends there, at least one; the next call begins behind them.
    ///   Nil if it goes on after all of them.
    public mutating func cut(in bytes: UnsafeRawBufferPointer) -> Int? {
        // Not looked at: no chunk ends there, and the hash forgets it.
        var place = min(bytes.count, max(0, Self.minimum - Self.window - begun))
        let end = Self.gear.withUnsafeBufferPointer { gear -> Int? in
            place = warmed(in: bytes, from: place, gear)
            for (limit, border) in [(Self.limitBeforeNormal, Self.normal), (Self.limitFromNormal, Self.maximum)] {
                let stop = min(bytes.count, max(place, border - begun))
                if let end = hashed(in: bytes, from: place, to: stop, below: limit, gear) { return end }
                place = stop
            }
            return begun + place == Self.maximum ? place : nil
        }
        guard let end else {
            begun += bytes.count
            return nil
        }
        hash = 0
        begun = 0
        return end
    }

    /// Ends the stream. The chunker is as new then.
    ///
    /// - Returns: Bytes of the chunk that the stream's end ends; nil if nothing came behind the last one.
    public mutating func finish() -> Int? {
        defer { self = Chunker() }
        return begun == 0 ? nil : begun
    }

    /// Takes what counts in the hash, and ends no chunk yet.
    ///
    /// - Returns: The place of the first byte behind it.
    private mutating func warmed(
        in bytes: UnsafeRawBufferPointer, from start: Int, _ gear: UnsafeBufferPointer<UInt64>
    ) -> Int {
        let stop = min(bytes.count, max(start, Self.minimum - begun))
        for place in start..<stop { hash = hash << 1 &+ gear[Int(bytes[place])] }
        return stop
    }

    /// Goes on with the hash until it is below the limit.
    ///
    /// Four bytes a step: so four hashes wait for the one before them once, and there is one jump for them.
    ///
    /// - Returns: The place behind the byte that made it so; nil if none did.
    private mutating func hashed(
        in bytes: UnsafeRawBufferPointer, from start: Int, to stop: Int, below limit: UInt64,
        _ gear: UnsafeBufferPointer<UInt64>
    ) -> Int? {
        var place = start
        var hash = hash
        defer { self.hash = hash }
        while place + 4 <= stop {
            let a = gear[Int(bytes[place])]
            let b = a << 1 &+ gear[Int(bytes[place + 1])]
            let c = b << 1 &+ gear[Int(bytes[place + 2])]
            let d = c << 1 &+ gear[Int(bytes[place + 3])]
            if hash << 1 &+ a < limit { return place + 1 }
            if hash << 2 &+ b < limit { return place + 2 }
            if hash << 3 &+ c < limit { return place + 3 }
            hash = hash << 4 &+ d
            place += 4
            if hash < limit { return place }
        }
        while place < stop {
            hash = hash << 1 &+ gear[Int(bytes[place])]
            place += 1
            if hash < limit { return place }
        }
        return nil
    }
}
