internal import NephosCore

/// A piece of a predicate's text.
struct PredicateToken {
    enum Kind: Equatable {
        case name(FieldName)
        /// Written with `#`, so never a function or an unknown operator.
        case plainName(FieldName)
        case keyword(PredicateKeyword)
        case value(PredicateValue)
        case symbol(PredicateSymbol)
        case end
    }

    var kind: Kind
    var range: Range<Int>
}

/// The words of the language, in capitals as the canonical text has them.
enum PredicateKeyword: String, CaseIterable {
    case and = "AND"
    case any = "ANY"
    case beginsWith = "BEGINSWITH"
    case between = "BETWEEN"
    case contains = "CONTAINS"
    case endsWith = "ENDSWITH"
    case falsePredicate = "FALSEPREDICATE"
    case isIn = "IN"
    case like = "LIKE"
    case no = "NO"
    case not = "NOT"
    case null = "NULL"
    case `nil` = "NIL"
    case or = "OR"
    case `self` = "SELF"
    case some = "SOME"
    case `true` = "TRUE"
    case truePredicate = "TRUEPREDICATE"
    case yes = "YES"
    case `false` = "FALSE"

    /// In any mixture of capitals and small letters.
    init?(_ name: String) {
        guard name.utf8.count <= 14 else { return nil }
        self.init(rawValue: name.uppercased())
    }
}

enum PredicateSymbol: String, CaseIterable {
    case equal = "=="
    case notEqual = "!="
    case lessOrEqual = "<="
    case less = "<"
    case greaterOrEqual = ">="
    case greater = ">"
    case not = "!"
    case and = "&&"
    case or = "||"
    case openParenthesis = "("
    case closeParenthesis = ")"
    case openBrace = "{"
    case closeBrace = "}"
    case openBracket = "["
    case closeBracket = "]"
    case comma = ","
}

/// Splits a text into tokens, one at a time.
struct PredicateLexer {
    private let bytes: [UInt8]
    /// The byte at which the next token is looked for.
    private(set) var place = 0

    init(_ text: String) throws(QueryPredicateError) {
        let count = text.utf8.count
        guard count <= PredicateLimits.textBytesMax else {
            throw QueryPredicateError(
                .tooLarge, at: PredicateLimits.textBytesMax..<count,
                "A predicate has at most 16384 bytes. Ask for less at once, or in several predicates.")
        }
        bytes = Array(text.utf8)
    }

    mutating func next() throws(QueryPredicateError) -> PredicateToken {
        while let byte = peek(), byte.isSpace { place += 1 }
        let start = place
        guard let byte = peek() else { return PredicateToken(kind: .end, range: start..<start) }
        let kind: PredicateToken.Kind
        if byte.isDigit || ((byte == UInt8(ascii: "-") || byte == UInt8(ascii: "+")) && peek(1)?.isDigit == true) {
            kind = .value(try number())
        } else if byte == UInt8(ascii: "'") || byte == UInt8(ascii: "\"") {
            kind = .value(.string(try string()))
        } else if byte | 0x20 == UInt8(ascii: "x"), let quote = peek(1), quote == 0x27 || quote == 0x22 {
            place += 1
            kind = .value(.data(try data()))
        } else if byte.startsName {
            let name = try name()
            kind = PredicateKeyword(name.rawValue).map { .keyword($0) } ?? .name(name)
        } else if byte == UInt8(ascii: "#") {
            place += 1
            guard let first = peek(), first.startsName else {
                throw error(.syntax, start..<place, "Expected a field's name directly after #, as in #in.")
            }
            kind = .plainName(try name())
        } else if let symbol = symbol(byte) {
            kind = .symbol(symbol)
        } else {
            throw unexpected(byte)
        }
        return PredicateToken(kind: kind, range: start..<place)
    }

    /// The letters between brackets, after the opening one was read: what `[cd]` has.
    mutating func foldingLetters() throws(QueryPredicateError) -> Folding {
        var folding: Folding = []
        while let byte = peek(), byte.startsName {
            switch byte | 0x20 {
            case UInt8(ascii: "c"): folding.insert(.caseInsensitive)
            case UInt8(ascii: "d"): folding.insert(.diacriticInsensitive)
            default:
                throw error(
                    .syntax, place..<place + 1,
                    "Expected [c] (capitals do not count), [d] (accents do not count) or [cd].")
            }
            place += 1
        }
        guard !folding.isEmpty, peek() == UInt8(ascii: "]") else {
            throw error(.syntax, place..<place, "Expected c or d and then ], as in [cd].")
        }
        place += 1
        return folding
    }

