import NephosCore
import NephosWire

extension ScopeSync {
    /// How soon a digest that could not be compared, because of pushes on their way, is asked for again.
    private static let comparisonGrace: Duration = .seconds(1)

    // MARK: Deciding to pull

    /// Fetches what has changed, or everything. One at a time; a call during one makes another follow.
    mutating func beginPull(everything: Bool = false) -> [Action] {
        guard isOpen else { return [] }
        guard !pull.isRunning else {
            pull.again = true
            return []
        }
        pull.again = false
        pull.begun += 1
        let stopped = stopPlanned()
        // An unfinished reading goes on, unless it covers too little.
        if let reading = pull.reading, reading.isListing || !everything {
            pull.phase = .reading
            return stopped + [.read(request(of: reading))]
        }
        pull.phase = .finding(everything: everything)
        return stopped + [.find]
    }

    /// Begins a pull, unless one is running or planned.
    mutating func pullUnlessPlanned() -> [Action] { pull.isRunning || pull.isPlanned ? [] : beginPull() }

    mutating func plan(after pause: Duration) -> [Action] {
        pull.isPlanned = true
        return [.wait(.pull, pause)]
    }

    private mutating func stopPlanned() -> [Action] {
        guard pull.isPlanned else { return [] }
        pull.isPlanned = false
        return [.stopWaiting(.pull)]
    }

    /// A heartbeat or a subscription told the server's head.
    mutating func heard(_ head: ServerHead) -> [Action] { isOpen && !pull.isRunning ? [.compare(head)] : [] }

    /// How the copy stands beside it.
    mutating func stands(_ here: Standing, beside server: ServerHead) -> [Action] {
        guard !pull.isRunning else { return [] }
        let token = server.token
        guard here.isSynced else { return beginPull() }
        if gap == .asking(token) {
            gap = .none
            return here.head.epoch == token.epoch && here.head.sequence >= token.sequence ? [] : beginPull()
        }
        // A scope that has never been written has no token.
        if token == .zero && here.head.sequence == 0 { return [] }
        if token.isSamePlace(as: here.head) { return here.differs ? compare() : [] }
        if token.epoch == here.head.epoch, token.sequence < here.head.sequence {
            // What is ahead may be a push that the other side has not heard of yet. If it still has not the next time,
            // its database may be an old copy: it is shown our token.
            defer { overtaken = here.head }
            return server.isAnswer || token < overtaken ? beginPull() : []
        }
        if token != here.head, !outbox.inFlight.isEmpty || !ahead.isEmpty {
            return waitForGap(expecting: token)
        }
        return beginPull()
    }

    /// The digests differ at one and the same head: everything is fetched, and what the server lacks is offered.
    private mutating func compare() -> [Action] {
        guard !comparison.isPlanned else { return [] }
        let times = comparison.times
        comparison = .differs(times: times + 1, isPlanned: times > 0)
        guard times > 0 else { return beginPull(everything: true) }
        return [.wait(.comparison, Retry(.comparison, attempts: times).pause(using: &generator))]
    }

    mutating func comparisonDue() -> [Action] {
        guard !pull.isRunning else { return [.wait(.comparison, Self.comparisonGrace)] }
        comparison = .differs(times: comparison.times, isPlanned: false)
        return isOpen ? beginPull(everything: true) : []
    }

    /// Gives a segment that may be on its way a little time to arrive.
    private mutating func waitForGap(expecting head: ChangeToken? = nil) -> [Action] {
        let wasWaiting = gap.isWaiting
        gap = .waiting(head ?? gap.head)
        return wasWaiting ? [] : [.wait(.gap, options.gapGrace)]
    }

    /// The time is over: the device fetches what has not arrived.
    mutating func gapDue() -> [Action] {
        guard ahead.isEmpty, !pull.isRunning, let head = gap.head else {
            gap = .none
            return ahead.isEmpty ? [] : beginPull()
        }
        gap = .asking(head)
        return [.compare(ServerHead(token: head))]
    }

    // MARK: Reading pages

    /// Where this device's copy is.
    ///
    /// - Parameters:
    ///   - greatest: The greatest sequence of an item, which may be beyond it.
    ///   - epochs: See ``ScopeState/epochs``.
    mutating func found(_ head: ChangeToken, greatest: UInt64 = 0, epochs: [ChangeToken] = []) -> [Action] {
        guard case .finding(let everything) = pull.phase else { return [] }
        pull.known = ChangeToken(epoch: head.epoch, sequence: max(head.sequence, greatest))
        let reading = ChangesReading(
            .scope(scope), of: owner?.rawValue ?? "", after: everything ? .zero : head, held: head, epochs: epochs)
        pull.reading = reading
        pull.phase = .reading
        return [.read(request(of: reading))]
    }

    private func request(of reading: ChangesReading) -> WireReadChanges {
        var request = reading.request
        request.itemsMax = options.pageItemsMax
        return request
    }

    /// A page has come.
    mutating func page(_ page: WireReadChangesReply) -> [Action] {
        guard case .reading = pull.phase, var reading = pull.reading else { return [] }
        do throws(CloudError) {
            if try reading.take(page) {
                pull.reading = nil
                pull.phase = .idle
                return [
                    .apply(
                        PulledPages(
                            last: page, isStaged: reading.pageCount > 0, after: reading.after,
                            isListing: reading.isListing, isComparing: reading.isListing && comparison.times > 0,
                            known: pull.known))
                ]
            }
            guard reading.pageCount <= options.pagesMax, reading.byteCount <= options.readingBytesMax else {
                throw CloudError(.malformedRequest, "The server has more in the scope than it may have.")
            }
        } catch {
            return pullFailed(error)
        }
        pull.phase = .staging(reading)
        return [.stage(page.staged, isFirst: reading.pageCount == 1, bytes: reading.byteCount)]
    }

