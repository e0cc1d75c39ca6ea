import ArgumentParser
import Foundation
import NephosCore

/// Where a password comes from; never from the command line itself, which others can see.
struct PasswordOptions: ParsableArguments {
    @Option(name: .long, help: "Read the password from the first line of this file.", completion: .file())
    var passwordFile: String?

    @Flag(name: .long, help: "Read the password from standard input.")
    var passwordStdin = false

    func validate() throws {
        guard passwordFile == nil || !passwordStdin else {
            throw ValidationError("The password is in a file, or on standard input. Give one of the two options.")
        }
    }

    /// Whether the command was given a password.
    var isGiven: Bool { passwordFile != nil || passwordStdin || Self.environmentPassword != nil }

    private static var environmentPassword: String? { ProcessInfo.processInfo.environment["NEPHOS_PASSWORD"] }

    /// The password, where nobody has to be asked for it: from the file, standard input, `$NEPHOS_PASSWORD`.
    ///
    /// - Returns: Nil: a person at the terminal is to be asked (``asked(_:isNew:)``), once everything else is known to
    ///   be in order.
    /// - Throws: ``CloudError`` `.invalidArguments` when there is none, and no terminal either.
    func given() throws -> String? {
        guard isGiven else {
            guard isatty(0) == 1 else {
                throw CloudError(
                    .invalidArguments,
                    "No password: use --password-file, --password-stdin or $NEPHOS_PASSWORD, or run this in a terminal."
                )
            }
            return nil
        }
        if let passwordFile { return try Self.firstLine(of: passwordFile) }
        if passwordStdin { return try Self.firstLine(of: "-") }
        guard let password = Self.environmentPassword, !password.isEmpty else {
            throw CloudError(.invalidArguments, "$NEPHOS_PASSWORD is set, and empty. Unset it to be asked.")
        }
        return password
    }

    /// Asks a person.
    ///
    /// - Parameter isNew: Whether it is asked for twice, since nobody sees what is typed.
    func asked(_ prompt: String = "Password: ", isNew: Bool = false) throws -> String {
        let password = try Terminal.readSecret(prompt)
        guard try !isNew || Terminal.readSecret("The same once more: ") == password else {
            throw CloudError(.invalidArguments, "The two passwords are not the same. Nothing was changed.")
        }
        return password
    }

    private static let bytesMax = 64 << 10

    /// - Throws: ``CloudError`` `.invalidArguments` when there is none: an empty password would be one that is wrong.
    ///
    /// - Parameter what: What it is a secret of, where it is no password.
    static func firstLine(of file: String, called what: String = "password") throws -> String {
        let source = file == "-" ? "standard input" : file
        let data = try InputFile.read(
            file, bytesMax: bytesMax,
            orElse: CloudError(
                .invalidArguments, "The \(what)'s file is longer than any \(what) may be.",
                details: ["maximum": "\(bytesMax)", "file": source]))
        // An editor ends a line with LF, CR LF, or CR at the end of the file.
        // Some begin a file with a mark of its encoding.
        let mark: [UInt8] = [0xef, 0xbb, 0xbf]
        var line = data.dropFirst(data.starts(with: mark) ? mark.count : 0).prefix { $0 != UInt8(ascii: "\n") }
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        guard let text = String(validating: line, as: UTF8.self) else {
            throw CloudError(.invalidArguments, "The \(what) is not text in UTF-8.", details: ["file": source])
        }
        guard !text.isEmpty else {
            throw CloudError(
                .invalidArguments,
                data.isEmpty ? "The \(what)'s file is empty." : "The first line of the \(what)'s file is empty.",
                details: ["file": source])
        }
        return text
    }
}
