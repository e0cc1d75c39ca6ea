private import Foundation
internal import NephosCore

/// What a person copies into a shell: it has to mean there what is meant here, whatever names and values are made of.
package enum ShellCommand {
    /// One word. What a terminal would not show is written as bytes, so that the line can be copied from it.
    package static func word(_ text: String) -> String {
        guard text.isEmpty || !text.utf8.allSatisfy(isPlain) else { return text }
        if text.hasUnseenCharacters { return escaped(text) }
        var word = "'"
        for scalar in text.unicodeScalars { word += scalar == "'" ? "'\\''" : String(scalar) }
        return word + "'"
    }

    /// The words that follow the options, which may look like options themselves.
    package static func arguments(_ words: [String]) -> String {
        ((words.contains { $0.utf8.first == UInt8(ascii: "-") } ? ["--"] : []) + words.map(word)).joined(separator: " ")
    }

    /// Options that name the app and the home, where others would be meant by themselves; each begins with a space.
    ///
    /// - Parameter home: Nil: it is no folder.
    package static func options(app: AppID, isDefault: Bool, home: String?) -> String {
        let app = isDefault ? "" : " --app=\(word(app.rawValue))"
        return app + (home.flatMap { $0 == Session.defaultHome.path ? nil : " --home=\(word($0))" } ?? "")
    }

    /// The option of `nephos kv set` that says the value's type, and the value as it is typed then.
    package static func typed(_ value: PropertyValue) -> (type: String, text: String) {
        switch value {
        // A lone dash stands for standard input, and no argument has a NUL.
        case .string(let text) where text != "-" && !text.utf8.contains(0): ("string", text)
        case .boolean(let value): ("boolean", "\(value)")
        case .integer(let value): ("integer", "\(value)")
        case .real(let value) where value.isFinite: ("real", "\(value)")
        case .date(let date) where PropertyDate.date(PropertyDate.text(of: date)) == date:
            ("date", PropertyDate.text(of: date))
        case .data(let data): ("data", data.base64EncodedString())
        default: ("json", value.typedJSON)
        }
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"):
            true
        default: "_-./:@%+,".utf8.contains(byte)
        }
    }

    private static func escaped(_ text: String) -> String {
        text.scalarsWithUnseen { scalars in
            var word = "$'"
            for (scalar, isUnseen) in scalars {
                if isUnseen {
                    // Always three digits, so that none that follows is taken for one more.
                    for byte in String(scalar).utf8 {
                        let digits = String(byte, radix: 8)
                        word += "\\" + String(repeating: "0", count: 3 - digits.count) + digits
                    }
                } else {
                    word += scalar == "'" || scalar == "\\" ? "\\\(scalar)" : String(scalar)
                }
            }
            return word + "'"
        }
    }
}