    /// The page is kept; the next one is asked for.
    mutating func staged(at monotonic: Duration) -> [Action] {
        guard case .staging(let reading) = pull.phase else { return [] }
        pull.reading = reading
        pull.phase = .reading
        return prolongWaiters(at: monotonic) + [.read(request(of: reading))]
    }

    /// A page did not come, or could not be kept.
    mutating func pullFailed(_ error: CloudError) -> [Action] {
        guard pull.isRunning else { return [] }
        let wasListing = pull.reading?.isListing ?? true
        let isOver = error.code == .changeTokenExpired || error.code == .malformedRequest
        let unstaged = isOver ? unstage() : []
        pull.phase = .idle
        if isOver { pull.reading = nil }
        if error.code == .changeTokenExpired, !wasListing { return unstaged + beginPull(everything: true) }
        return unstaged + failed(error)
    }

    /// What a reading has brought so far, which does not go on.
    func unstage() -> [Action] { pull.hasStaged ? [.unstage] : [] }

    /// What has come could not be brought in.
    mutating func applyFailed(_ error: CloudError) -> [Action] { failed(error) }

    private mutating func failed(_ error: CloudError) -> [Action] {
        let pause = pull.retry.failed(error, using: &generator)
        // The session says so, once it is certain that nobody has just signed out.
        guard error.code != .deviceRevoked else { return [] }
        // Who is at the server's address, or nobody, says more than that a call was in vain.
        var actions = problem?.code == .networkUnavailable && Self.isSilence(error) ? [] : note(error)
        guard error.code != .notSignedIn else { return actions }
        wasTurnedDown = wasTurnedDown || PushRules.blocks(error)
        if let asked = error.retryAfter { actions.append(.endWaiters(pausedFor: asked, error, pulling: true)) }
        return actions + plan(after: pause)
    }

    // MARK: Bringing in

    /// The pages of a reading were brought in.
    ///
    /// - Parameter wasListing: They were everything.
    mutating func applied(_ applied: AppliedPages, wasListing: Bool) -> [Action] {
        if applied.needsEverything {
            guard wasListing else { return beginPull(everything: true) }
            // What has come, all of it, is of no use here: another process may be about to leave the scope.
            return plan(after: pull.retry.failed(using: &generator))
        }
        pull.retry.succeeded()
        // An agreement from before this listing says nothing about the copy that was just rebuilt.
        if wasListing, comparison == .agreed { comparison = .unknown }
        pull.applied = pull.begun
        awaitsPull = false
        localFailures[.compare] = nil
        var actions: [Action] = [.tellNews] + absorbAhead(at: applied.head)
        if wasTurnedDown || localFailures[.unblock] != nil { actions.append(.unblock) }
        switch applied.digestAgrees {
        case false:
            actions += compare()
            // The first comparison has begun; what follows is for its end.
            if pull.isRunning { return actions }
            actions += note(outOfStep)
        case true:
            if comparison.isPlanned { actions.append(.stopWaiting(.comparison)) }
            comparison = .agreed
            actions += note(localReason)
        case nil:
            if problem?.code != .storeOutOfStep { actions += note(localReason) }
            // Something is on its way; the next time there is an answer.
            if comparison != .agreed, !pull.isPlanned { actions += plan(after: Self.comparisonGrace) }
        }
        let isLast = !pull.again
        if pull.again { actions += beginPull() }
        return actions + push() + [.changed] + (isLast ? [.fetched] : [])
    }

    private var outOfStep: CloudError {
        CloudError(.storeOutOfStep, "This device's copy differs from the server's. Run verify to see where.")
    }

    // MARK: The feed, as it comes

    /// A notification has arrived.
    mutating func notified(_ segment: FeedSegment) -> [Action] {
        guard isOpen else { return [] }
        // Without its body a change has to be fetched.
        return segment.changes.contains(where: \.body.isEmpty) ? beginPull() : [.receive(segment)]
    }

    /// What became of a stretch of the feed.
    mutating func received(_ segment: FeedSegment, as place: FeedSegment.Place) -> [Action] {
        switch place {
        case .applied(let differs):
            let actions = [.tellNews] + absorbAhead(at: segment.token)
            // What was received may be older than what is here, which is then offered.
            return actions + (differs ? compare() : []) + push()
        // Who brought it in may be another driver of this process, for another app.
        case .seen: return [.tellNews]
        case .foreign, .unreadable: return beginPull()
        case .ahead: return keep(segment)
        }
    }

    /// The segment goes on beyond something that is missing.
    mutating func keep(_ segment: FeedSegment) -> [Action] {
        ahead.keep(segment)
        return waitForGap()
    }

    /// Brings in what arrived early and now continues the head.
    mutating func absorbAhead(at head: ChangeToken) -> [Action] {
        guard !ahead.isEmpty else { return [] }
        if let segment = ahead.next(after: head) { return [.receive(segment)] }
        guard ahead.isEmpty, gap == .waiting(nil) else { return [] }
        gap = .none
        return [.stopWaiting(.gap)]
    }
}
