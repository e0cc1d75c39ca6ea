import ArgumentParser
import Foundation
import NephosCore
import NephosKit

/// How a command that only reads uses the server.
struct ReadOptions: ParsableArguments {
    @OptionGroup var wait: WaitOptions
    @Flag(name: .long, help: "Do not ask the server; print this device's copy.") var offline = false
    @Flag(name: .long, help: "Fail if the server does not answer (default: print this device's copy).")
    var fresh = false

    func validate() throws {
        guard !fresh || !offline else {
            throw ValidationError("--fresh asks the server, and --offline does not. Give one of them.")
        }
    }

    var duration: Duration { wait.duration }
    /// Nil: the server is not asked.
    var limit: Duration? { offline ? nil : duration }
    var refresh: CopyRefresh { CopyRefresh(limit: limit, isRequired: fresh) }
}

/// The one rule by which `kv`, `docs` and `records` read: the server is asked first, for a second at most. If it does not
/// answer, the command uses this device's copy, and says on standard error as of when.
struct CopyRefresh {
    /// How long a command waits for the server where this device has a copy already.
    static let patience: Duration = .seconds(1)

    /// How long to wait for the first download, and for a server that has to answer. Nil: the server is not asked.
    var limit: Duration?
    /// Whether the command fails if the server does not answer.
    var isRequired = false
    /// Whether the command writes: it says by itself that the change is kept here.
    var isWriting = false
    /// Whether the command fails if there is no copy yet.
    var needsCopy = true

    /// Brings a scope's copy up to date.
    ///
    /// - Returns: Whether the server has answered.
    /// - Throws: ``CloudError`` of the server or the network when there is no copy yet that is needed, or `--fresh` was given;
    ///   `.deviceRevoked` when the server has turned this device away.
    @discardableResult
    func bring(_ scope: Scope) async throws -> Bool {
        let status = try await scope.status()
        guard let limit else {
            if !isWriting, let ending = status.problem, ending.code == .deviceRevoked {
                say("This is this device's copy\(Self.age(status)). \(Standing.words(ending))")
            }
            return false
        }
        do throws(CloudError) {
            if isRequired || !status.initialSyncFinished {
                try await scope.waitUntilCurrent(timeout: limit, isImpatient: true)
            } else {
                try await scope.waitUntilCurrent(within: min(limit, Self.patience), isImpatient: true)
            }
            return true
        } catch {
            var error = error
            // It takes a second until the home has kept that the device was revoked.
            if error.code == .deadlineExceeded, await scope.isTurningAway {
                do throws(CloudError) {
                    try await scope.waitUntilCurrent(within: Self.patience * 3, isImpatient: true)
                } catch let later { error = later }
            }
            let isRevoked = error.code == .deviceRevoked && !isWriting
            guard !isRequired, !isRevoked, status.initialSyncFinished || !needsCopy else { throw error }
            if !isWriting { say(Self.sentence(error, Self.age(try await scope.status()))) }
            return false
        }
    }

    private func say(_ sentence: String) { Standard.error("nephos: \(printable(sentence, keepsLines: false))") }

    private static func sentence(_ error: CloudError, _ age: String) -> String {
        guard ExitStatus.of(error) == .unreachable, !error.isOfOtherKey else {
            return "This is this device's copy\(age). \(Standing.words(error))"
        }
        return "The server did not answer; this is this device's copy\(age)."
    }

    /// As of when the copy was the server's; empty: that is not known.
    private static func age(_ status: StoreStatus) -> String {
        status.fetched.map { " as of \(describe($0, on: .now))" } ?? ""
    }
}

/// A time of this day without its date, any other with it.
func describe(_ time: Timestamp, on now: Date) -> String {
    let date = Date(timeIntervalSince1970: Double(time.milliseconds) / 1000)
    let text = describe(time)
    return Calendar.current.isDate(date, inSameDayAs: now) ? String(text.suffix(8).prefix(5)) : String(text.dropLast(3))
}
