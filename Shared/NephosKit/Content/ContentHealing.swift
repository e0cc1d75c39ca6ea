internal import Foundation
internal import Logging
internal import NephosBus
private import NephosChunks
internal import NephosCore
internal import NephosWire

/// A model whose service says which chunks of its contents it has lost.
protocol ContentKeeping: ScopeModel {
    /// Where the chunks are asked about and sent.
    var contentPlace: ContentPlace { get }
    /// Chunks that the service cannot read any more, as it said last.
    func damage(in rows: ScopeTransaction) throws -> ContentDamage
    /// Nothing that the service has not named is to be brought back from here: what was kept for that may go.
    func foundNothingLost(in rows: ScopeTransaction) throws
}

/// Sends a service the chunks again that its disk has lost and that are in this home, without being asked. On the loop
/// only, in the process that keeps the scope in step.
///
/// A chunk is read and compared with its hash before it goes: what is damaged here too stays here. A round asks before it
/// sends, so that what another device has healed meanwhile is not sent again; and a chunk that was tried is not tried
/// again before its pause is over (``LostChunks``), by whichever process of the home.
///
/// The service says by itself only which the first of them are. While nothing is here of those, and there are more, it is
/// asked for the next ones, to the end.
final class ContentHealing {
    /// Chunks of one round.
    static let roundMax = 32
    /// Those of them that are in memory at a time, of 1 MiB at most.
    private static let runningMax = 4
    /// Copies of a chunk that are tried.
    private static let placesMax = 4
    /// All devices that are open hear of a loss in the same moment. One of them is first: each waits as after so many
    /// failures, 8 to 16 seconds by chance.
    private static let hearingAttempts = 5
    /// How soon it is looked again at the latest, where something is to be tried later.
    private static let lookPauseMax: Duration = .seconds(600)

    private unowned let model: any ContentKeeping
    private var engine: DeviceEngine { model.engine }
    /// When it is looked next; and whether that is at hand, or only in case something has changed.
    private var next: (at: Duration, timer: any LoopTimer)?
    private var isDue = false
    /// Whether the service was heard since this began.
    private var hasHeard = false
    /// Set while something is looked for, asked or sent.
    private var round: Round?
    private var failures = 0
    /// Where the page begins that is looked at; nil: it is what the service has said by itself.
    private var page: Data?
    /// Whether something of what is lost was found here since the first page.
    private var hasFound = false
    /// Whether something was healed of which the service has not been heard since.
    private var hasHealed = false
    private var waiters: [(Bool) -> Void] = []

    private final class Round {
        /// What is here, and where; the next is the last one.
        var left: [(id: ChunkID, places: [KeptPlace])] = []
        /// How often each was tried before.
        let attempts: [ChunkID: LostChunks.Attempt]
        /// All that are here.
        var found: [ChunkID] = []
        let upload: Data
        var client: BulkClient?
        var runningCount = 0
        var pacing: (any LoopTimer)?
        /// Those that were tried, and whether they are damaged here.
        var tried: [ChunkID: Bool] = [:]
        var hasSent = false
        /// Where the page behind this one begins; nil: there is none.
        var next: Data?

        init(_ attempts: [ChunkID: LostChunks.Attempt], _ upload: Data) {
            (self.attempts, self.upload) = (attempts, upload)
        }
    }

    init(_ model: any ContentKeeping) { self.model = model }

    // MARK: Life

    /// The service has said what it has lost.
    func heard(_ damage: ContentDamage, in rows: ScopeTransaction) throws {
        // What is not named may be among the others.
        if !damage.hasMore { try LostChunks(rows).keep(damage.chunks, at: engine.now) }
        let isNews = hasHeard
        hasHeard = true
        guard !damage.chunks.isEmpty || damage.hasMore, !isDue, round == nil else { return }
        isDue = true
        wake(after: isNews ? engine.backoff(attempts: Self.hearingAttempts) : .zero)
    }

    /// Tries now what would be tried later by itself, but for what has a pause of its own.
    func hasten() {
        failures = 0
        if next != nil { lookSoon() }
    }

    private func lookSoon() {
        isDue = true
        wake(after: .zero)
    }

    /// Leaves off. What was sent is whole; the rest is found again.
    func end() {
        next?.timer.cancel()
        let ended = round
        (next, round, isDue, hasHeard, failures, hasHealed) = (nil, nil, false, false, 0, false)
        page = nil
        ended?.pacing?.cancel()
        ended?.client?.cancel()
        settle()
    }

    /// Calls back once nothing is looked for or sent any more.
    ///
    /// - Parameter completion: Gets whether something was healed.
    func wait(_ completion: @escaping (Bool) -> Void) {
        waiters.append(completion)
        if isDue { wake(after: .zero) } else if round == nil { settle() }
    }

    private func settle() {
        let healed = hasHealed
        let waiting = waiters
        (waiters, hasHealed) = ([], false)
        for waiter in waiting { waiter(healed) }
    }

