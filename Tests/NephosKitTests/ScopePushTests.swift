import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// What of a scope's outbox goes out, when, and what becomes of it.
@Suite struct ScopePushTests {
    typealias Action = ScopeSync.Action

    private let start = Timestamp(milliseconds: 1_700_000_000_000)

    private func moment(_ seconds: Int = 0, clockSet: Duration = .zero) -> Moment {
        Moment(time: start.advanced(by: .seconds(seconds) + clockSet), monotonic: .seconds(1000 + seconds))
    }

    private func operation(_ position: Int64, edit: (inout OutboxOperation) -> Void = { _ in }) -> OutboxOperation {
        var generator = SplitMix64(seed: UInt64(position))
        var operation = OutboxOperation(
            position: position, id: OperationID(at: start, using: &generator), head: .zero, state: .unsent, writer: 7,
            created: start, attempts: 0, nextAttempt: Timestamp(milliseconds: 0))
        edit(&operation)
        return operation
    }

    /// Open and in step, at a turn of its own.
    private func current(inFlightMax: Int = 2) -> ScopeSync {
        var options = ScopeSync.Options()
        options.writer = 7
        options.pushesInFlightMax = inFlightMax
        var sync = ScopeSync(options: options, generator: SplitMix64(seed: 1))
        _ = sync.begin("notes")
        _ = sync.found(.zero)
        var page = WireReadChangesReply()
        page.complete = true
        _ = sync.page(page)
        _ = sync.applied(
            AppliedPages(head: ChangeToken(epoch: 1, sequence: 5), digestAgrees: true), wasListing: true)
        _ = sync.due(.turn)
        return sync
    }

    private func collect(
        _ sync: inout ScopeSync, _ waiting: [OutboxOperation], at now: Moment, isServerHeard: Bool = true
    ) -> [Action] {
        sync.collected(waiting, at: now, isServerHeard: isServerHeard)
    }

    private func sent(_ sync: inout ScopeSync, _ operation: OutboxOperation, at now: Moment) -> OutboxOperation {
        _ = collect(&sync, [operation], at: now)
        var sent = operation
        sent.state = .sent
        sent.attempts += 1
        sent.isCounted = true
        _ = sync.frozen([sent])
        return sent
    }

    private func fail(
        _ sync: inout ScopeSync, _ operation: OutboxOperation, _ error: CloudError, at now: Moment,
        wasHandedOver: Bool = true
    ) -> [Action] {
        sync.answered(
            PushAnswer(operation: operation, result: .failure(error), wasHandedOver: wasHandedOver, budget: nil),
            at: now)
    }

    private func updated(_ actions: [Action]) -> OutboxOperation? {
        for case .update(let operation, _) in actions { return operation }
        return nil
    }

    private func pause(_ actions: [Action]) -> Duration? {
        for case .wait(.push, let pause) in actions { return pause }
        return nil
    }

    @Test func aBurstIsCollectedOnce() {
        var sync = current()
        #expect(sync.push() == [.wait(.turn, .zero)])
        #expect(sync.push() == [])
        #expect(sync.due(.turn) == [.stopWaiting(.push), .collect(limit: 2)])
        #expect(sync.push() == [.wait(.turn, .zero)])
    }

    @Test func soManyGoOutAtOnceAndTheNextWhenOneIsAnswered() {
        var sync = current()
        let all = (1...3).map { operation($0) }
        #expect(collect(&sync, all, at: moment()) == [.freeze([all[0], all[1]], isAttempt: true)])
        #expect(sync.frozen([all[0], all[1]]) == [.send(all[0]), .send(all[1]), .changed])
        #expect(collect(&sync, all, at: moment()) == [])
        let reply = Frame([1])
        let answer = PushAnswer(operation: all[0], result: .success(reply), wasHandedOver: true, budget: nil)
        var counted = all[0]
        counted.attempts = 1
        #expect(sync.answered(answer, at: moment()) == [.accept(counted, reply), .wait(.turn, .zero), .changed])
        #expect(collect(&sync, [all[1], all[2]], at: moment()) == [.freeze([all[2]], isAttempt: true)])
    }

    @Test func whatIsGoneWhenItIsFrozenIsNotInFlight() {
        var sync = current()
        let all = (1...2).map { operation($0) }
        _ = collect(&sync, all, at: moment())
        #expect(sync.frozen([all[1]]) == [.send(all[1]), .changed])
        #expect(sync.outbox.inFlight == [2])
    }

