import NephosCore
import NephosWire

extension ScopeSync {
    /// How soon a digest that could not be compared, because of pushes on their way, is asked for again.
    private static let comparisonGrace: Duration = .seconds(1)

    // MARK: Deciding to pull

    /// Fetches what has changed, or everything. One at a time; a call during one makes another follow.
    mutating func pull(everything: Bool = false) -> [Action] {
        guard isOpen else { return [] }
        guard !isPulling else {
            pullsAgain = true
            return []
        }
        isPulling = true
        pullsAgain = false
        pulls += 1
        let stopped = stopPlanned()
        // What is not finished goes on, unless that is too little.
        if let reading, reading.isListing || !everything { return stopped + [.read(request(of: reading))] }
        wantsEverything = everything
        return stopped + [.find]
    }

    /// A pull, unless one comes by itself.
    mutating func pullUnlessPlanned() -> [Action] { isPulling || isPlanned ? [] : pull() }

    mutating func plan(after pause: Duration) -> [Action] {
        isPlanned = true
        return [.wait(.pull, pause)]
    }

    private mutating func stopPlanned() -> [Action] {
        guard isPlanned else { return [] }
        isPlanned = false
        return [.stopWaiting(.pull)]
    }

    /// The server's head was heard of.
    mutating func heard(_ head: ServerHead) -> [Action] { isOpen && !isPulling ? [.compare(head)] : [] }

    /// How the copy stands beside it.
    mutating func stands(_ here: Standing, beside server: ServerHead) -> [Action] {
        guard !isPulling else { return [] }
        let token = server.token
        guard here.isSynced else { return pull() }
        if awaited == token, !waitsForGap {
            awaited = nil
            return here.head.epoch == token.epoch && here.head.sequence >= token.sequence ? [] : pull()
        }
        // A scope that has never been written has no token.
        if token == .zero && here.head.sequence == 0 { return [] }
        if token.isSamePlace(as: here.head) { return here.differs ? compare() : [] }
        if token.epoch == here.head.epoch, token.sequence < here.head.sequence {
            // What is ahead may be a push that the other side has not heard of yet. If it still has not the next time,
            // its database may be an old copy: it is shown our token.
            defer { overtaken = here.head }
            return server.isAnswer || token < overtaken ? pull() : []
        }
        if token != here.head, !outbox.inFlight.isEmpty || !ahead.isEmpty {
            awaited = token
            return waitForGap()
        }
        return pull()
    }

    /// The digests differ at one and the same head: everything is fetched, and what the server lacks is offered.
    private mutating func compare() -> [Action] {
        agrees = false
        guard !isComparisonPlanned else { return [] }
        comparisons += 1
        guard comparisons > 1 else { return pull(everything: true) }
        isComparisonPlanned = true
        return [.wait(.comparison, Retry(.comparison, attempts: comparisons - 1).pause(using: &generator))]
    }

    mutating func comparisonDue() -> [Action] {
        guard !isPulling else { return [.wait(.comparison, Self.comparisonGrace)] }
        isComparisonPlanned = false
        return isOpen ? pull(everything: true) : []
    }

    /// Something is missing, which may be on its way already.
    private mutating func waitForGap() -> [Action] {
        guard !waitsForGap else { return [] }
        waitsForGap = true
        return [.wait(.gap, options.gapGrace)]
    }

    /// What may have been overtaken has come, or is fetched.
    mutating func gapDue() -> [Action] {
        waitsForGap = false
        guard ahead.isEmpty, !isPulling, let awaited else {
            awaited = nil
            return ahead.isEmpty ? [] : pull()
        }
        return [.compare(ServerHead(token: awaited))]
    }

    // MARK: Reading pages

    /// Where this device's copy is.
    ///
    /// - Parameters:
    ///   - greatest: The greatest sequence of an item, which may be beyond it.
    ///   - epochs: See ``ScopeState/epochs``.
    mutating func found(_ head: ChangeToken, greatest: UInt64 = 0, epochs: [ChangeToken] = []) -> [Action] {
        guard isPulling else { return [] }
        known = ChangeToken(epoch: head.epoch, sequence: max(head.sequence, greatest))
        let reading = ChangesReading(
            .scope(scope), of: owner?.rawValue ?? "", after: wantsEverything ? .zero : head, held: head,
            epochs: epochs)
        self.reading = reading
        return [.read(request(of: reading))]
    }

