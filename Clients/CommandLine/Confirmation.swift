import Foundation
import NephosCore

/// Asks a person whether they mean what nothing brings back.
enum Confirmation {
    /// - Parameters:
    ///   - what: The consequences of the command, in whole sentences.
    ///   - otherwise: Said where there is no terminal to ask at.
    /// - Throws: ``CloudError`` `.invalidArguments` where nobody can answer; `.operationCancelled` for anything but yes.
    static func ask(
        _ what: String, otherwise: String = "This deletes on all devices. If it is meant, add --yes"
    ) throws {
        guard isatty(0) == 1 else {
            throw CloudError(.invalidArguments, otherwise)
        }
        try StandardOutput.line(what)
        try StandardOutput.write("Type yes to go on: ")
        guard readLine() == "yes" else { throw CloudError(.operationCancelled, "Nothing was deleted.") }
    }
}
