import Foundation
import NephosCore
import NephosWire
import Testing

@testable import NephosKit

/// What a scope's device decides, event by event, without a server and without a disk.
@Suite struct ScopeSyncTests {
    typealias Action = ScopeSync.Action

    private func token(_ sequence: UInt64, epoch: UInt64 = 1) -> ChangeToken {
        ChangeToken(epoch: epoch, sequence: sequence)
    }

    private func sync() -> ScopeSync { ScopeSync(generator: SplitMix64(seed: 1)) }

    /// Open, in step at this sequence, with nothing under way.
    private func current(at sequence: UInt64 = 5) -> ScopeSync {
        var sync = sync()
        _ = sync.begin("notes")
        _ = sync.found(.zero)
        _ = sync.page(page(sequence, complete: true))
        _ = sync.applied(AppliedPages(head: token(sequence), digestAgrees: true), wasListing: true)
        _ = sync.due(.turn)
        return sync
    }

    private func page(
        _ sequence: UInt64, complete: Bool = false, place: (UInt64, String)? = nil, item: String = "i"
    ) -> WireReadChangesReply {
        var page = WireReadChangesReply()
        page.token = WireChangeToken(token(sequence))
        page.complete = complete
        page.changes = [change(item)]
        if let (sequence, item) = place {
            page.place.token = WireChangeToken(token(sequence))
            page.place.item = item
        }
        return page
    }

    private func change(_ item: String, body: String = "b") -> WireChange {
        var change = WireChange()
        change.item = item
        change.body = .init(body.utf8)
        return change
    }

    private func segment(_ previous: UInt64, _ sequence: UInt64) -> FeedSegment {
        FeedSegment(previous: previous, token: token(sequence), changes: [change("i")])
    }

    private func here(_ sequence: UInt64, isSynced: Bool = true, differs: Bool = false) -> Standing {
        Standing(head: token(sequence), isSynced: isSynced, differs: differs)
    }

    /// What is asked for, if anything is.
    private func request(_ actions: [Action]) -> WireReadChanges? {
        for case .read(let request) in actions { return request }
        return nil
    }

    private func pause(_ actions: [Action], _ timer: ScopeSync.Timer = .pull) -> Duration? {
        for case .wait(timer, let pause) in actions { return pause }
        return nil
    }

    private static let unavailable = CloudError(.serviceUnavailable, "Away.")

    // MARK: Pages

