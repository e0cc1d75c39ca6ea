internal import Bus
internal import Core
internal import ServiceKit
internal import Wire

private import struct Foundation.Data

/// Asks the services that have the scopes who may follow them, and where they stand. Who asks the same for the same
/// reader meanwhile shares the answer.
final class ScopeQuestions {
    enum Answer {
        case granted(HeadCache.Head, ScopeAudience)
        case refused
        /// The service has not answered in time, or not sensibly.
        case none
    }

    typealias Completion = ([ScopeKey: Answer]) -> Void

    private struct Question: Hashable {
        var key: ScopeKey
        var reader: ScopeReader

        init(_ key: ScopeKey, _ caller: Caller) {
            self.key = key
            reader = ScopeReader(caller)
        }
    }

    /// What is asked, and by how many.
    private struct Asked {
        var completions: [(Answer) -> Void] = []
        /// Who may follow the scope has changed since: the answer may be from before.
        var isOutdated = false
    }

    /// How long a subscriber waits. What comes later is known from then on.
    private static let patience: Duration = .seconds(2)

    typealias Schedule = (Duration, @escaping () -> Void) -> any LoopTimer
    /// Sends a `ReadHeads` to a service.
    typealias Call = (ServiceName, Frame, @escaping (Result<Frame, CloudError>) -> Void) -> Void

    private let schedule: Schedule
    private let call: Call
    /// Called with each answer, also one that comes too late for those who asked.
    private let learned: (ScopeKey, Caller, Answer) -> Void
    private var asked: [Question: Asked] = [:]

    init(
        schedule: @escaping Schedule, call: @escaping Call, learned: @escaping (ScopeKey, Caller, Answer) -> Void
    ) {
        self.schedule = schedule
        self.call = call
        self.learned = learned
    }

    func isAsked(_ key: ScopeKey, for caller: Caller) -> Bool { asked[Question(key, caller)] != nil }

    /// Others may follow these scopes than before: what is on its way does not count.
    func outdate(where isChanged: (ScopeKey) -> Bool) {
        for question in Array(asked.keys) where isChanged(question.key) { asked[question]?.isOutdated = true }
    }

    /// Asks; the completion runs once, with an answer for each: one service that does not answer keeps no others from
    /// being told.
    func ask(_ keys: [ScopeKey], for caller: Caller, _ completion: @escaping Completion) {
        guard !keys.isEmpty else { return completion([:]) }
        var answers: [ScopeKey: Answer] = [:]
        var isDone = false
        var timer: (any LoopTimer)?
        func finish() {
            isDone = true
            timer?.cancel()
            completion(answers)
        }
        timer = schedule(Self.patience) { if !isDone { finish() } }
        for key in keys { answers[key] = Answer.none }
        var left = answers.count
        var fresh: [ScopeKey] = []
        for key in answers.keys.sorted() {
            let question = Question(key, caller)
            if asked[question] == nil { fresh.append(key) }
            asked[question, default: Asked()].completions.append { answer in
                guard !isDone else { return }
                answers[key] = answer
                left -= 1
                if left == 0 { finish() }
            }
        }
        send(fresh, for: caller)
    }

    /// One request for all scopes of one owner in one service.
    private func send(_ keys: [ScopeKey], for caller: Caller) {
        var rest = keys[...]
        while let first = rest.first {
            let group = rest.prefix { $0.service == first.service && $0.name.owner == first.name.owner }
            rest = rest.dropFirst(group.count)
            var request = WireReadHeads()
            request.owner = first.name.owner.rawValue
            request.scopes = group.map { $0.name.path.rawValue }
            request.reader = WireReader(caller)
            call(first.service, Frame(encoding: request)) { [weak self] result in
                let scopes = result.decoded(as: WireReadHeadsReply.self).map(\.scopes)
                self?.answered(Array(group), caller, scopes)
            }
        }
    }

    private func answered(
        _ keys: [ScopeKey], _ caller: Caller, _ result: Result<[WireReadHeadsReply.Scope], CloudError>
    ) {
        var outdated: [ScopeKey] = []
        for (index, key) in keys.enumerated() {
            let question = Question(key, caller)
            if asked[question]?.isOutdated == true {
                asked[question]?.isOutdated = false
                outdated.append(key)
                continue
            }
            var answer = Answer.none
            if case .success(let scopes) = result, scopes.count == keys.count { answer = Answer(scopes[index]) }
            let completions = asked.removeValue(forKey: question)?.completions ?? []
            learned(key, caller, answer)
            for completion in completions { completion(answer) }
        }
        send(outdated, for: caller)
    }
}

extension ScopeQuestions.Answer {
    fileprivate init(_ scope: WireReadHeadsReply.Scope) {
        let head = HeadCache.Head(token: ChangeToken(scope.token), digest: scope.digest)
        switch scope.audience {
        case .nobody: self = .refused
        case .reader: self = .granted(head, .reader)
        case .app: self = .granted(head, .app)
        case .UNRECOGNIZED: self = .none
        }
    }
}
