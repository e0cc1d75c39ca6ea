/// A pattern of `LIKE`, split at its stars. A text is tested in one pass from its begin to its end, whatever the
/// pattern: each piece between stars is taken where it first occurs.
struct LikePattern: Sendable {
    /// The pattern has no star: the first piece is all of it.
    private let isWhole: Bool
    private let first: Piece
    private let middle: [Finder]
    private let last: Piece

    private enum Finder: Sendable {
        case bytes(ByteFinder)
        case wildcards(WildcardFinder)
        /// So many code points, whichever they are.
        case anything(Int)
    }

    /// Code points between two stars; nil stands for any.
    fileprivate struct Piece: Sendable {
        var scalars: [UInt32?]
        /// Those of a piece without wildcards.
        var bytes: [UInt8]?
    }

    /// Why a text is no pattern.
    enum Problem: Error {
        case tooLong, endsWithEscape, pieceTooLong

        func placed(at range: Range<Int>) -> QueryPredicateError {
            switch self {
            case .tooLong: QueryPredicateError(.tooLarge, at: range, "A pattern of LIKE has at most 1024 bytes.")
            case .endsWithEscape:
                QueryPredicateError(
                    .literal, at: range,
                    "Expected *, ? or \\ after the last \\ of the pattern. A \\ itself is written \\\\\\\\.")
            case .pieceTooLong:
                QueryPredicateError(
                    .tooLarge, at: range,
                    "Between two stars of a pattern are at most 64 characters if ? is among them. Split it with AND.")
            }
        }
    }

    init(_ pattern: String, folding: Folding) throws(Problem) {
        guard pattern.utf8.count <= PredicateLimits.patternBytesMax else { throw .tooLong }
        let pieces = try Self.pieces(of: pattern, folding)
        isWhole = pieces.count == 1
        first = Self.piece(pieces[0])
        last = Self.piece(isWhole ? [] : pieces[pieces.count - 1])
        var middle: [Finder] = []
        for piece in pieces.dropFirst().dropLast() where !piece.isEmpty {
            if let bytes = Self.piece(piece).bytes {
                middle.append(.bytes(ByteFinder(bytes)))
            } else if piece.allSatisfy({ $0 == nil }) {
                middle.append(.anything(piece.count))
            } else if piece.count <= PredicateLimits.patternPieceMax {
                middle.append(.wildcards(WildcardFinder(piece)))
            } else {
                throw .pieceTooLong
            }
        }
        self.middle = middle
    }

    /// What a text has to begin with, if the pattern says no more than that.
    static func prefix(of pattern: String) -> String? {
        guard let pieces = try? pieces(of: pattern, []), pieces.count == 2, pieces[1].isEmpty,
            !pieces[0].contains(nil)
        else { return nil }
        return string(pieces[0])
    }

    /// At least one; between each two was a star.
    private static func pieces(of pattern: String, _ folding: Folding) throws(Problem) -> [[UInt32?]] {
        var pieces: [[UInt32?]] = [[]]
        var literal: [UInt32?] = []
        // Between wildcards only: a mark after one does not join what was before it.
        func endLiteral() {
            guard !literal.isEmpty else { return }
            pieces[pieces.count - 1] += FoldingRule.current.fold(string(literal), folding).unicodeScalars.map(\.value)
            literal = []
        }
        var isEscaped = false
        for scalar in pattern.unicodeScalars {
            if isEscaped {
                literal.append(scalar.value)
                isEscaped = false
            } else if scalar == "\\" {
                isEscaped = true
            } else if scalar == "*" {
                endLiteral()
                pieces.append([])
            } else if scalar == "?" {
                endLiteral()
                pieces[pieces.count - 1].append(nil)
            } else {
                literal.append(scalar.value)
            }
        }
        guard !isEscaped else { throw .endsWithEscape }
        endLiteral()
        return pieces
    }

    private static func string(_ scalars: [UInt32?]) -> String {
        var result = String.UnicodeScalarView()
        for scalar in scalars { if let scalar, let known = Unicode.Scalar(scalar) { result.append(known) } }
        return String(result)
    }

    private static func piece(_ scalars: [UInt32?]) -> Piece {
        Piece(scalars: scalars, bytes: scalars.contains(nil) ? nil : Array(string(scalars).utf8))
    }
}

// MARK: Testing

extension LikePattern {
    /// - Parameter text: Well-formed UTF-8, folded as the pattern is.
    func matches(_ text: UnsafeBufferPointer<UInt8>) -> Bool {
        guard var place = first.end(in: text, at: 0) else { return false }
        if isWhole { return place == text.count }
        for finder in middle {
            let found =
                switch finder {
                case .bytes(let finder): finder.end(in: text, from: place)
                case .wildcards(let finder): finder.end(in: text, from: place)
                case .anything(let count): Self.skipped(count, in: text, from: place)
                }
            guard let found else { return false }
            place = found
        }
        guard let start = last.start(before: text.count, in: text), start >= place else { return false }
        return last.end(in: text, at: start) == text.count
    }

    private static func skipped(_ count: Int, in text: UnsafeBufferPointer<UInt8>, from start: Int) -> Int? {
        var place = start
        for _ in 0..<count {
            guard place < text.count else { return nil }
            place = text.codePoint(at: place).next
        }
        return place
    }
}

extension LikePattern.Piece {
    /// Where the piece ends if it stands at this place.
    fileprivate func end(in text: UnsafeBufferPointer<UInt8>, at start: Int) -> Int? {
        if let bytes { return text.has(bytes, at: start) ? start + bytes.count : nil }
        var place = start
        for expected in scalars {
            guard place < text.count else { return nil }
            let (scalar, next) = text.codePoint(at: place)
            guard expected == nil || expected == scalar else { return nil }
            place = next
        }
        return place
    }

    /// Where it would begin if it ended here.
    fileprivate func start(before end: Int, in text: UnsafeBufferPointer<UInt8>) -> Int? {
        if let bytes { return end >= bytes.count ? end - bytes.count : nil }
        var place = end
        for _ in scalars {
            guard place > 0 else { return nil }
            place -= 1
            while place > 0, text[place] & 0xc0 == 0x80 { place -= 1 }
        }
        return place
    }
}

extension UnsafeBufferPointer<UInt8> {
    /// Whether these bytes stand at this place.
    func has(_ bytes: [UInt8], at place: Int) -> Bool {
        guard place >= 0, count - place >= bytes.count else { return false }
        for offset in bytes.indices where self[place + offset] != bytes[offset] { return false }
        return true
    }
}
