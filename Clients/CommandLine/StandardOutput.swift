import Foundation
import NephosCore

/// The one way to standard output.
///
/// Whoever reads a command's output has to be able to rely on its exit code: what
/// could not be written fails the command.
enum StandardOutput {
    /// - Throws: ``OutputFailure``; the command ends with ``ExitStatus/output``, or quietly where nobody reads any
    ///   more.
    static func write(_ text: String) throws { try write(Data(text.utf8)) }

    static func write(_ data: Data) throws {
        guard Standard.write(Array(data), to: STDOUT_FILENO) else { throw OutputFailure(number: errno) }
    }

    /// A line of text that may have other people's words in it.
    static func line(_ text: String) throws {
        try write(Colour.rendered(text) { printable($0, keepsLines: true) } + "\n")
    }
}

/// Standard output took no more.
struct OutputFailure: Error {
    /// The system's error number.
    var number: Int32
}

/// The text as a terminal may have it: characters that it would take for commands, that turn the direction of writing
/// or that cannot be seen are written as `\u{...}`.
///
/// - Parameter keepsLines: Line ends and tabs stay as they are.
func printable(_ text: String, keepsLines: Bool) -> String {
    escaped(text) { scalar in
        keepsLines && (scalar == "\n" || scalar == "\t") ? nil : "\\u{\(String(scalar.value, radix: 16))}"
    }
}

/// The text as it may stand in a line: what it names may have line ends of its own.
func inLine(_ text: String) -> String { printable(text, keepsLines: false) }

/// JSON in which such characters are escaped too; they stand in its strings only.
func printableJSON(_ json: String) -> String {
    escaped(json) { scalar in
        String(scalar).utf16.map { unit in
            let digits = String(unit, radix: 16)
            return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }.joined()
    }
}

/// - Parameter escape: What stands for a character that is not seen; nil: itself.
private func escaped(_ text: String, _ escape: (Unicode.Scalar) -> String?) -> String {
    // Most text is plain, and some is a store's whole export.
    guard text.utf8.contains(where: { $0 < 0x20 || $0 >= 0x7f }) else { return text }
    return text.scalarsWithUnseen { scalars in
        var result = String.UnicodeScalarView()
        for (scalar, isUnseen) in scalars {
            if isUnseen, let escape = escape(scalar) {
                result.append(contentsOf: escape.unicodeScalars)
            } else {
                result.append(scalar)
            }
        }
        return String(result)
    }
}
