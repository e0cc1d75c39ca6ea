internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosWire

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

    /// What is asked, and by how many.
    private struct Asked {
        var completions: [(Answer) -> Void] = []
        /// Who may follow the scope has changed since: the answer may be from before.
        var isOutdated = false
    }

    /// How long a subscriber waits. What comes later is known from then on.
    private static let patience: Duration = .seconds(2)
    /// Questions of one account without an answer yet: more than its devices have scopes, and so few that what the
    /// account asks of a service that does not answer is no obstacle to others. Further ones are not sent.
    static let perAccountMax = 1024

    typealias Schedule = (Duration, @escaping () -> Void) -> any LoopTimer
    /// Sends a `ReadHeads` to a service.
    typealias Call = (ServiceName, Frame, @escaping (Result<Frame, CloudError>) -> Void) -> Void

    private let schedule: Schedule
    private let call: Call
    /// Called with each answer, also one that comes too late for those who asked.
    private let learned: (ScopeKey, Caller, Answer) -> Void
    /// By scope, since that is what others may follow than before.
    private var asked: [ScopeKey: [ScopeReader: Asked]] = [:]
    private var countByAccount: [AccountID: Int] = [:]

    init(
        schedule: @escaping Schedule, call: @escaping Call, learned: @escaping (ScopeKey, Caller, Answer) -> Void
    ) {
        self.schedule = schedule
        self.call = call
        self.learned = learned
    }

    func isAsked(_ key: ScopeKey, for caller: Caller) -> Bool { asked[key]?[ScopeReader(caller)] != nil }

    /// Others may follow the scope than before: what is on its way does not count.
    func outdate(_ key: ScopeKey) {
        guard let readers = asked[key]?.keys else { return }
        for reader in Array(readers) { asked[key]?[reader]?.isOutdated = true }
    }

    /// The same of many, of a service that was restored, say. It looks at all, which is for rare occasions.
    func outdate(where isOutdated: (ScopeKey) -> Bool) {
        for key in Array(asked.keys) where isOutdated(key) { outdate(key) }
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
        let reader = ScopeReader(caller)
        for key in answers.keys.sorted() {
            if asked[key]?[reader] == nil {
                guard countByAccount[caller.account, default: 0] < Self.perAccountMax else {
                    left -= 1
                    continue
                }
                countByAccount[caller.account, default: 0] += 1
                fresh.append(key)
            }
            asked[key, default: [:]][reader, default: Asked()].completions.append { answer in
                guard !isDone else { return }
                answers[key] = answer
                left -= 1
                if left == 0 { finish() }
            }
        }
        // Not before this returns.
        if left == 0 { timer = schedule(.zero) { if !isDone { finish() } } }
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
        let reader = ScopeReader(caller)
        for (index, key) in keys.enumerated() {
            if asked[key]?[reader]?.isOutdated == true {
                asked[key]?[reader]?.isOutdated = false
                outdated.append(key)
                continue
            }
            var answer = Answer.none
            if case .success(let scopes) = result, scopes.count == keys.count { answer = Answer(scopes[index]) }
            let completions = remove(key, reader, of: caller.account)
            learned(key, caller, answer)
            for completion in completions { completion(answer) }
        }
        send(outdated, for: caller)
    }

    private func remove(_ key: ScopeKey, _ reader: ScopeReader, of account: AccountID) -> [(Answer) -> Void] {
        guard let question = asked[key]?.removeValue(forKey: reader) else { return [] }
        if asked[key]?.isEmpty == true { asked[key] = nil }
        let left = countByAccount[account, default: 1] - 1
        countByAccount[account] = left > 0 ? left : nil
        return question.completions
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
