import NephosBus
import NephosCore
import NephosServiceKit
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosNotifications

/// What the services are asked about their scopes, and which answers count.
@Suite struct ScopeQuestionTests {
    /// Services that answer when the test says so.
    private final class Services {
        var asked: [(service: ServiceName, request: WireReadHeads, answer: (Result<Frame, CloudError>) -> Void)] = []
        var timers: [() -> Void] = []
        var learned: [ScopeKey] = []

        func answer(_ index: Int, _ audiences: WireAudience...) {
            var reply = WireReadHeadsReply()
            reply.scopes = audiences.map { audience in
                var scope = WireReadHeadsReply.Scope()
                scope.audience = audience
                return scope
            }
            guard asked.indices.contains(index) else {
                Issue.record("Nothing was asked.")
                return
            }
            asked[index].answer(.success(Frame(encoding: reply)))
        }
    }

    private final class Timer: LoopTimer {
        func cancel() {}
    }

    private let services = Services()

    private func makeQuestions() -> ScopeQuestions {
        ScopeQuestions(
            schedule: { [services] _, action in
                services.timers.append(action)
                return Timer()
            },
            call: { [services] service, body, answer in
                services.asked.append((service, (try? body.decode(WireReadHeads.self)) ?? WireReadHeads(), answer))
            },
            learned: { [services] key, _, _ in services.learned.append(key) })
    }

    private func caller(_ account: String) -> Caller {
        Caller(
            account: AccountID(account), device: DeviceID("d"), app: AppID("app"),
            entitlements: Entitlements(store: nil, containers: ["x"]), expires: Timestamp(milliseconds: 1), keyID: "key"
        )
    }

    private func key(_ owner: String, _ path: ItemName, _ service: ServiceName = .records) -> ScopeKey {
        ScopeKey(service: service, name: ScopeName(Owner(owner), path))
    }

    private func words(_ answers: [ScopeKey: ScopeQuestions.Answer]) -> [String] {
        answers.sorted { $0.key < $1.key }.map { key, answer in
            switch answer {
            case .granted(_, let audience): "\(key.name) \(audience)"
            case .refused: "\(key.name) refused"
            case .none: "\(key.name) none"
            }
        }
    }

    @Test func oneQuestionIsSentForTheScopesOfAnOwnerAndSharedByWhoAsksTheSame() {
        let questions = makeQuestions()
        var heard: [[String]] = []
        questions.ask([key("a", "1"), key("a", "2"), key("b", "1")], for: caller("a")) { heard.append(words($0)) }
        questions.ask([key("a", "1")], for: caller("a")) { heard.append(words($0)) }
        questions.ask([key("a", "1")], for: caller("c")) { heard.append(words($0)) }
        #expect(services.asked.map(\.request.owner) == ["a", "b", "a"])
        #expect(services.asked.map(\.request.scopes) == [["1", "2"], ["1"], ["1"]])
        #expect(services.asked.map(\.request.reader.accountID) == ["a", "a", "c"])
        #expect(services.asked[0].request.reader.app.containerIds == ["x"])
        services.answer(0, .reader, .nobody)
        #expect(heard == [["a/1 reader"]])
        services.answer(2, .nobody)
        services.answer(1, .app)
        #expect(heard.dropFirst() == [["a/1 refused"], ["a/1 reader", "a/2 refused", "b/1 app"]])
    }

    @Test func whatWasAskedBeforeAChangeOfAccessIsAskedAgain() {
        let questions = makeQuestions()
        var heard: [[String]] = []
        questions.ask([key("a", "1"), key("a", "2")], for: caller("a")) { heard.append(words($0)) }
        questions.outdate(key("a", "1"))
        services.answer(0, .reader, .reader)
        #expect(heard.isEmpty && services.learned == [key("a", "2")])
        #expect(services.asked.count == 2 && services.asked[1].request.scopes == ["1"])
        services.answer(1, .nobody)
        #expect(heard == [["a/1 refused", "a/2 reader"]])
    }

    @Test func oneAccountsQuestionsAreLimitedAndAnothersAreNot() {
        let questions = makeQuestions()
        var heard: [[String]] = []
        for number in 0..<ScopeQuestions.perAccountMax {
            questions.ask([key("o\(number)", "1")], for: caller("a")) { _ in }
        }
        let timers = services.timers.count
        questions.ask([key("late", "1")], for: caller("a")) { heard.append(words($0)) }
        questions.ask([key("o0", "1"), key("late", "1")], for: caller("a")) { heard.append(words($0)) }
        #expect(services.asked.count == ScopeQuestions.perAccountMax && heard.isEmpty)
        questions.ask([key("late", "1")], for: caller("b")) { heard.append(words($0)) }
        #expect(services.asked.count == ScopeQuestions.perAccountMax + 1)
        // What is asked already is waited for, and what is not asked is not.
        services.timers[timers + 1]()
        #expect(heard == [["late/1 none"]])
        services.answer(0, .reader)
        #expect(heard.last == ["late/1 none", "o0/1 reader"])
        // There is room again.
        questions.ask([key("late", "1")], for: caller("a")) { heard.append(words($0)) }
        #expect(services.asked.count == ScopeQuestions.perAccountMax + 2)
    }

    @Test func aServiceThatDoesNotAnswerKeepsNobodyWaiting() {
        let questions = makeQuestions()
        var heard: [[String]] = []
        questions.ask([key("a", "1"), key("a", "1", .documents)], for: caller("a")) { heard.append(words($0)) }
        services.answer(1, .reader)
        #expect(heard.isEmpty)
        services.timers[0]()
        #expect(heard == [["a/1 none", "a/1 reader"]])
        // What comes later is known, and nobody is called twice.
        #expect(questions.isAsked(key("a", "1", .documents), for: caller("a")))
        services.answer(0, .reader)
        #expect(heard.count == 1 && services.learned.count == 2)
        #expect(!questions.isAsked(key("a", "1", .documents), for: caller("a")))
        // Fewer answers than questions are none.
        questions.ask([key("a", "1")], for: caller("a")) { heard.append(words($0)) }
        services.answer(2)
        #expect(heard.last == ["a/1 none"])
    }
}
