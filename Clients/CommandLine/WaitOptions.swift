import ArgumentParser
import NephosCore

/// How long a command waits for an answer.
struct WaitOptions: ParsableArguments {
    /// What a command waits where nothing is said.
    static let standard: Duration = .seconds(10)
    private static let secondsMax = 86_400.0

    @Option(
        name: .long,
        help:
            "Seconds to wait for the server (default: 10)."
    )
    var timeout: Double?

    func validate() throws {
        guard let timeout else { return }
        guard timeout > 0, timeout <= Self.secondsMax else {
            throw ValidationError("--timeout is above 0, and at most 86400 seconds.")
        }
    }

    /// What was said; nil: nothing.
    var given: Duration? { timeout.map { .milliseconds(Int64($0 * 1000)) } }

    var duration: Duration { given ?? Self.standard }
}
