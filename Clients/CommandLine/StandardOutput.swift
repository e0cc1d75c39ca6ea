import Core
import Foundation

/// The one way to standard output.
///
/// Whoever reads a command's output has to be able to rely on its exit code: what
/// could not be written fails the command.
enum StandardOutput {
    /// - Throws: ``OutputFailure``; the command ends with ``ExitStatus/output``, or quietly where nobody reads any more.
    static func write(_ text: String) throws { try write(Data(text.utf8)) }

    static func write(_ data: Data) throws {
        guard Standard.write(Array(data), to: STDOUT_FILENO) else { throw OutputFailure(number: errno) }
    }

    /// A line of text that may have other people's words in it.
    static func line(_ text: String) throws { try write(printable(text, keepsLines: true) + "\n") }
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
    guard text.unicodeScalars.contains(where: \.isUnseen) else { return text }
    var result = String.UnicodeScalarView()
    for scalar in text.unicodeScalars {
        if !scalar.isUnseen || keepsLines && (scalar == "\n" || scalar == "\t") {
            result.append(scalar)
        } else {
            result.append(contentsOf: "\\u{\(String(scalar.value, radix: 16))}".unicodeScalars)
        }
    }
    return String(result)
}

/// JSON in which such characters are escaped too; they stand in its strings only.
func printableJSON(_ json: String) -> String {
    guard json.unicodeScalars.contains(where: \.isUnseen) else { return json }
    var result = String.UnicodeScalarView()
    for scalar in json.unicodeScalars {
        guard scalar.isUnseen else {
            result.append(scalar)
            continue
        }
        for unit in String(scalar).utf16 {
            let digits = String(unit, radix: 16)
            result.append(contentsOf: ("\\u" + String(repeating: "0", count: 4 - digits.count) + digits).unicodeScalars)
        }
    }
    return String(result)
}
