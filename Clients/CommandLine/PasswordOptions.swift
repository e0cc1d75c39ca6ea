import ArgumentParser
import Core
import Foundation

/// Where a password comes from; never from the command line itself, which others can see.
struct PasswordOptions: ParsableArguments {
    @Option(name: .long, help: "Read the password from this file's first line.", completion: .file())
    var passwordFile: String?

    @Flag(name: .long, help: "Read the password from standard input.")
    var passwordStdin = false

    /// The password: from the file, standard input, `$NEPHOS_PASSWORD`, or asked for.
    ///
    /// - Parameter isNew: Whether it is asked for twice, since nobody sees what is typed.
    func password(asking prompt: String = "Password: ", isNew: Bool = false) throws -> String {
        if let passwordFile {
            let text = String(decoding: try Data(contentsOf: URL(fileURLWithPath: passwordFile)), as: UTF8.self)
            return String(text.split(separator: "\n", omittingEmptySubsequences: false).first ?? "")
        }
        if passwordStdin { return readLine() ?? "" }
        if let password = ProcessInfo.processInfo.environment["NEPHOS_PASSWORD"] { return password }
        guard isatty(0) == 1 else {
            throw CloudError(
                .invalidArguments,
                "No password: use --password-file, --password-stdin or $NEPHOS_PASSWORD, or run this in a terminal.")
        }
        let password = try Terminal.readSecret(prompt)
        guard try !isNew || Terminal.readSecret("The same once more: ") == password else {
            throw CloudError(.invalidArguments, "The two passwords are not the same. Nothing was changed.")
        }
        return password
    }
}
