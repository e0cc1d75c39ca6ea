import ArgumentParser
import Foundation
import NephosCore
import NephosKit

/// How a command ended, as a shell script can tell. The one table of exit codes.
enum ExitStatus: Int32, CaseIterable, Error {
    case done = 0
    case failed = 1
    case notFound = 2
    case limit = 3
    case refused = 4
    case unreachable = 5
    case outOfStep = 6
    case locked = 7
    case files = 8
    case usage = 64
    case output = 74
    case interrupted = 130
    /// As shells show SIGPIPE.
    case unread = 141

    /// As `nephos help exit-codes` and `docs/command-line.md` say it.
    var meaning: String {
        switch self {
        case .done: "done; a write may also be saved on this device and sent later"
        case .failed: "failed"
        case .notFound: "not found"
        case .limit: "rejected by a limit"
        case .refused: "not signed in, revoked, or not permitted"
        case .unreachable: "no connection, or no answer in time"
        case .outOfStep: "not in sync"
        case .locked: "the account is locked"
        case .files: "a file is missing or damaged, or the disk is full"
        case .usage: "wrong usage"
        case .output: "the output could not be written"
        case .interrupted: "interrupted"
        case .unread: "the reader of the output has ended"
        }
    }

    static func of(_ error: CloudError) -> ExitStatus {
        switch error.code {
        case .unknownItem, .zoneNotFound: .notFound
        case .quotaExceeded, .limitExceeded, .requestRateLimited: .limit
        case .notSignedIn, .notAuthenticated, .permissionFailure, .missingEntitlement, .wrongCredentials,
            .deviceRevoked, .tokenExpired, .tokenNotBound:
            .refused
        case .networkUnavailable, .networkFailure, .serviceUnavailable, .serviceBusy, .deadlineExceeded,
            .serverResponseLost:
            .unreachable
        case .storeOutOfStep: .outOfStep
        case .accountTemporarilyUnavailable: .locked
        case .configurationInvalid, .storageFailure: .files
        case .invalidArguments: .usage
        case .operationCancelled where Interrupt.isPending: .interrupted
        default: .failed
        }
    }
}

/// Why a command failed. The one place that makes this of an error.
struct Failure {
    var status: ExitStatus
    /// Nil: what there is to say has been said.
    var error: CloudError?

    init(_ error: any Error) {
        switch error {
        case let status as ExitStatus:
            self.status = status
        case let code as ExitCode:
            status = ExitStatus(rawValue: code.rawValue) ?? .failed
        case let failure as OutputFailure:
            status = failure.number == EPIPE ? .unread : .output
            guard failure.number != EPIPE else { break }
            self.error = CloudError(
                .storageFailure, "The output could not be written.",
                details: ["reason": String(cString: strerror(failure.number))])
        case let error as CloudError:
            status = ExitStatus.of(error)
            self.error = error
        default:
            let error = Self.error(of: error)
            status = ExitStatus.of(error)
            self.error = error
        }
    }

    /// An error of the system's, as one of ours.
    private static func error(of error: any Error) -> CloudError {
        let error = error as NSError
        let underlying = error.userInfo[NSUnderlyingErrorKey] as? NSError ?? error
        var details: [String: String] = [:]
        details["file"] = (error.userInfo[NSFilePathErrorKey] ?? underlying.userInfo[NSFilePathErrorKey]) as? String
        if underlying.domain == NSPOSIXErrorDomain {
            let number = Int32(truncatingIfNeeded: underlying.code)
            details["reason"] = String(cString: strerror(number))
            if let known = self.error(ofNumber: number, details) { return known }
        }
        if error.domain == NSCocoaErrorDomain,
            let known = self.error(of: CocoaError.Code(rawValue: error.code), details)
        {
            return known
        }
        details["reason"] = details["reason"] ?? "\(error.domain) \(error.code)"
        return CloudError(.internalError, "An unexpected error stopped the command.", details: details)
    }

    private static func error(ofNumber number: Int32, _ details: [String: String]) -> CloudError? {
        switch number {
        case EACCES, EPERM: .notPermitted(details)
        case ENOENT, ENOTDIR, EISDIR: .fileMissing(details)
        case ENOSPC, EDQUOT, EROFS, EFBIG: .diskFull(details)
        default: nil
        }
    }