    @Test func whatGoesAloneIsNeitherOvertakenNorOvertakes() {
        var sync = current()
        let alone = operation(2) { $0.goesAlone = true }
        #expect(collect(&sync, [operation(1), alone], at: moment()) == [.freeze([operation(1)], isAttempt: true)])
        _ = sync.frozen([operation(1)])
        #expect(collect(&sync, [operation(1), alone], at: moment()) == [])
        sync = current()
        #expect(
            collect(&sync, [alone, operation(3)], at: moment()).first
                == .freeze([alone, operation(3)], isAttempt: true))
    }

    @Test func aFailureKeepsItsIdAndIsTriedAgainAfterAGrowingPause() throws {
        var sync = current()
        var waiting = operation(1)
        var pauses: [Duration] = []
        var seconds = 0
        for _ in 0..<8 {
            let sent = sent(&sync, waiting, at: moment(seconds))
            let actions = fail(&sync, sent, CloudError(.serviceUnavailable, "Away."), at: moment(seconds))
            waiting = try #require(updated(actions))
            #expect(waiting.id == sent.id && waiting.state == .sent && waiting.error?.code == .serviceUnavailable)
            pauses.append(try #require(pause(collect(&sync, [waiting], at: moment(seconds)))))
            seconds += 61
        }
        #expect(waiting.attempts == 8)
        #expect(pauses[0] <= .seconds(1) && pauses[7] > .seconds(29) && pauses[7] <= .seconds(60))
    }

    @Test func noCorrectionOfTheClockHoldsAnAttemptUp() throws {
        var sync = current()
        let sent = sent(&sync, operation(1), at: moment())
        let waiting = try #require(updated(fail(&sync, sent, CloudError(.serviceUnavailable, "Away."), at: moment())))
        let back = moment(2, clockSet: .seconds(-86_400))
        #expect(collect(&sync, [waiting], at: back) == [.freeze([waiting], isAttempt: true)])
        // Another process, or this one after a restart, has only what is on disk.
        var other = current()
        #expect(try #require(pause(collect(&other, [waiting], at: back))) <= .seconds(60))
    }

    @Test func whatWasRefusedForItsRateKeepsItsId() throws {
        var sync = current()
        let sent = sent(&sync, operation(1), at: moment())
        let limited = CloudError(.requestRateLimited, "Later.", retryAfter: .seconds(30))
        let actions = fail(&sync, sent, limited, at: moment())
        let waiting = try #require(updated(actions))
        #expect(waiting.state == .sent && waiting.id == sent.id)
        #expect(actions.contains(.endWaiters(pausedFor: .seconds(30), limited, pulling: false)))
        #expect(pause(collect(&sync, [waiting], at: moment())) == .seconds(30))
    }

    @Test func whatIsNeverAcceptedIsTakenOut() {
        var sync = current()
        let sent = sent(&sync, operation(1), at: moment())
        let error = CloudError(.quotaExceeded, "Full.")
        var refused = sent
        refused.error = error
        #expect(
            fail(&sync, sent, error, at: moment()) == [
                .refuse(refused, error), .tellNews, .wait(.turn, .zero), .changed,
            ])
    }

    @Test func whatNeedsAPersonWaitsForOne() throws {
        var sync = current()
        let sent = sent(&sync, operation(1), at: moment())
        let error = CloudError(.permissionFailure, "The app may not.")
        let waiting = try #require(updated(fail(&sync, sent, error, at: moment())))
        #expect(waiting.state == .blocked)
        let pending = sync.describe(
            waiting, items: ["k"], problem: nil, isSynced: true, isServerHeard: true, at: moment())
        #expect(pending.state == .blocked && pending.reason == "The app may not." && pending.blocker == .policy)
    }

    @Test func anAttemptThatNobodyHeardIsNone() throws {
        var sync = current()
        let sent = sent(&sync, operation(1), at: moment())
        let silence = CloudError(.networkFailure, "No connection.")
        let actions = fail(&sync, sent, silence, at: moment(), wasHandedOver: false)
        #expect(try #require(updated(actions)).attempts == 0)
        // Whoever noted it has to hear when it is over.
        #expect(sync.problem == silence && actions.contains(.find))
        let heard = PushAnswer(operation: sent, result: .success(Frame([])), wasHandedOver: true, budget: nil)
        _ = sync.answered(heard, at: moment())
        #expect(sync.problem == nil)
    }

    @Test func whatIsKnownOnlyAfterAPullWaitsForIt() {
        var sync = current()
        let sent = sent(&sync, operation(1), at: moment())
        #expect(sync.settled(sent, as: .pullFirst, at: moment()) == [.tellNews, .find])
        _ = sync.push()
        #expect(sync.due(.turn) == [])
        _ = sync.found(ChangeToken(epoch: 1, sequence: 5))
        _ = sync.page(WireReadChangesReply())
        _ = sync.applied(AppliedPages(digestAgrees: true), wasListing: false)
        #expect(sync.due(.turn) == [.stopWaiting(.push), .collect(limit: 3)])
    }

    @Test func aReplyThatIsAheadOfTheCopyWaitsForWhatIsBetween() {
        var sync = current()
        let token = ChangeToken(epoch: 1, sequence: 8)
        let segment = FeedSegment(previous: 7, token: token, changes: [])
        #expect(
            sync.settled(operation(1), as: .stored(segment, .ahead), at: moment()) == [
                .tellNews, .wait(.gap, .milliseconds(50)),
            ])
        #expect(sync.due(.gap) == [.find])
    }

    @Test func aReplyThatIsNoneIsAskedForAgain() throws {
        var sync = current()
        let sent = sent(&sync, operation(1), at: moment())
        let waiting = try #require(updated(sync.settled(sent, as: .unusable, at: moment())))
        #expect(waiting.id == sent.id && waiting.state == .sent && waiting.nextAttempt > start)
    }

    @Test func whatAnotherProcessIsAboutToSendIsLeftToIt() {
        var sync = current()
        let foreign = operation(1) { $0.writer = 8 }
        #expect(collect(&sync, [foreign], at: moment()) == [.wait(.push, .seconds(1))])
        // What must not be overtaken is not, while it is left to its own process.
        let (first, later) = (operation(1) { ($0.writer, $0.goesAlone) = (8, true) }, operation(2))
        #expect(collect(&sync, [first, later], at: moment()) == [.wait(.push, .seconds(1))])
        #expect(collect(&sync, [foreign], at: moment(1)) == [.freeze([foreign], isAttempt: true)])
        // By a clock that was ahead it is from the future.
        sync = current()
        let future = operation(2) {
            $0.writer = 8
            $0.created = start.advanced(by: .seconds(3600))
        }
        #expect(collect(&sync, [future], at: moment()) == [.freeze([future], isAttempt: true)])
    }

    @Test func aSmallBudgetSpacesThemOut() throws {
        var sync = current(inFlightMax: 10)
        let sent = sent(&sync, operation(1), at: moment())
        let budget = Budget(capacity: 10, remaining: 2, refill: .seconds(3))
        _ = sync.answered(
            PushAnswer(operation: sent, result: .success(Frame([])), wasHandedOver: true, budget: budget), at: moment())
        let actions = collect(&sync, [operation(2), operation(3)], at: moment())
        #expect(actions.contains(.freeze([operation(2)], isAttempt: true)))
        #expect(try #require(pause(actions)) > .seconds(1))
        let pending = sync.describe(
            operation(3), items: [], problem: nil, isSynced: true, isServerHeard: true, at: moment())
        #expect(pending.state == .deferred && pending.blocker == .server && pending.nextAttempt != nil)
    }

    @Test func everyPauseHasAReason() {
        var sync = current()
        func reason(_ operation: OutboxOperation, _ problem: CloudError? = nil, isSynced: Bool = true) -> String {
            sync.describe(
                operation, items: [], problem: problem, isSynced: isSynced, isServerHeard: true, at: moment()
            ).reason
        }
        #expect(reason(operation(1)) == "It is about to be sent.")
        #expect(reason(operation(1), isSynced: false) == "It waits until the first download has finished.")
        #expect(reason(operation(1), CloudError(.notSignedIn, "Sign in.")) == "Sign in.")
        #expect(reason(operation(1), CloudError(.networkFailure, "No network.")) == "No network.")
        #expect(reason(operation(1) { $0.attempts = 1 }) == "It was sent, and no answer has come. It is sent again.")
        let sent = sent(&sync, operation(1), at: moment())
        #expect(reason(sent) == "It was sent; the answer has not arrived.")
    }
}
