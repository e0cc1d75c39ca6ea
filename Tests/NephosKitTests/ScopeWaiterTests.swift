import NephosCore
import NephosWire
import Testing

@testable import NephosKit

/// Who waits for a scope is told when it got there, why not, or that it took too long: once.
@Suite struct ScopeWaiterTests {
    typealias Action = ScopeSync.Action

    private static let locked = CloudError(.accountTemporarilyUnavailable, "Locked.")
    private static let away = CloudError(.serviceUnavailable, "Away.")

    private func open() -> ScopeSync {
        var sync = ScopeSync(generator: SplitMix64(seed: 1))
        _ = sync.begin("notes")
        return sync
    }

    private func finishPull(_ sync: inout ScopeSync) {
        _ = sync.found(.zero)
        var page = WireReadChangesReply()
        page.complete = sync.pull.reading?.isListing ?? true
        _ = sync.page(page)
        _ = sync.applied(AppliedPages(digestAgrees: true), wasListing: true)
    }

    private func standing(
        isSynced: Bool = true, waiting: Int = 0, blocked: CloudError? = nil, problem: CloudError? = nil
    ) -> ScopeStanding {
        ScopeStanding(isSynced: isSynced, waiting: waiting, blocked: blocked, problem: problem)
    }

    private func ended(_ actions: [Action]) -> [Int: CloudError?] {
        var ended: [Int: CloudError?] = [:]
        for case .finish(let number, let error) in actions { ended[number] = .some(error) }
        return ended
    }

    @Test func aPullThatWasUnderWayMayHaveMissedTheLatest() {
        var sync = open()
        let (number, actions) = sync.wait(for: nil, timeout: .seconds(9), isImpatient: false, at: .zero)
        #expect(actions == [.wait(.waiter(number), .seconds(9)), .look])
        finishPull(&sync)
        #expect(sync.settleWaiters(by: standing()) == [])
        finishPull(&sync)
        #expect(sync.settleWaiters(by: standing()) == [.stopWaiting(.waiter(number)), .finish(number, nil)])
        #expect(sync.settleWaiters(by: standing()) == [])
    }

    @Test func whatIsSentIsWaitedForUntilNothingIsLeft() {
        var sync = open()
        let (number, actions) = sync.wait(for: .sent, timeout: .seconds(9), isImpatient: false, at: .zero)
        #expect(actions.contains(.wait(.turn, .zero)))
        #expect(sync.settleWaiters(by: standing(waiting: 1, blocked: Self.away)) == [])
        #expect(ended(sync.settleWaiters(by: standing())) == [number: nil])
    }

    @Test func whatIsHereAlreadyStaysHereWhateverIsInTheWayOfMore() {
        var sync = open()
        let (number, _) = sync.wait(for: .downloaded, timeout: .seconds(9), isImpatient: false, at: .zero)
        #expect(sync.settleWaiters(by: standing(isSynced: false, problem: Self.away)) == [])
        #expect(ended(sync.settleWaiters(by: standing(problem: Self.locked))) == [number: nil])
        let (second, _) = sync.wait(for: .downloaded, timeout: .seconds(9), isImpatient: false, at: .zero)
        #expect(ended(sync.settleWaiters(by: standing(isSynced: false, problem: Self.locked))) == [second: Self.locked])
    }

    @Test func theImpatientHearWhatOnlyAPersonCanCure() {
        var sync = open()
        let (patient, _) = sync.wait(for: .sent, timeout: .seconds(9), isImpatient: false, at: .zero)
        let (first, _) = sync.wait(for: .sent, timeout: .seconds(9), isImpatient: true, at: .zero)
        #expect(sync.settleWaiters(by: standing(waiting: 1, problem: Self.away)) == [])
        #expect(ended(sync.settleWaiters(by: standing(waiting: 1, blocked: Self.away))) == [first: Self.away])
        let (second, _) = sync.wait(for: nil, timeout: .seconds(9), isImpatient: true, at: .zero)
        #expect(ended(sync.settleWaiters(by: standing(waiting: 1, problem: Self.locked))) == [second: Self.locked])
        let (third, _) = sync.wait(for: nil, timeout: .seconds(9), isImpatient: true, at: .zero)
        let nobody = CloudError(.networkUnavailable, "Nobody listens there.")
        #expect(ended(sync.refused(nobody)) == [third: nobody])
        #expect(sync.waiters.keys.sorted() == [patient])
    }

    @Test func whoWouldWaitLongerThanTheServerPausesGoesOn() {
        var sync = open()
        let (short, _) = sync.wait(for: nil, timeout: .seconds(10), isImpatient: false, at: .zero)
        let (long, _) = sync.wait(for: nil, timeout: .seconds(100), isImpatient: false, at: .zero)
        let (sending, _) = sync.wait(for: .sent, timeout: .seconds(10), isImpatient: false, at: .zero)
        #expect(
            sync.endWaiters(pausedFor: .seconds(60), because: Self.away, pulling: true, at: .zero)
                == [.stopWaiting(.waiter(short)), .giveUp(short)])
        #expect(
            ended(sync.endWaiters(pausedFor: .seconds(60), because: Self.locked, pulling: false, at: .zero))
                == [sending: Self.locked])
        // Most of its time has passed.
        #expect(
            sync.endWaiters(pausedFor: .seconds(60), because: Self.away, pulling: true, at: .seconds(50))
                == [.stopWaiting(.waiter(long)), .giveUp(long)])
    }

    @Test func whoseTimeIsOverIsToldOnce() {
        var sync = open()
        let (number, _) = sync.wait(for: .sent, timeout: .seconds(9), isImpatient: false, at: .zero)
        #expect(sync.due(.waiter(number)) == [.giveUp(number)])
        #expect(sync.due(.waiter(number)) == [] && sync.endWaiter(number, .success(())) == [])
        #expect(sync.settleWaiters(by: standing()) == [])
    }

    @Test func theyWaitOnWhenAnotherSessionBegins() {
        var sync = open()
        let (number, _) = sync.wait(for: nil, timeout: .seconds(9), isImpatient: false, at: .zero)
        #expect(!sync.end().contains(.stopWaiting(.waiter(number))))
        _ = sync.begin("notes")
        finishPull(&sync)
        #expect(ended(sync.settleWaiters(by: standing())) == [number: nil])
    }
}