    private static func error(of code: CocoaError.Code, _ details: [String: String]) -> CloudError? {
        switch code {
        case .fileReadNoPermission, .fileWriteNoPermission: .notPermitted(details)
        case .fileNoSuchFile, .fileReadNoSuchFile, .fileReadInvalidFileName, .fileWriteInvalidFileName:
            .fileMissing(details)
        case .fileWriteOutOfSpace, .fileWriteVolumeReadOnly: .diskFull(details)
        default: nil
        }
    }
}

extension CloudError {
    fileprivate static func notPermitted(_ details: [String: String]) -> CloudError {
        CloudError(.permissionFailure, "This user may not use a file. Check its owner and mode.", details: details)
    }

    fileprivate static func fileMissing(_ details: [String: String]) -> CloudError {
        CloudError(.configurationInvalid, "A file is not there, or is no file.", details: details)
    }

    fileprivate static func diskFull(_ details: [String: String]) -> CloudError {
        CloudError(.storageFailure, "A file cannot be written: the disk is full, or read-only.", details: details)
    }
}

/// An error as `--json` prints it, on standard error.
private struct ErrorReport: Encodable {
    var error: String
    var message: String
    var details: [String: Detail]
    var retry: String
    var exitCode: Int32

    /// A number where the detail is one by its name: what somebody has named may look like one.
    struct Detail: Encodable {
        private static let numbers: Set<String> = [
            "pending", "unsent", "refused", "deletions", "damaged", "maximum", "bytes", "capacity", "pid", "port",
            "free_attempts", "new_devices_per_hour",
        ]
        private static let endings = ["_max", "_min", "_bytes", "_milliseconds", "revoked_at"]

        var name: String
        var text: String

        func encode(to encoder: any Encoder) throws {
            var container = encoder.singleValueContainer()
            let isNumber = Self.numbers.contains(name) || Self.endings.contains { name.hasSuffix($0) }
            if isNumber, let number = Int64(text) { try container.encode(number) } else { try container.encode(text) }
        }
    }
}

extension CloudError {
    /// What a person reads of it, who does not always see the details: where a limit was passed also that, and what
    /// there is; and which key cannot be read.
    var sentence: String {
        if let revocation { return revocation }
        if code == .storageFailure, let key = details["key"], let end = message.firstIndex(of: ".") {
            return "\(message[..<end]): the value of \(key) cannot be read\(message[end...])"
        }
        guard code == .quotaExceeded, let end = message.firstIndex(of: "."), let limit else { return message }
        return "\(message[..<end]): \(limit)\(message[end...])"
    }

    /// By whom this device was revoked, and when, and what a person can do.
    private var revocation: String? {
        guard code == .deviceRevoked else { return nil }
        let cure = "Or remove what it has of the account: nephos wipe"
        guard let time = details["revoked_at"].flatMap({ UInt64($0) }), let name = details["revoked_by"],
            let end = message.firstIndex(of: ".")
        else { return "\(message) \(cure)" }
        let by = name.isEmpty ? "the operator" : "the device \(inLine(name))"
        let when = describe(Timestamp(milliseconds: time))
        return "\(message[..<end]) by \(by), \(when)\(message[end...]) \(cure)"
    }

    private var limit: String? {
        func number(_ name: String) -> UInt64? { details[name].flatMap { UInt64($0) } }
        if let maximum = number("maximum"), let actual = number("actual") {
            func amount(_ number: UInt64) -> String {
                details["limit"]?.hasSuffix("_bytes") == true ? describe(bytes: number) : "\(number)"
            }
            return "\(amount(actual)), at most \(amount(maximum))"
        }
        guard let used = number("used_bytes"), let plan = number("plan_bytes"), plan > 0 else { return nil }
        guard let needed = number("bytes") else { return "\(describe(bytes: used)) of \(describe(bytes: plan)) used" }
        // The service knows what it uses itself, and not what the others do: so not what is left either.
        return "it takes \(describe(bytes: needed)), and "
            + (used >= plan
                ? "nothing of \(describe(bytes: plan)) is left"
                : "the plan has \(describe(bytes: plan)) for all that is stored (nephos storage)")
    }
}

