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
    func password(asking prompt: String = "Password: ") throws(CloudError) -> String {
        if let passwordFile {
            guard let text = try? String(contentsOfFile: passwordFile, encoding: .utf8) else {
                throw CloudError(
                    .invalidArguments, "The password file cannot be read.", details: ["file": passwordFile])
            }
            return String(text.split(separator: "\n", omittingEmptySubsequences: false).first ?? "")
        }
        if passwordStdin { return readLine() ?? "" }
        if let password = ProcessInfo.processInfo.environment["NEPHOS_PASSWORD"] { return password }
        guard isatty(0) == 1, let typed = getpass(prompt) else {
            throw CloudError(
                .invalidArguments,
                "No password: use --password-file, --password-stdin or $NEPHOS_PASSWORD, or run this in a terminal.")
        }
        return String(cString: typed)
    }
}
