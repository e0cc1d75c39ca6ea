import NephosCore
import NephosKit

/// Where a scope stands, as every command says it, and the exit code that goes with it. The one place that decides.
struct Standing: Equatable {
    /// What helps where the server does not find its files of contents.
    static let cureOfMissingContent =
        "Only its operator can bring them back (nephos status, there); then this works again."

    /// As JSON has it.
    enum State: String {
        case inSync = "in_sync"
        case refused
        case outOfStep = "out_of_step"
        case pending
        /// Changes wait in a place that the app no longer has.
        case leftBehind = "left_behind"
        /// The server cannot read some of a container's contents any more, or finds none of them.
        case damaged
        case notFetched = "not_fetched"
        /// Whether the server has the same is not known yet.
        case notCompared = "not_compared"
        /// Something keeps the scope as a whole from being current: nobody is signed in, the account is locked.
        case problem
    }

    var state: State
    /// One line; it begins with a small letter, and has the words "in sync" only where that is so, "out of step" only
    /// where something is known to differ.
    var line: String
    /// The same without the change token and the digest.
    var briefLine: String { line.replacing(position, with: "").replacing(proof, with: "") }
    private let position: String
    private let proof: String
    /// What else there is to say, a line each.
    var notes: [String]
    var exitStatus: ExitStatus
    /// What is in the way of the scope as a whole.
    private(set) var cause: CloudError?

    /// - Parameters:
    ///   - proof: A comparison with the server, which knows better than what the status remembers of the last.
    ///   - failure: Why the server has not been heard, where the status knows of nothing.
    init(_ status: StoreStatus, proof: Verification? = nil, failure: CloudError? = nil) {
        let token = proof?.token ?? status.head
        position = " at \(token)"
        self.proof = ", digest \(status.digest.short)"
        let refused = Self.named(status.refused.filter { !$0.isDropped })
        let dropped = Self.named(status.refused.filter(\.isDropped))
        let pending = proof?.pending ?? status.pending.count
        let waits = pending == 1 ? "one change waits to be sent" : "\(pending) changes wait to be sent"
        let outOfStep = status.problem.flatMap { $0.code == .storeOutOfStep ? $0.message : nil }
        notes = []
        exitStatus = .outOfStep
        let problem = status.problem ?? failure
        if let problem, problem.code != .storeOutOfStep {
            state = .problem
            line = "held up at \(token): \(Self.words(problem))"
            exitStatus = ExitStatus.of(problem)
            cause = problem
        } else if proof.map({ !$0.agrees }) ?? (outOfStep != nil) {
            state = .outOfStep
            line = "out of step at \(token)" + (proof == nil ? outOfStep.map { ": \($0)" } ?? "" : ".")
            if proof == nil { notes.append("See: nephos verify") }
        } else if !status.initialSyncFinished {
            state = .notFetched
            line = "the store has not been fetched yet."
        } else if !status.refused.isEmpty {
            state = .refused
            line =
                "incomplete at \(token): "
                + (refused.isEmpty
                    ? "dropped changes are kept until you dismiss them." : "the server rejected changes.")
        } else if pending > 0 {
            state = .pending
            line = "incomplete at \(token): \(waits)."
            if let answer = Self.answer(status) {
                line = "held up at \(token): \(Self.words(answer))"
                exitStatus = ExitStatus.of(answer)
                cause = answer
            }
        } else if !status.leftBehind.isEmpty {
            state = .leftBehind
            line = "incomplete at \(token): changes wait for a store that the app no longer has."
        } else if proof?.isContentMissing ?? status.isContentMissing {
            state = .damaged
            line = "incomplete at \(token): the server does not find its files of contents."
            notes.append(Self.cureOfMissingContent)
        } else if proof?.damagedChunkCount ?? status.damagedChunkCount > 0 {
            state = .damaged
            line = "incomplete at \(token): the server cannot read some of the content any more."
        } else if proof == nil, !status.agrees {
            state = .notCompared
            line = "the store at \(token) has not been compared with the server's yet."
        } else {
            state = .inSync
            line = "in sync\(position)\(self.proof)"
            exitStatus = .done
            if let problem = status.followingProblem {
                line += ", as of this look"
                notes.append("Changes by other devices are not told of at once: \(Self.words(problem))")
            }
        }
        if pending > 0 {
            notes.append((state == .pending && cause == nil ? "" : "\(Self.sentence(waits)). ") + "See: nephos why")
        }
        if !refused.isEmpty { notes.append("The server rejected: \(refused)") }
        if !dropped.isEmpty { notes.append("Dropped here: \(dropped)") }
        if !status.refused.isEmpty { notes.append("See: nephos why. Dismiss with: nephos discard") }
        if !status.leftBehind.isEmpty, state == .leftBehind { notes.append("See: nephos why") }
    }

    /// The line and the notes, as sentences.
    var text: String { ([headline] + notes).joined(separator: "\n") }

    /// The line alone, as a sentence.
    var headline: String { Self.sentence(line) + (state == .inSync ? "." : "") }

    /// Whether the same keeps the store from being in sync; how much waits meanwhile is nothing else.
    func isSameCause(as other: Standing) -> Bool {
        guard state == other.state, cause?.code == other.cause?.code, cause?.message == other.cause?.message else {
            return false
        }
        return state == .problem || state == .pending || notes == other.notes
    }

    /// What is in the way of the writes that wait, as far as anybody has said it: what blocks one of them, or what the
    /// server has answered to the first, which the others wait for; nil: nobody has.
    static func answer(_ status: StoreStatus) -> CloudError? {
        if let blocking = status.pending.first(where: { $0.state == .blocked })?.error { return blocking }
        // What somebody keeps here is nobody's answer.
        guard let first = status.pending.first(where: { !$0.isByChoice }) else { return nil }
        if first.state == .deferred { return CloudError(.requestRateLimited, first.reason) }
        guard let error = first.error else { return nil }
        switch error.code {
        case .networkUnavailable, .networkFailure, .serverResponseLost, .deadlineExceeded: return nil
        default: return error
        }
    }

    private static func named(_ writes: [RefusedWrite]) -> String {
        listed(writes.map { "\(inLine($0.key.rawValue)) (\(words($0.error)))" })
    }

    /// An error of the store's as a person reads it, who knows of no calls.
    static func words(_ error: CloudError) -> String {
        switch error.code {
        case .serverResponseLost, .deadlineExceeded: "The server has not answered in time."
        default: error.sentence
        }
    }

    /// What there is to say beside that it is in sync; nil: nothing.
    var reason: String? { state == .inSync ? nil : ([line] + notes).joined(separator: " ") }

    /// - Throws: ``ExitStatus`` unless everything is in sync.
    func end() throws(ExitStatus) { if exitStatus != .done { throw exitStatus } }

    private static func sentence(_ text: String) -> String { text.prefix(1).uppercased() + text.dropFirst() }
}

extension Sequence where Element == Standing {
    /// - Throws: ``ExitStatus`` of the first that is not in sync.
    func end() throws(ExitStatus) { for standing in self { try standing.end() } }
}

extension CloudError {
    /// Why the server does not do what it was asked for; nil: it is silent, as it is every day.
    var reasonInWords: String? {
        guard ExitStatus.of(self) == .unreachable, !isOfOtherKey else { return Standing.words(self) }
        // Only what was waited for in vain says in words what was in the way.
        return code == .deadlineExceeded ? details["reason"] : nil
    }
}
