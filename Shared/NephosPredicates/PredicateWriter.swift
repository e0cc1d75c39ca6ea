/// Writes the canonical text: one space around operators, keywords in capitals, texts in `'`, parentheses only where
/// the meaning needs them.
enum PredicateWriter {
    static func text(of node: PredicateNode) -> String {
        var text = ""
        write(node, to: &text)
        return text
    }

    private static func write(_ node: PredicateNode, to text: inout String) {
        switch node {
        case .constant(let value): text += value ? "TRUEPREDICATE" : "FALSEPREDICATE"
        case .and(let parts): write(parts, joinedBy: " AND ", to: &text)
        case .or(let parts): write(parts, joinedBy: " OR ", to: &text)
        case .not(let part):
            text += "NOT "
            writeWithin(part, to: &text)
        case .comparison(let comparison): write(comparison, to: &text)
        case .isMissing(let field): text += "\(name(field)) == NULL"
        case .isPresent(let field): text += "\(name(field)) != NULL"
        case .fullText(let words): text += "SELF CONTAINS \(quoted(words.rawValue))"
        case .distance(let distance):
            text += "distance(\(name(distance.field)), point(\(distance.center.latitude), "
            text += "\(distance.center.longitude))) \(distance.relation.rawValue) \(distance.metres)"
        }
    }

    private static func write(_ parts: [PredicateNode], joinedBy word: String, to text: inout String) {
        for (index, part) in parts.enumerated() {
            if index > 0 { text += word }
            // AND binds more than OR.
            if case .and = part, word == " OR " {
                write(part, to: &text)
            } else {
                writeWithin(part, to: &text)
            }
        }
    }

    /// In parentheses if it has parts that would else join others.
    private static func writeWithin(_ node: PredicateNode, to text: inout String) {
        switch node {
        case .and, .or:
            text += "("
            write(node, to: &text)
            text += ")"
        default: write(node, to: &text)
        }
    }

    private static func write(_ comparison: PredicateComparison, to text: inout String) {
        if comparison.any { text += "ANY " }
        text += "\(name(comparison.field)) \(comparison.relation.rawValue)\(comparison.folding.letters) "
        switch comparison.relation {
        case .isIn, .between: text += "{\(comparison.operands.map(value).joined(separator: ", "))}"
        default: text += comparison.operands.map(value).joined(separator: ", ")
        }
    }

    private static func name(_ field: FieldName) -> String {
        PredicateKeyword(field.rawValue) == nil ? field.rawValue : "#" + field.rawValue
    }

    private static func value(_ value: PredicateValue) -> String {
        switch value {
        case .boolean(let boolean): boolean ? "TRUE" : "FALSE"
        case .integer(let integer): String(integer)
        case .real(let real): real.description
        case .string(let text): quoted(text)
        case .date(let date): "date(\"\(date)\")"
        case .data(let bytes): "x'\(bytes.map(hex).joined())'"
        // No text says these; reading the text finds them out.
        case .location: "a location"
        case .list: "a list"
        }
    }

    private static func hex(_ byte: UInt8) -> String {
        let digits = String(byte, radix: 16)
        return digits.utf8.count == 1 ? "0" + digits : digits
    }

    /// With escapes for quotes, backslashes, and what commands a terminal or turns the direction of writing. A fixed
    /// set, so that the canonical text does not depend on a version of Unicode.
    private static func quoted(_ text: String) -> String {
        var result = String.UnicodeScalarView()
        result.append("'")
        for scalar in text.unicodeScalars {
            switch scalar.value {
            case 0x27, 0x5c:
                result.append("\\")
                result.append(scalar)
            case 0..<0x20, 0x7f...0x9f, 0x61c, 0x200b...0x200f, 0x2028...0x202e, 0x2060...0x206f, 0xfeff:
                result.append(contentsOf: "\\u{\(String(scalar.value, radix: 16))}".unicodeScalars)
            default: result.append(scalar)
            }
        }
        result.append("'")
        return String(result)
    }
}