extension NephosCommand {
    /// Prints the error where a person or a script looks for it, and ends the process.
    static func exit(reporting error: any Error) -> Never {
        if isOfParser(error) { exitOfParser(error) }
        let failure = Failure(error)
        if let error = failure.error { report(error, failure.status) }
        Foundation.exit(failure.status.rawValue)
    }

    /// Characters of a detail that a person is shown.
    private static let shownMax = 1000

    private static func report(_ error: CloudError, _ status: ExitStatus) {
        if CommandLine.arguments.contains("--json") {
            let report = ErrorReport(
                error: error.code.description, message: error.message,
                details: Dictionary(
                    error.details.map { ($0.key, ErrorReport.Detail(name: $0.key, text: $0.value)) }
                ) { first, _ in first },
                retry: "\(error.code.retry)", exitCode: status.rawValue)
            write((try? OutputOptions.encode(report)) ?? error.description)
        } else {
            write("nephos: \(error.sentence)")
            let said = error.code == .deviceRevoked ? ["revoked_at", "revoked_by"] : []
            for (name, value) in error.details.sorted(by: { $0.key < $1.key }) where !said.contains(name) {
                // A name may be what is too long. In JSON it is whole.
                let shown = value.count > shownMax ? "\(value.prefix(shownMax))…" : value
                write("  \(name.replacing("_", with: " ")): \(inLine(shown))")
            }
            if let retryAfter = error.retryAfter { write("  try again in: \(describe(retryAfter))") }
        }
    }

    /// Whether the error is about the arguments, or is a request for help: whatever this is not.
    private static func isOfParser(_ error: any Error) -> Bool {
        if error is CleanExit || error is ValidationError { return true }
        // The parser's own errors are not public.
        return !(error is CloudError || error is ExitStatus || error is ExitCode)
            && String(reflecting: type(of: error)).hasPrefix("ArgumentParser.")
    }

    private static func exitOfParser(_ error: any Error) -> Never {
        let text = HelpPage(fullMessage(for: error), for: arguments).text.split(
            separator: "\n", omittingEmptySubsequences: false
        )
        .map { HelpPage.shortUsage(String($0)) }.joined(separator: "\n")
        let unknown = UnknownCommand(in: arguments, of: NephosCommand.self)
        // Whoever asks for the help of a command that there is not gets no other one's.
        guard exitCode(for: error) != .success || unknown != nil && arguments.first == "help"
        else {
            // Help, the version, a completion script.
            do { try StandardOutput.write(text + "\n") } catch { exit(reporting: error) }
            Foundation.exit(ExitStatus.done.rawValue)
        }
        if CommandLine.arguments.contains("--json") {
            report(CloudError(.invalidArguments, unknown?.message ?? message(for: error)), .usage)
        } else if let unknown {
            write("Error: \(unknown.message)")
        } else {
            write(text)
            if let hint = dashHint(text) { write(hint) }
        }
        Foundation.exit(ExitStatus.usage.rawValue)
    }

    /// A value that looks like an option is the likely cause.
    ///
    /// - Parameter message: What the parser says: whether it misses an option's value, or knows no such option.
    private static func dashHint(_ message: String) -> String? {
        let arguments = CommandLine.arguments.dropFirst()
        guard !arguments.contains("--"),
            let value = arguments.first(where: {
                $0.count > 1 && $0.hasPrefix("-") && $0.dropFirst().first?.isNumber == true
            })
        else { return nil }
        let before = arguments.prefix { $0 != value }
        if let option = before.last, option.hasPrefix("-"), message.contains("Missing value for") {
            return
                "An option's value that begins with - follows an equals sign, as in: \(option)=\(ShellCommand.word(value))"
        }
        let words = arguments.filter { $0 != value }
        let command = words.map(ShellCommand.word).joined(separator: " ")
        return "A value that begins with - comes after --, as in: nephos \(command) -- \(ShellCommand.word(value))"
    }

    private static func write(_ line: String) { Standard.error(printable(line, keepsLines: true)) }
}

/// The standard streams. Foundation's own way to write ends the process where it fails.
enum Standard {
    /// A line on standard error; lost if nobody can take it.
    static func error(_ line: String) { _ = write(Array((line + "\n").utf8), to: 2) }

    /// - Returns: Whether all of it was written.
    static func write(_ bytes: [UInt8], to descriptor: Int32) -> Bool {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Foundation.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return false }
            rest = rest.dropFirst(count)
        }
        return true
    }
}