    private func peek(_ distance: Int = 0) -> UInt8? {
        place + distance < bytes.count ? bytes[place + distance] : nil
    }

    private func error(_ code: QueryPredicateError.Code, _ range: Range<Int>, _ message: String) -> QueryPredicateError
    {
        QueryPredicateError(code, at: range, message)
    }

    private mutating func name() throws(QueryPredicateError) -> FieldName {
        let start = place
        while let byte = peek(), byte.continuesName || byte == UInt8(ascii: ".") { place += 1 }
        guard let name = FieldName(String(decoding: bytes[start..<place], as: UTF8.self)) else {
            throw place - start > PredicateLimits.fieldBytesMax
                ? error(.tooLarge, start..<place, "A field's name has at most 255 bytes.")
                : error(
                    .syntax, start..<place,
                    "Expected names with a single dot between each two, as in owner.name; none begins with a digit.")
        }
        return name
    }

    private mutating func symbol(_ byte: UInt8) -> PredicateSymbol? {
        let pair = peek(1).map { (byte, $0) }
        let (symbol, width): (PredicateSymbol, Int)
        switch pair {
        case (UInt8(ascii: "="), UInt8(ascii: "="))?: (symbol, width) = (.equal, 2)
        case (UInt8(ascii: "="), UInt8(ascii: "<"))?, (UInt8(ascii: "<"), UInt8(ascii: "="))?:
            (symbol, width) = (.lessOrEqual, 2)
        case (UInt8(ascii: "="), UInt8(ascii: ">"))?, (UInt8(ascii: ">"), UInt8(ascii: "="))?:
            (symbol, width) = (.greaterOrEqual, 2)
        case (UInt8(ascii: "!"), UInt8(ascii: "="))?, (UInt8(ascii: "<"), UInt8(ascii: ">"))?:
            (symbol, width) = (.notEqual, 2)
        case (UInt8(ascii: "&"), UInt8(ascii: "&"))?: (symbol, width) = (.and, 2)
        case (UInt8(ascii: "|"), UInt8(ascii: "|"))?: (symbol, width) = (.or, 2)
        default:
            guard byte != UInt8(ascii: "="), let single = PredicateSymbol(rawValue: String(Unicode.Scalar(byte))) else {
                guard byte == UInt8(ascii: "=") else { return nil }
                (symbol, width) = (.equal, 1)
                break
            }
            (symbol, width) = (single, 1)
        }
        place += width
        return symbol
    }

    private func unexpected(_ byte: UInt8) -> QueryPredicateError {
        var end = place + 1
        while end < bytes.count, bytes[end] & 0xc0 == 0x80 { end += 1 }
        let message =
            switch byte {
            case UInt8(ascii: "%"), UInt8(ascii: "$"), UInt8(ascii: "@"):
                "There are no placeholders; write the value itself, texts in quotes."
            case UInt8(ascii: "&"), UInt8(ascii: "|"): "Expected && or ||, or the words AND and OR."
            case UInt8(ascii: "-"), UInt8(ascii: "+"):
                "Expected a digit directly after the sign; nothing is calculated."
            case UInt8(ascii: "."): "Expected a digit before the point, as in 0.5."
            default:
                byte < 0x80
                    ? "This sign means nothing here; texts go in quotes."
                    : "Expected a field, a value or an operator. Texts go in straight quotes, ' or \"; names of fields "
                        + "have letters a to z, digits and _."
            }
        return error(.syntax, place..<end, message)
    }
}

// MARK: Literals

