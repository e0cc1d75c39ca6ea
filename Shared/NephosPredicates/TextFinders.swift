/// Finds bytes in a text in one pass, whatever they are (Knuth, Morris and Pratt, 1977).
struct ByteFinder: Sendable {
    let needle: [UInt8]
    /// For each place of the needle: where to go on when the next byte is another one.
    private let fallback: [Int]

    init(_ needle: [UInt8]) {
        self.needle = needle
        var fallback = [Int](repeating: 0, count: needle.count)
        var matched = 0
        for place in needle.indices.dropFirst() {
            while matched > 0, needle[place] != needle[matched] { matched = fallback[matched - 1] }
            if needle[place] == needle[matched] { matched += 1 }
            fallback[place] = matched
        }
        self.fallback = fallback
    }

    /// Where the first occurrence from this place on ends.
    func end(in text: UnsafeBufferPointer<UInt8>, from start: Int) -> Int? {
        guard !needle.isEmpty else { return start }
        guard text.count - start >= needle.count else { return nil }
        return needle.withUnsafeBufferPointer { needle in
            fallback.withUnsafeBufferPointer { fallback in
                var matched = 0
                var place = start
                while place < text.count {
                    let byte = text[place]
                    while matched > 0, byte != needle[matched] { matched = fallback[matched - 1] }
                    if byte == needle[matched] { matched += 1 }
                    place += 1
                    if matched == needle.count { return place }
                }
                return nil
            }
        }
    }
}

/// Finds up to 64 code points, some of which may be any, in one pass: a bit for each that the text so far ends with
/// (Baeza-Yates and Gonnet, 1992).
struct WildcardFinder: Sendable {
    private let count: Int
    private let lowest: UInt32
    /// Of the code points from the lowest on that are ASCII: at which places of the piece they may stand.
    private let ascii: [UInt64]
    private let others: [UInt32: UInt64]
    /// The places at which any code point may stand.
    private let wild: UInt64

    /// - Parameter piece: Nil for any code point. At most 64; what follows them is not looked for.
    init(_ piece: [UInt32?]) {
        count = min(piece.count, 64)
        var wild: UInt64 = 0
        for (place, scalar) in piece.prefix(64).enumerated() where scalar == nil { wild |= 1 << UInt64(place) }
        let named = piece.prefix(64).compactMap { $0 }.filter { $0 < 0x80 }
        lowest = named.min() ?? 0
        var ascii = [UInt64](repeating: wild, count: named.isEmpty ? 0 : Int((named.max() ?? lowest) - lowest) + 1)
        var others: [UInt32: UInt64] = [:]
        for (place, scalar) in piece.prefix(64).enumerated() {
            guard let scalar else { continue }
            if scalar < 0x80 {
                ascii[Int(scalar - lowest)] |= 1 << UInt64(place)
            } else {
                others[scalar, default: wild] |= 1 << UInt64(place)
            }
        }
        self.ascii = ascii
        self.others = others
        self.wild = wild
    }

    func end(in text: UnsafeBufferPointer<UInt8>, from start: Int) -> Int? {
        guard count > 0 else { return start }
        let last: UInt64 = 1 << UInt64(count - 1)
        var state: UInt64 = 0
        var place = start
        while place < text.count {
            let (scalar, next) = text.codePoint(at: place)
            place = next
            state = (state << 1 | 1) & places(of: scalar)
            if state & last != 0 { return place }
        }
        return nil
    }

    @inline(__always)
    private func places(of scalar: UInt32) -> UInt64 {
        if scalar >= lowest, scalar - lowest < UInt32(ascii.count) { return ascii[Int(scalar - lowest)] }
        return scalar < 0x80 || others.isEmpty ? wild : others[scalar] ?? wild
    }
}
