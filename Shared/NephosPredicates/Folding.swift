internal import NephosCore

/// What does not count when texts are compared: the modifiers `[c]`, `[d]` and `[cd]`.
public struct Folding: OptionSet, Hashable, Sendable {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// `[c]`: capitals.
    public static let caseInsensitive = Folding(rawValue: 1)
    /// `[d]`: accents and other marks.
    public static let diacriticInsensitive = Folding(rawValue: 2)

    /// As the text of a predicate has it, with brackets; empty for none.
    var letters: String {
        switch (contains(.caseInsensitive), contains(.diacriticInsensitive)) {
        case (false, false): ""
        case (true, false): "[c]"
        case (false, true): "[d]"
        case (true, true): "[cd]"
        }
    }
}

/// By which table texts are folded. Indexes and stored answers name it, since a newer one may fold otherwise.
public enum FoldingRule: UInt8, Hashable, Sendable {
    /// Unicode 14.0, the same for every language, system and version of Swift.
    ///
    /// A text with any modifier is taken apart (canonical decomposition); `[d]` leaves out the marks of the Latin,
    /// Greek and Cyrillic scripts, Hebrew points and Arabic vowel signs; `[c]` replaces each code point by the one
    /// without capitals where that is a single one ("ß" stays "ß", "İ" becomes an "i" with a second dot); then it is
    /// put together again (canonical composition). So "é" in one code point and in two are the same under
    /// any modifier. Letters that only look like others with marks ("ø", "ł", "ı") stay themselves.
    case v1 = 1

    /// By which predicates are tested, and indexes made.
    public static let current = FoldingRule.v1

    /// The text in the form in which it is compared. Folding it once more changes nothing.
    public func fold(_ text: String, _ folding: Folding) -> String {
        withFolded(text, folding) { String(decoding: $0, as: UTF8.self) }
    }

    /// The different words of a text, folded by `[cd]`, in the order of their first occurrence. What is between
    /// spaces, punctuation and symbols is a word; of Chinese and Japanese, which have no spaces, each sign is.
    public func words(of text: String) -> [String] {
        var seen: Set<PredicateText> = []
        var words: [String] = []
        withFolded(text, [.caseInsensitive, .diacriticInsensitive]) { bytes in
            FoldingData.shared.forEachWord(of: bytes) { word in
                let word = String(decoding: word, as: UTF8.self)
                if seen.insert(PredicateText(word)).inserted { words.append(word) }
                return true
            }
        }
        return words
    }

    /// The first bytes of the folded text, and whether these are all. Of a long text no more is folded than that takes.
    func foldedStart(of text: String, _ folding: Folding, bytesMax: Int) -> (bytes: [UInt8], isWhole: Bool) {
        var text = text
        let part = text.withUTF8 { bytes -> String? in
            // Folding makes no code point shorter than a twelfth, unless it leaves it out.
            FoldingData.shared.safeCut(in: bytes, from: 16 * bytesMax).map {
                String(decoding: UnsafeBufferPointer(rebasing: bytes[..<$0]), as: UTF8.self)
            }
        }
        if let part {
            let start = withFolded(part, folding) { Array($0.prefix(bytesMax + 1)) }
            // Marks may have been left out, so that more is needed.
            if start.count > bytesMax { return (Array(start.prefix(bytesMax)), false) }
        }
        return withFolded(text, folding) { (Array($0.prefix(bytesMax)), $0.count <= bytesMax) }
    }

    /// Lends the bytes of the folded text, without making a text of them.
    func withFolded<Result>(
        _ text: String, _ folding: Folding, _ body: (UnsafeBufferPointer<UInt8>) -> Result
    ) -> Result {
        var text = text
        return text.withUTF8 { bytes in
            if folding.isEmpty { return body(bytes) }
            if bytes.allSatisfy({ $0 < 0x80 }) {
                guard folding.contains(.caseInsensitive) else { return body(bytes) }
                return withUnsafeTemporaryAllocation(of: UInt8.self, capacity: bytes.count) { small in
                    for (index, byte) in bytes.enumerated() {
                        small.initializeElement(
                            at: index, to: (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte)
                    }
                    return body(UnsafeBufferPointer(small))
                }
            }
            return FoldingData.shared.folded(bytes, folding).withUnsafeBufferPointer(body)
        }
    }
}

extension UnsafeBufferPointer<UInt8> {
    /// The code point that begins at this place of a well-formed text, and where the next one begins.
    @inline(__always)
    func codePoint(at place: Int) -> (value: UInt32, next: Int) {
        let first = UInt32(self[place])
        func rest(_ distance: Int) -> UInt32 {
            place + distance < count ? UInt32(self[place + distance]) & 0x3f : 0
        }
        if first < 0x80 { return (first, place + 1) }
        if first < 0xe0 { return ((first & 0x1f) << 6 | rest(1), Swift.min(place + 2, count)) }
        if first < 0xf0 { return ((first & 0x0f) << 12 | rest(1) << 6 | rest(2), Swift.min(place + 3, count)) }
        return ((first & 0x07) << 18 | rest(1) << 12 | rest(2) << 6 | rest(3), Swift.min(place + 4, count))
    }
}