    private func wake(after wait: Duration) {
        let time = engine.loop.monotonicNow + wait
        guard next.map({ time < $0.at }) ?? true else { return }
        next?.timer.cancel()
        let timer = engine.loop.schedule(after: wait) { [weak self] in
            guard let self else { return }
            (next, isDue) = (nil, false)
            goOn()
        }
        next = (time, timer)
    }

    /// Nil: somebody else does it, or nobody can.
    private var driver: ScopeDriver? {
        guard !engine.stopped, let driver = model.driver, driver.scope != nil, !driver.isHeld,
            engine.session?.revoked == false
        else { return nil }
        return driver
    }

    // MARK: Looking

    private func goOn() {
        guard round == nil else { return }
        guard let driver else { return settle() }
        do throws(CloudError) {
            let (damage, attempts) = try driver.read { rows in
                (try model.damage(in: rows), try LostChunks(rows).all())
            }
            guard !damage.chunks.isEmpty || damage.hasMore else {
                page = nil
                return rest(nil)
            }
            let round = Round(attempts, Data(engine.makeOperationID().bytes))
            self.round = round
            if let page { return turn(to: page, round, driver) }
            hasFound = false
            round.next = damage.next
            seek(damage.chunks, round, driver)
        } catch {
            engine.logger.error("what the service has lost could not be looked up", error)
            rest(Backoff.pauseMax)
        }
    }

    /// Nothing is to be done for now.
    ///
    /// - Parameter pause: When it is looked again; nil: once the service says something.
    private func rest(_ pause: Duration?) {
        settle()
        if let pause { wake(after: pause) }
    }

    /// Asks for a page of what the service has lost.
    private func turn(to page: Data, _ round: Round, _ driver: ScopeDriver) {
        var request = WireListDamagedChunks()
        request.container = model.contentPlace.container
        request.after = page
        engine.call(model.service, request, as: WireListDamagedChunksReply.self, app: model.app) {
            [weak self, weak driver] result, _ in
            guard let self, self.round === round, let driver else { return }
            switch result {
            case .failure(let error): end(round, error)
            case .success(let reply):
                // Else it would turn pages for ever.
                round.next = page.lexicographicallyPrecedes(reply.next) ? reply.next : nil
                seek(ContentDamage(reply.chunks, hasMore: false).chunks, round, driver)
            }
        }
    }

    private func seek(_ lost: Set<ChunkID>, _ round: Round, _ driver: ScopeDriver) {
        let now = engine.now
        let due = lost.filter { round.attempts[$0]?.isDue(at: now) ?? true }
        let isTriedLater = lost.contains { !due.contains($0) && round.attempts[$0]?.isDamagedHere == false }
        hasFound = hasFound || isTriedLater
        guard !due.isEmpty else { return end(round) }
        let (local, account) = (engine.local, driver.scope?.account?.rawValue ?? "")
        engine.loop.offload(to: .content) {
            try local.read { database in
                try KeptContents.places(
                    of: due, account: account, chunksMax: Self.roundMax, placesMax: Self.placesMax, database)
            }
        } then: { [weak self] result in
            guard let self, self.round === round else { return }
            switch result {
            case .failure(let error): end(round, CloudError(wrapping: error))
            case .success(let places):
                // What is not here may be on another device.
                guard !places.isEmpty else { return end(round) }
                hasFound = true
                ask(places, round)
            }
        }
    }

    /// Another device may have been quicker.
    private func ask(_ places: [ChunkID: [KeptPlace]], _ round: Round) {
        let ids = places.keys.sorted { $0.bytes.lexicographicallyPrecedes($1.bytes) }
        round.found = ids
        var request = WireFindMissing()
        request.container = model.contentPlace.container
        request.ids = ids.map { Data($0.bytes) }
        engine.call(model.service, request, as: WireFindMissingReply.self, app: model.app) { [weak self] result, _ in
            guard let self, self.round === round else { return }
            switch result {
            case .failure(let error): end(round, error)
            case .success(let reply):
                let lost = Set(reply.damaged.compactMap { Int($0) < ids.count ? ids[Int($0)] : nil })
                for id in ids where !lost.contains(id) { round.tried[id] = false }
                hasHealed = hasHealed || lost.count < ids.count
                round.left = ids.filter(lost.contains).map { ($0, places[$0] ?? []) }
                lost.isEmpty ? end(round) : fill(round)
            }
        }
    }

    // MARK: Sending

    private func fill(_ round: Round) {
        while round.pacing == nil, round.runningCount < Self.runningMax, let chunk = round.left.last {
            if let length = chunk.places.first?.chunk.length, let wait = engine.uploadRate.take(length) {
                round.pacing = engine.loop.schedule(after: wait) { [weak self, weak round] in
                    guard let self, let round, self.round === round else { return }
                    round.pacing = nil
                    fill(round)
                }
                return
            }
            round.left.removeLast()
            round.runningCount += 1
            read(chunk.id, chunk.places[...], round)
        }
        if round.left.isEmpty, round.runningCount == 0 { end(round) }
    }

