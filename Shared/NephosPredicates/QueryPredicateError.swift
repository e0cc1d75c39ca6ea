public import NephosCore

/// What is wrong with a predicate's text, and where.
///
/// The message has nothing of the text itself, only of the language and of the schema, so that it may be logged.
public struct QueryPredicateError: Error, Hashable, Sendable {
    public var code: Code
    /// Bytes of the text as UTF-8. Empty at the place where something is missing.
    public var range: Range<Int>
    /// A sentence that says what was expected, and the cure.
    public var message: String

    init(_ code: Code, at range: Range<Int>, _ message: String) {
        self.code = code
        self.range = range
        self.message = message
    }

    /// A struct over a private enum, so that codes can be added without breaking anyone's `switch`.
    public struct Code: Sendable, Hashable, CustomStringConvertible {
        private enum Value { case syntax, literal, tooLarge, unknownField, wrongType }

        private let value: Value
        private init(_ value: Value) { self.value = value }

        /// The name used in `--json`.
        public var description: String { "\(value)" }

        /// Something else was expected here.
        public static let syntax = Code(.syntax)
        /// A text, number, date or pattern that is none.
        public static let literal = Code(.literal)
        /// One of `PredicateLimits` is passed.
        public static let tooLarge = Code(.tooLarge)
        /// The schema has no such field.
        public static let unknownField = Code(.unknownField)
        /// The field, or the operator, takes no such value.
        public static let wrongType = Code(.wrongType)
    }
}

extension QueryPredicateError {
    /// What travels in a reply: `.limitExceeded` beyond a limit, else `.invalidArguments`.
    public var cloudError: CloudError {
        CloudError(
            code == .tooLarge ? .limitExceeded : .invalidArguments,
            "The predicate cannot be used; the reason says why, and where in its text.",
            details: [
                "reason": message, "predicate_error": code.description, "offset": String(range.lowerBound),
                "length": String(range.count),
            ])
    }

    /// The line and the character in it at which the error begins, both counted from 1.
    public func position(in text: String) -> (line: Int, column: Int) {
        let (line, start, _) = lineBounds(in: Array(text.utf8))
        let before = Array(text.utf8)[start..<max(start, min(range.lowerBound, text.utf8.count))]
        return (line, String(decoding: before, as: UTF8.self).count + 1)
    }

    /// The sentence, the line of the text, and under it carets where the error is; for a terminal. Characters that
    /// are not seen or command a terminal are shown as `·`, and a long line is cut around the place.
    public func rendered(in text: String) -> String {
        let bytes = Array(text.utf8)
        let (_, start, end) = lineBounds(in: bytes)
        let lower = max(start, min(range.lowerBound, end))
        let upper = max(lower, min(range.upperBound, end))
        var before = Self.shown(bytes[start..<lower])
        let wrong = Self.shown(bytes[lower..<upper])
        var after = Self.shown(bytes[upper..<end])
        let around = 60
        if before.count > around { before = ["…"] + before.suffix(around) }
        if after.count > around { after = after.prefix(around) + ["…"] }
        let middle = wrong.count > around ? wrong.prefix(around) + ["…"] : wrong
        let carets =
            String(repeating: " ", count: Self.columns(before))
            + String(repeating: "^", count: max(1, Self.columns(middle)))
        return "\(message)\n  \(String(before + middle + after))\n  \(carets)"
    }

    /// The line in which the error begins: its number from 1, and its bytes without what ends it.
    private func lineBounds(in bytes: [UInt8]) -> (line: Int, start: Int, end: Int) {
        let place = max(0, min(range.lowerBound, bytes.count))
        let newline = UInt8(ascii: "\n")
        let line = bytes[..<place].count { $0 == newline } + 1
        let start = bytes[..<place].lastIndex(of: newline).map { $0 + 1 } ?? 0
        let end = bytes[place...].firstIndex(of: newline) ?? bytes.count
        return (line, start, end)
    }

    /// How many columns of a terminal they take: two for each wide character.
    private static func columns(_ characters: [Character]) -> Int {
        characters.reduce(0) { sum, character in
            switch character.unicodeScalars.first?.value ?? 0 {
            case 0x1100...0x115f, 0x2e80...0xa4cf, 0xac00...0xd7a3, 0xf900...0xfaff, 0xfe30...0xfe6f, 0xff00...0xff60,
                0x1f300...0x1faff, 0x20000...0x3fffd:
                sum + 2
            default: sum + 1
            }
        }
    }

    private static func shown(_ bytes: ArraySlice<UInt8>) -> [Character] {
        let text = String(decoding: bytes, as: UTF8.self)
        let seen = text.scalarsWithUnseen { scalars in
            var result = String.UnicodeScalarView()
            for (scalar, isUnseen) in scalars { result.append(isUnseen ? "·" : scalar) }
            return result
        }
        return Array(String(seen))
    }
}