    @Test func pagesAreKeptApartUntilTheLastHasCome() throws {
        var sync = sync()
        #expect(sync.begin("notes") == [.find])
        let first = try #require(request(sync.found(.zero)))
        #expect(first.scope == "notes" && first.after.sequence == 0)
        let one = page(9, complete: true, place: (3, "a"))
        #expect(sync.page(one) == [.stage(one.changes, isFirst: true, bytes: 2)])
        let second = try #require(request(sync.staged(at: .zero)))
        #expect(second.place.item == "a")
        let two = page(9, complete: true, place: (4, "b"))
        #expect(sync.page(two) == [.stage(two.changes, isFirst: false, bytes: 4)])
        _ = sync.staged(at: .zero)
        let last = page(9, complete: true)
        #expect(
            sync.page(last) == [
                .apply(PulledPages(last: last, isStaged: true, after: .zero, isListing: true, isComparing: false))
            ])
        #expect(sync.pull.applied == 0)
        let told = sync.applied(AppliedPages(head: token(9), digestAgrees: true), wasListing: true)
        #expect(told == [.tellNews, .turn, .changed, .fetched])
        #expect(sync.comparison == .agreed && sync.pull.applied == 1)
    }

    @Test func whileSomethingComesOnlyAFixedTimeEnds() {
        var sync = sync()
        _ = sync.begin("notes")
        _ = sync.found(.zero)
        let (patient, _) = sync.wait(for: nil, timeout: .seconds(9), isImpatient: false, at: .zero)
        let (fixed, _) = sync.wait(for: nil, timeout: .seconds(1), isImpatient: false, isFixed: true, at: .zero)
        _ = sync.page(page(9, complete: true, place: (3, "a")))
        let waits = sync.staged(at: .seconds(8)).compactMap { if case .wait(let timer, _) = $0 { timer } else { nil } }
        #expect(waits == [.waiter(patient)])
        #expect(sync.waiters[patient]?.deadline == .seconds(17) && sync.waiters[fixed]?.deadline == .seconds(1))
        // A pause that is shorter than what is left by then is waited out.
        let ended = sync.endWaiters(
            pausedFor: .seconds(5), because: Self.unavailable, pulling: true, at: .seconds(10))
        #expect(ended == [.stopWaiting(.waiter(fixed)), .giveUp(fixed)])
    }

    @Test func aPageThatDoesNotComeIsAskedForAgainWhereTheReadingStood() throws {
        var sync = sync()
        _ = sync.begin("notes")
        _ = sync.found(.zero)
        _ = sync.page(page(9, complete: true, place: (3, "a")))
        let asked = try #require(request(sync.staged(at: .zero)))
        let failed = sync.pullFailed(Self.unavailable)
        #expect(sync.problem == Self.unavailable && failed.contains(.changed))
        #expect(try #require(pause(failed)) <= .seconds(1))
        #expect(sync.due(.pull) == [.read(asked)])
    }

    @Test func aPageThatCouldNotBeKeptIsReadOnceMore() throws {
        var sync = sync()
        _ = sync.begin("notes")
        let asked = try #require(request(sync.found(.zero)))
        _ = sync.page(page(9, complete: true, place: (3, "a")))
        _ = sync.pullFailed(CloudError(.storageFailure, "Full."))
        #expect(sync.due(.pull) == [.read(asked)])
    }

    @Test func aPageThatGoesBackBeginsTheReadingAnew() {
        var sync = sync()
        _ = sync.begin("notes")
        _ = sync.found(.zero)
        _ = sync.page(page(9, complete: true, place: (3, "b")))
        _ = sync.staged(at: .zero)
        let failed = sync.page(page(9, complete: true, place: (3, "a")))
        #expect(sync.problem?.code == .malformedRequest && pause(failed) != nil)
        #expect(sync.due(.pull) == [.find])
    }

    @Test func aServerThatNeverEndsIsLeftAfterSoManyPages() {
        var options = ScopeSync.Options()
        options.pagesMax = 3
        var sync = ScopeSync(options: options, generator: SplitMix64(seed: 1))
        _ = sync.begin("notes")
        _ = sync.found(.zero)
        for number: UInt64 in 1...3 {
            _ = sync.page(page(99, complete: true, place: (number, "a")))
            _ = sync.staged(at: .zero)
        }
        #expect(pause(sync.page(page(99, complete: true, place: (4, "a")))) != nil)
        #expect(sync.problem?.code == .malformedRequest)
    }

    /// Two million items of which each page has two, of 4 KiB each: what a container may have.
    @Test func whatAScopeMayHaveIsReadToItsEnd() {
        var sync = sync()
        _ = sync.begin("notes")
        _ = sync.found(.zero)
        var changes = [change("a"), change("b")]
        let body = Data(count: 4096)
        for index in changes.indices { changes[index].body = body }
        var read = 0
        for number: UInt64 in 1...1_000_000 {
            var page = page(2_000_000, complete: true, place: (number, "a"))
            page.changes = changes
            guard case .stage(_, let isFirst, let bytes) = sync.page(page).first, isFirst == (number == 1) else {
                break
            }
            read = bytes
            _ = sync.staged(at: .zero)
        }
        #expect(sync.problem == nil && read == 2_000_000 * 4097)
    }

    @Test func aDiskHasRoomForWhatItHasRoomFor() throws {
        let disk = try #require(LocalDisk(at: NSTemporaryDirectory()))
        #expect(disk.free > 0 && disk.reserve <= 1 << 30)
        try disk.requireRoom(forDatabase: 0)
        let rest = Int(disk.free - min(disk.free, disk.reserve / 4))
        try disk.requireRoom(forDatabase: rest)
        #expect(throws: CloudError.self) { try disk.requireRoom(forDatabase: rest + 1) }
        #expect(throws: CloudError.self) { try disk.requireRoom(forCopies: Int.max) }
    }

    @Test func anExpiredTokenFetchesEverythingAtOnce() throws {
        var sync = current()
        _ = sync.beginPull()
        #expect(try #require(request(sync.found(token(5)))).after.sequence == 5)
        #expect(sync.pullFailed(CloudError(.changeTokenExpired, "Old.")) == [.find])
        let everything = try #require(request(sync.found(token(5))))
        #expect(everything.after.sequence == 0 && everything.held.sequence == 5)
        #expect(sync.problem == nil)
        // Everything cannot be too old: a server that says so is not asked again at once.
        #expect(pause(sync.pullFailed(CloudError(.changeTokenExpired, "Old."))) != nil)
    }

    @Test func pausesGrowWithEachFailureAndHastenEndsThem() throws {
        var sync = current()
        var pauses: [Duration] = []
        for _ in 0..<8 {
            _ = sync.beginPull()
            _ = sync.found(token(5))
            pauses.append(try #require(pause(sync.pullFailed(Self.unavailable))))
        }
        #expect(pauses[0] <= .seconds(1) && pauses[7] > .seconds(29) && pauses[7] <= .seconds(60))
        #expect(Set(pauses).count == 8)
        #expect(sync.hasten() == [.stopWaiting(.pull), .read(try #require(sync.pull.reading?.request)), .turn])
        #expect(try #require(pause(sync.pullFailed(Self.unavailable))) <= .seconds(1))
    }

    @Test func whatTheServerAsksForIsWaitedButNotForYears() throws {
        var sync = current()
        _ = sync.beginPull()
        var error = Self.unavailable
        error.retryAfter = .seconds(90)
        var actions = sync.pullFailed(error)
        #expect(
            pause(actions) == .seconds(90)
                && actions.contains(.endWaiters(pausedFor: .seconds(90), error, pulling: true)))
        _ = sync.due(.pull)
        error.retryAfter = .seconds(1 << 30)
        actions = sync.pullFailed(error)
        #expect(pause(actions) == .seconds(3600))
    }

    @Test func aSecondPullFollowsTheFirst() {
        var sync = current()
        #expect(sync.beginPull() == [.find])
        #expect(sync.beginPull() == [])
        _ = sync.found(token(5))
        _ = sync.page(page(6))
        let actions = sync.applied(AppliedPages(head: token(6), digestAgrees: true), wasListing: false)
        #expect(actions == [.tellNews, .find, .turn, .changed])
        #expect(sync.pull.begun == 3 && sync.pull.applied == 2)
    }

    @Test func pagesThatDoNotGoWithTheCopyAreFollowedByEverything() throws {
        var sync = current()
        _ = sync.beginPull()
        _ = sync.found(token(5))
        _ = sync.page(page(6))
        #expect(sync.applied(AppliedPages(needsEverything: true), wasListing: false) == [.find])
        #expect(try #require(request(sync.found(token(5)))).after.sequence == 0)
    }

    /// Another process of the home may have left the scope: what comes is brought in nowhere.
    @Test func everythingThatDoesNotGoWithTheCopyIsAskedForAgainAfterAPauseThatGrows() throws {
        var sync = current()
        var pauses: [Duration] = []
        for _ in 0..<8 {
            if pauses.isEmpty { _ = sync.beginPull(everything: true) } else { #expect(sync.due(.pull) == [.find]) }
            _ = sync.found(token(5))
            _ = sync.page(page(6, complete: pauses.isEmpty))
            let actions = sync.applied(AppliedPages(needsEverything: true), wasListing: true)
            #expect(!actions.contains(.find))
            pauses.append(try #require(pause(actions)))
        }
        #expect(pauses[0] <= .seconds(1) && pauses[7] > .seconds(29) && pauses[7] <= .seconds(60))
        _ = sync.due(.pull)
        _ = sync.found(token(5))
        _ = sync.page(page(6))
        _ = sync.applied(AppliedPages(head: token(6), digestAgrees: true), wasListing: true)
        #expect(sync.pull.retry == Retry())
    }

    // MARK: Heads and digests

    @Test func aHeadThatIsTheCopysOwnIsNotPulled() {
        var sync = current()
        let head = ServerHead(token: token(5))
        #expect(sync.heard(head) == [.compare(head)])
        #expect(sync.stands(here(5), beside: head) == [])
        #expect(sync.stands(here(5), beside: ServerHead(token: token(6))) == [.find])
        // While it is pulled a head says nothing new.
        #expect(sync.heard(head) == [])
    }

    @Test func aScopeThatWasNeverWrittenHasNoToken() {
        var sync = current(at: 0)
        #expect(sync.stands(here(0), beside: ServerHead(token: .zero)) == [])
        #expect(sync.stands(here(0, isSynced: false), beside: ServerHead(token: .zero)) == [.find])
    }

    @Test func aHeadBehindTheCopyIsAskedAboutTheSecondTime() {
        var sync = current()
        let behind = ServerHead(token: token(4))
        #expect(sync.stands(here(5), beside: behind) == [])
        #expect(sync.stands(here(5), beside: behind) == [.find])
        sync = current()
        let answer = ServerHead(token: token(4), isAnswer: true)
        #expect(sync.stands(here(5), beside: answer) == [.find])
    }

    @Test func aHeadThatAPushMayHaveMovedIsWaitedFor() {
        var sync = current()
        let zero = Timestamp(milliseconds: 0)
        sync.outbox.sent(
            OutboxOperation(
                position: 1, id: OperationID(high: 0, low: 0), head: .zero, state: .sent, writer: 0, created: zero,
                attempts: 1, nextAttempt: zero))
        let actions = sync.stands(here(5), beside: ServerHead(token: token(6)))
        #expect(actions == [.wait(.gap, .milliseconds(50))])
        // The push was answered meanwhile: nothing is missing.
        #expect(sync.due(.gap) == [.compare(ServerHead(token: token(6)))])
        #expect(sync.stands(here(6), beside: ServerHead(token: token(6))) == [])
        // It was another device that moved it.
        _ = sync.stands(here(6), beside: ServerHead(token: token(7)))
        #expect(sync.due(.gap) == [.compare(ServerHead(token: token(7)))])
        #expect(sync.stands(here(6), beside: ServerHead(token: token(7))) == [.find])
    }

    @Test func digestsThatDifferAreComparedAtOnceAndThenAfterGrowingPauses() throws {
        var sync = current()
        let head = ServerHead(token: token(5), digest: [1])
        #expect(sync.stands(here(5, differs: true), beside: head) == [.find])
        #expect(sync.comparison != .agreed)
        #expect(try #require(request(sync.found(token(5)))).after.sequence == 0)
        var pauses: [Duration] = []
        for _ in 0..<9 {
            let whole = page(5, complete: true)
            #expect(
                sync.page(whole).first
                    == .apply(
                        PulledPages(
                            last: whole, isStaged: false, after: .zero, isListing: true, isComparing: true,
                            known: token(5))))
            let actions = sync.applied(AppliedPages(head: token(5), digestAgrees: false), wasListing: true)
            #expect(sync.problem?.code == .storeOutOfStep)
            pauses.append(try #require(pause(actions, .comparison)))
            #expect(sync.due(.comparison) == [.find])
            _ = sync.found(token(5))
        }
        for (pause, longest) in zip(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600]) {
            #expect(pause >= .seconds(longest) / 2 && pause <= .seconds(longest))
        }
        _ = sync.page(page(5, complete: true))
        _ = sync.applied(AppliedPages(head: token(5), digestAgrees: true), wasListing: true)
        #expect(sync.problem == nil && sync.comparison == .agreed)
    }

    @Test func pullsDoNotPutOffAFullComparison() throws {
        var sync = current()
        _ = sync.stands(here(5, differs: true), beside: ServerHead(token: token(5), digest: [1]))
        _ = sync.found(token(5))
        _ = sync.page(page(5, complete: true))
        let differing = AppliedPages(head: token(5), digestAgrees: false)
        #expect(pause(sync.applied(differing, wasListing: true), .comparison) != nil)
        #expect(sync.beginPull() == [.find])
        _ = sync.found(token(5))
        _ = sync.page(page(5))
        #expect(pause(sync.applied(differing, wasListing: false), .comparison) == nil)
        #expect(sync.due(.comparison) == [.find])
        #expect(try #require(request(sync.found(token(5)))).after.sequence == 0)
    }

    @Test func aDigestThatCouldNotBeComparedIsAskedForAgain() throws {
        var sync = sync()
        _ = sync.begin("notes")
        _ = sync.found(.zero)
        _ = sync.page(page(5, complete: true))
        let actions = sync.applied(AppliedPages(head: token(5)), wasListing: true)
        #expect(pause(actions) == .seconds(1) && sync.comparison != .agreed)
    }

    // MARK: The feed, as it comes

    @Test func whatArrivesEarlyWaitsForWhatIsBeforeIt() {
        var sync = current()
        let late = segment(5, 6)
        let early = segment(6, 7)
        #expect(sync.notified(early) == [.receive(early)])
        #expect(sync.received(early, as: .ahead) == [.wait(.gap, .milliseconds(50))])
        #expect(sync.notified(late) == [.receive(late)])
        #expect(sync.received(late, as: .applied(differs: false)) == [.tellNews, .receive(early), .turn])
        #expect(sync.received(early, as: .applied(differs: false)) == [.tellNews])
        #expect(sync.due(.gap) == [])
    }

    @Test func whatStaysAwayIsPulled() {
        var sync = current()
        _ = sync.received(segment(6, 7), as: .ahead)
        #expect(sync.received(segment(7, 8), as: .ahead) == [])
        #expect(sync.due(.gap) == [.find])
    }

    @Test func aGapThatThePullHasClosedIsNotWaitedForAnyMore() {
        var sync = current()
        _ = sync.received(segment(6, 7), as: .ahead)
        _ = sync.beginPull()
        _ = sync.found(token(5))
        _ = sync.page(page(7))
        let actions = sync.applied(AppliedPages(head: token(7), digestAgrees: true), wasListing: false)
        #expect(actions.contains(.stopWaiting(.gap)))
    }

    @Test func aChangeWithoutItsBodyIsPulled() {
        var sync = current()
        var bare = segment(5, 6)
        bare.changes.append(change("j", body: ""))
        #expect(sync.notified(bare) == [.find])
    }

    @Test(arguments: [FeedSegment.Place.foreign, .unreadable])
    func whatDoesNotGoWithTheCopyIsPulled(_ place: FeedSegment.Place) {
        var sync = current()
        #expect(sync.received(segment(5, 6), as: place) == [.find])
        #expect(sync.received(segment(5, 6), as: .seen) == [.tellNews])
    }

    @Test func aNotificationsDigestThatDiffersBeginsAComparison() throws {
        var sync = current()
        #expect(sync.received(segment(5, 6), as: .applied(differs: true)) == [.tellNews, .find, .turn])
        #expect(try #require(request(sync.found(token(6)))).after.sequence == 0)
    }

    // MARK: Life

    @Test func nothingIsAskedOfAServerThatHasTurnedTheDeviceAway() {
        var sync = current()
        sync.turnedAway()
        #expect(sync.beginPull() == [] && sync.heard(ServerHead(token: token(9))) == [])
        #expect(sync.notified(segment(5, 6)) == [] && sync.hasten() == [])
    }

    @Test func anEndForgetsAllButHowManyPullsThereWere() {
        var sync = current()
        _ = sync.beginPull()
        _ = sync.found(token(5))
        _ = sync.note(Self.unavailable)
        #expect(Set(sync.end().map { "\($0)" }).count == ScopeSync.Timer.ofSession.count)
        #expect(!sync.pull.isRunning && sync.problem == nil && sync.comparison != .agreed && sync.pull.reading == nil)
        // An answer that comes late.
        #expect(sync.page(page(6)) == [] && sync.staged(at: .zero) == [] && sync.pullFailed(Self.unavailable) == [])
        #expect(sync.pull.begun == 2 && sync.pull.applied == 1)
        #expect(sync.begin("other") == [.find] && sync.pull.begun == 3)
    }

    @Test func whoIsThereSaysMoreThanThatACallWasInVain() {
        var sync = current()
        let nobody = CloudError(.networkUnavailable, "Nobody listens there.")
        #expect(sync.refused(nobody) == [.changed, .find])
        _ = sync.found(token(5))
        _ = sync.pullFailed(CloudError(.serverResponseLost, "No answer."))
        #expect(sync.problem == nobody)
        // The next pull is planned already.
        #expect(sync.refused(nobody) == [])
        #expect(
            sync.connected() == [.stopWaiting(.pull), .read(sync.pull.reading?.request ?? .init()), .turn, .changed])
    }

    @Test func whatNeedsAPersonIsNotCoveredUp() {
        var sync = current()
        _ = sync.note(CloudError(.accountTemporarilyUnavailable, "Locked."))
        _ = sync.refused(CloudError(.networkUnavailable, "Nobody listens there."))
        #expect(sync.problem?.code == .accountTemporarilyUnavailable)
    }
}

extension ScopeSync.Action {
    /// Something may be sent, once this turn of the loop is over.
    fileprivate static var turn: Self { .wait(.turn, .zero) }
}