    /// - Parameter isDamagedHere: Whether each of its places that was tried could be opened.
    private func read(_ id: ChunkID, _ places: ArraySlice<KeptPlace>, _ round: Round, isDamagedHere: Bool = true) {
        guard let place = places.first else { return done(id, isDamagedHere: isDamagedHere, round) }
        do throws(CloudError) {
            let folder = try ContentFolder(home: engine.local.home)
            engine.loop.offload(to: .content) {
                folder.read(place)
            } then: { [weak self] result in
                guard let self, self.round === round else { return }
                switch result {
                case .success(.whole(let bytes)): send(id, bytes, round)
                case .success(.damaged): read(id, places.dropFirst(), round, isDamagedHere: isDamagedHere)
                case .success(.closed): read(id, places.dropFirst(), round, isDamagedHere: false)
                case .success(.unreadable): end(round, Self.unreadable)
                case .failure(let error): end(round, CloudError(wrapping: error))
                }
            }
        } catch { end(round, error) }
    }

    private static let unreadable = CloudError(.storageFailure, LocalFailure.contentUnreadable)

    /// Compresses the chunk beside the loop, and sends it.
    private func send(_ id: ChunkID, _ bytes: Data, _ round: Round) {
        do {
            let client = try round.client ?? makeClient(round)
            let (number, ticket) = (client.nextNumber(), client.ticket)
            engine.loop.offload(to: .content) {
                BulkClient.make(number, under: ticket, bytes: bytes.count, by: ChunkCoder()) { room in
                    bytes.copyBytes(to: room)
                    return id
                }
            } then: { [weak self, weak round] result in
                guard let self, let round, self.round === round else { return }
                switch result {
                case .success(let made): store(made, round, client)
                case .failure(let error): end(round, CloudError(wrapping: error))
                }
            }
        } catch { end(round, CloudError(wrapping: error)) }
    }

    private func store(_ made: BulkClient.MadeChunk, _ round: Round, _ client: BulkClient) {
        client.store(made) { [weak self, weak round, weak client] result in
            guard let self, let round, self.round === round else { return }
            switch result {
            case .success:
                round.hasSent = true
                hasHealed = true
                done(made.chunk, isDamagedHere: false, round)
            // It is this chunk that is refused, as one that nothing rests on any more: the others go on.
            case .failure where client?.ended == nil: done(made.chunk, isDamagedHere: false, round)
            case .failure(let error): end(round, error)
            }
        }
    }

    /// It has no room of its own: what takes the place of something lost needs none.
    private func makeClient(_ round: Round) throws -> BulkClient {
        let purpose = BulkClient.Purpose(
            upload: [UInt8](round.upload), uploadBytes: 0, container: model.contentPlace.container)
        let client = try engine.makeBulkClient(of: model.service, app: model.app, purpose)
        round.client = client
        return client
    }

    private func done(_ id: ChunkID, isDamagedHere: Bool, _ round: Round) {
        round.tried[id] = isDamagedHere
        round.runningCount -= 1
        fill(round)
    }

    // MARK: Ends

    /// - Parameter error: What was in the way of the rest.
    private func end(_ round: Round, _ error: CloudError? = nil) {
        self.round = nil
        round.pacing?.cancel()
        if let client = round.client {
            client.cancel()
            model.closeSoon(round.upload, of: model.contentPlace.container)
        }
        guard let driver else { return settle() }
        // What the service refuses whenever it is asked has its pause too.
        if error?.code.retry == .never {
            for id in round.found where round.tried[id] == nil { round.tried[id] = false }
        }
        do throws(CloudError) {
            let now = engine.now
            try driver.write { rows in
                for (id, isDamagedHere) in round.tried {
                    try LostChunks(rows).note(
                        id, isDamagedHere: isDamagedHere, at: now, after: round.attempts[id]?.count ?? 0)
                }
            }
        } catch {
            engine.logger.error("what was healed could not be noted", error)
            return rest(Backoff.pauseMax)
        }
        if let error {
            failures += 1
            return rest(min(error.retryAfter ?? engine.backoff(attempts: failures), Backoff.askedPauseMax))
        }
        failures = 0
        guard round.tried.isEmpty else {
            // What the service says of it is heard anew; and there may be more of it here.
            driver.pull()
            return lookSoon()
        }
        // Nothing of the page is here, or it is not its time yet.
        page = round.next
        guard page == nil else { return lookSoon() }
        noteSearched(driver)
        rest(Self.lookPauseMax)
    }

    /// All pages were turned.
    private func noteSearched(_ driver: ScopeDriver) {
        do throws(CloudError) {
            try driver.write { rows in
                let next = try model.damage(in: rows).next
                guard try LostChunks(rows).noteNone(beyond: hasFound ? nil : next) else { return }
                try model.foundNothingLost(in: rows)
            }
        } catch { engine.logger.error("that nothing of what is lost is here could not be noted", error) }
    }
}