    private func request(of reading: ChangesReading) -> WireReadChanges {
        var request = reading.request
        request.itemsMax = options.pageItemsMax
        return request
    }

    /// A page has come.
    mutating func page(_ page: WireReadChangesReply) -> [Action] {
        guard isPulling, var reading else { return [] }
        do throws(CloudError) {
            if try reading.take(page) {
                self.reading = nil
                isPulling = false
                return [
                    .apply(
                        PulledPages(
                            last: page, isStaged: reading.pageCount > 0, after: reading.after,
                            isListing: reading.isListing, isComparing: reading.isListing && comparisons > 0,
                            known: known))
                ]
            }
            guard reading.pageCount <= options.pagesMax, reading.byteCount <= options.readingBytesMax else {
                throw CloudError(.malformedRequest, "The server has more in the scope than it may have.")
            }
        } catch {
            return pullFailed(error)
        }
        staging = reading
        return [.stage(page.staged, isFirst: reading.pageCount == 1, bytes: reading.byteCount)]
    }

    /// The page is kept; the next one is asked for.
    mutating func staged(at monotonic: Duration) -> [Action] {
        guard isPulling, let staging else { return [] }
        reading = staging
        self.staging = nil
        return prolongWaiters(at: monotonic) + [.read(request(of: staging))]
    }

    /// A page did not come, or could not be kept.
    mutating func pullFailed(_ error: CloudError) -> [Action] {
        guard isPulling else { return [] }
        isPulling = false
        let wasListing = reading?.isListing ?? true
        let isOver = error.code == .changeTokenExpired || error.code == .malformedRequest
        let unstaged = isOver ? unstage() : []
        staging = nil
        if isOver { reading = nil }
        if error.code == .changeTokenExpired, !wasListing { return unstaged + pull(everything: true) }
        return unstaged + failed(error)
    }

    /// What a reading has brought so far, which does not go on.
    func unstage() -> [Action] { (staging ?? reading).map { $0.pageCount > 0 } == true ? [.unstage] : [] }

    /// What has come could not be brought in.
    mutating func applyFailed(_ error: CloudError) -> [Action] { failed(error) }

    private mutating func failed(_ error: CloudError) -> [Action] {
        let pause = pullRetry.failed(error, using: &generator)
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
            guard wasListing else { return pull(everything: true) }
            // What has come, all of it, is of no use here: another process may be about to leave the scope.
            return plan(after: pullRetry.failed(using: &generator))
        }
        pullRetry.succeeded()
        // What agreed before says nothing of what was read anew, and is offered what it lacks.
        if wasListing { agrees = false }
        pullsApplied = pulls
        awaitsPull = false
        localFailures[.compare] = nil
        var actions: [Action] = [.tellNews] + absorbAhead(at: applied.head)
        if wasTurnedDown || localFailures[.unblock] != nil { actions.append(.unblock) }
        switch applied.digestAgrees {
        case false:
            actions += compare()
            // The first comparison has begun; what follows is for its end.
            if isPulling { return actions }
            actions += note(outOfStep)
        case true:
            comparisons = 0
            if isComparisonPlanned { actions.append(.stopWaiting(.comparison)) }
            isComparisonPlanned = false
            agrees = true
            actions += note(localReason)
        case nil:
            if problem?.code != .storeOutOfStep { actions += note(localReason) }
            // Something is on its way; the next time there is an answer.
            if !agrees, !isPlanned { actions += plan(after: Self.comparisonGrace) }
        }
        let isLast = !pullsAgain
        if pullsAgain { actions += pull() }
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
        return segment.changes.contains(where: \.body.isEmpty) ? pull() : [.receive(segment)]
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
        case .foreign, .unreadable: return pull()
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
        guard ahead.isEmpty, waitsForGap, awaited == nil else { return [] }
        waitsForGap = false
        return [.stopWaiting(.gap)]
    }
}
