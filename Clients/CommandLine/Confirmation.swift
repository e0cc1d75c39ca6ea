import Foundation
import NephosCore

/// Asks a person whether they mean what nothing brings back.
enum Confirmation {
    /// - Parameter what: What is about to be done, in whole sentences.
    /// - Throws: ``CloudError`` `.invalidArguments` where nobody can answer; `.operationCancelled` for anything but yes.
    static func ask(_ what: String) throws {
        guard isatty(0) == 1 else {
            throw CloudError(.invalidArguments, "This deletes on all devices. If it is meant, add --yes")
        }
        try StandardOutput.line(what)
        try StandardOutput.write("Type yes to go on: ")
        guard readLine() == "yes" else { throw CloudError(.operationCancelled, "Nothing was deleted.") }
    }
}
