import Foundation

/// Colours of state words, on a terminal only.
enum Colour: Int, CaseIterable {
    case red = 31
    case green = 32
    case yellow = 33

    /// Whether standard output takes colours (see no-color.org).
    static let isOn: Bool = {
        let environment = ProcessInfo.processInfo.environment
        return isatty(STDOUT_FILENO) == 1 && (environment["NO_COLOR"] ?? "").isEmpty && environment["TERM"] != "dumb"
    }()

    /// Stands for a colour until the text is written: names of people and files cannot have it, since it is random.
    private static let mark = "\u{2063}" + String(UInt64.random(in: 0...UInt64.max), radix: 36) + "\u{2063}"

    /// The text in this colour, as ``rendered(_:)`` takes it.
    func callAsFunction(_ text: String) -> String {
        Self.isOn ? "\(Self.mark)\(rawValue)m\(text)\(Self.mark)0m" : text
    }

    /// The text with the marks as a terminal takes them.
    static func rendered(_ text: String, _ write: (String) -> String) -> String {
        guard isOn, text.contains(mark) else { return write(text) }
        return text.components(separatedBy: mark).map(write).enumerated().map { index, part in
            index == 0 ? part : "\u{1b}[" + part
        }.joined()
    }

    /// The colour of a state, by its word; nil: it has none.
    static func of(state word: String) -> Colour? {
        switch word {
        case "active", "up", "in sync", "ready", "intact", "this device": .green
        case "locked", "revoked", "down", "damaged", "broken", "rejected", "held up", "out of step", "silent": .red
        case "incomplete", "conflict", "building": .yellow
        default: nil
        }
    }

    /// The text with a state word at its beginning in that word's colour.
    static func highlight(stateOf text: String) -> String {
        for word in ["in sync", "held up", "out of step", "incomplete"] where text.hasPrefix(word) {
            return (of(state: word)?(word) ?? word) + text.dropFirst(word.count)
        }
        return text
    }
}