extension PredicateLexer {
    private mutating func number() throws(QueryPredicateError) -> PredicateValue {
        let start = place
        place += 1
        skipDigits()
        var isReal = false
        if peek() == UInt8(ascii: ".") {
            isReal = true
            place += 1
            guard peek()?.isDigit == true else {
                throw error(.literal, start..<place, "Expected a digit after the point, as in 1.0.")
            }
            skipDigits()
        }
        if let byte = peek(), byte | 0x20 == UInt8(ascii: "e") {
            isReal = true
            place += 1
            if peek() == UInt8(ascii: "+") || peek() == UInt8(ascii: "-") { place += 1 }
            guard peek()?.isDigit == true else {
                throw error(.literal, start..<place, "Expected the digits of the exponent, as in 1e6.")
            }
            skipDigits()
        }
        if let byte = peek(), byte.continuesName || byte == UInt8(ascii: ".") || byte >= 0x80 {
            throw error(.literal, place..<place, "Expected the number to end here. Texts go in quotes.")
        }
        let text = String(decoding: bytes[start..<place], as: UTF8.self)
        if isReal {
            guard let real = Double(text), real.isFinite else {
                throw error(.literal, start..<place, "This number is beyond what a real holds, about 1.8e308.")
            }
            return .real(real)
        }
        guard let integer = Int64(text) else {
            throw error(
                .literal, start..<place,
                "An integer lies between -9223372036854775808 and 9223372036854775807. With .0 after it this is a real."
            )
        }
        return .integer(integer)
    }

    private mutating func skipDigits() {
        while let byte = peek(), byte.isDigit { place += 1 }
    }

    private mutating func string() throws(QueryPredicateError) -> String {
        let start = place
        let quote = bytes[place]
        place += 1
        var content: [UInt8] = []
        while let byte = peek() {
            if byte == quote {
                place += 1
                return String(decoding: content, as: UTF8.self)
            }
            if byte == UInt8(ascii: "\\") {
                try escape(into: &content)
            } else {
                content.append(byte)
                place += 1
            }
        }
        throw error(
            .literal, start..<bytes.count, "Expected the quote that ends this text: the same as it begins with.")
    }

    private mutating func escape(into content: inout [UInt8]) throws(QueryPredicateError) {
        let start = place
        place += 1
        let escaped = peek()
        if escaped != nil { place += 1 }
        switch escaped {
        case UInt8(ascii: "\\")?: content.append(UInt8(ascii: "\\"))
        case UInt8(ascii: "'")?: content.append(UInt8(ascii: "'"))
        case UInt8(ascii: "\"")?: content.append(UInt8(ascii: "\""))
        case UInt8(ascii: "n")?: content.append(0x0a)
        case UInt8(ascii: "r")?: content.append(0x0d)
        case UInt8(ascii: "t")?: content.append(0x09)
        case UInt8(ascii: "u")?: content += Array(String(try codePoint(from: start)).utf8)
        default:
            while let byte = peek(), byte & 0xc0 == 0x80 { place += 1 }
            throw error(
                .literal, start..<place,
                "After \\ comes \\ ' \" n r t or u{…}. In a pattern of LIKE, a star itself is written \\\\*.")
        }
    }

    /// The `{1f600}` of `\u{1f600}`.
    private mutating func codePoint(from start: Int) throws(QueryPredicateError) -> Unicode.Scalar {
        var value: UInt32 = 0
        var width = 0
        if peek() == UInt8(ascii: "{") {
            place += 1
            while let byte = peek(), let digit = Self.hexDigit(byte), width < 6 {
                value = value << 4 | UInt32(digit)
                width += 1
                place += 1
            }
        }
        guard width > 0, peek() == UInt8(ascii: "}"), let scalar = Unicode.Scalar(value) else {
            throw error(
                .literal, start..<place,
                "Expected the number of a character, in hexadecimal: \\u{e9}.")
        }
        place += 1
        return scalar
    }

    /// What follows the `x`.
    private mutating func data() throws(QueryPredicateError) -> [UInt8] {
        let start = place - 1
        let quote = bytes[place]
        place += 1
        var content: [UInt8] = []
        while let high = peek(), high != quote {
            guard let highDigit = Self.hexDigit(high), let low = peek(1), let lowDigit = Self.hexDigit(low) else {
                throw error(.literal, start..<place, "Expected two hexadecimal digits for each byte, as in x'00ff'.")
            }
            content.append(highDigit << 4 | lowDigit)
            place += 2
        }
        guard peek() != nil else {
            throw error(.literal, start..<bytes.count, "Expected the quote that ends these bytes.")
        }
        place += 1
        return content
    }

    private static func hexDigit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
