internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Reads all segments through, once in a while, so that what the disk has lost is known while a device still has it.
///
/// One short step after the other, on the content pool: so slowly that a round takes most of its time, and never for more
/// than a tenth of a thread's; half of one's while whoever runs the service waits for it. How far it is lies in a row, so
/// that a restart goes on with the segment that it was in.
final class Scrubbing {
    /// Bytes of one step.
    private static let stepBytes = 1 << 20
    /// Of the time that a round may take, the part that it is to take: the rest is for restarts and a busy disk.
    private static let part = 0.75
    /// After a failure of the disk or the database, or while there is nothing to read.
    private static let patience: Duration = .seconds(600)

    private unowned let transfers: Transfers
    private var place: ScrubPlace?
    private var scrub: SegmentScrub?
    /// Bytes a second in this round.
    private var rate = 0.0
    /// Segments of which was told already that they are damaged where no chunk lies.
    private var told: Set<SegmentID> = []
    private static let toldMax = 1024
    /// How often a step of the segment has failed since the last that did not, and since when there was no room for it.
    private var failures = 0
    private var busySince: Duration?
    /// A step that fails is done once more; one that found no room on the pool, or took too long, for so long.
    private static let failuresMax = 1
    private static let busyMax: Duration = .seconds(2 * 3600)
    /// What is under way is nothing but a pause.
    private var pause: (any LoopTimer)?
    /// Somebody waits for the round.
    private var isHurried = false
    /// Somebody wants a round, which begins as soon as the step that is under way has ended.
    private var isAsked = false
    /// Of a round that somebody waits for.
    private var hurried = Hurried()

    /// What `CheckHealth` says of it.
    private struct Hurried {
        /// Those that have ended.
        var rounds = 0
        var bytes = 0
        var totalBytes = 0
        /// Segments that could not be read through.
        var passedOver = 0
        var isUnderWay = true

        func tell(_ host: any ServiceRuntime) {
            host.set("content.scrub.rounds", to: rounds)
            host.set("content.scrub.under_way", to: isUnderWay ? 1 : 0)
            host.set("content.scrub.bytes", to: bytes)
            host.set("content.scrub.bytes_total", to: totalBytes)
            host.set("content.scrub.unread_segments", to: passedOver)
        }
    }

    init(_ transfers: Transfers) { self.transfers = transfers }

    /// Begins, for as long as the service runs.
    func start() {
        guard let host = transfers.host else { return }
        let snapshots = host.snapshots
        host.loop.offload(to: .content) {
            try snapshots.read { (try ScrubPlace.read(in: $0), try ChunkIndex.totalLength(in: $0)) }
        } then: { [weak self] result in
            guard let self, let host = transfers.host else { return }
            guard let (place, bytes) = try? result.get() else { return wait(patience) { $0.start() } }
            let now = host.loop.wallClock.now
            let interval = transfers.configuration.scrubInterval
            guard let place, !place.isDone || place.began > now || now.since(place.began) < interval else {
                return begin(ScrubPlace(segment: nil, began: now), bytes)
            }
            guard place.isDone else { return begin(place, bytes) }
            // The clock may have gone back: no longer than a whole interval.
            wait(min(max(.zero, interval - now.since(place.began)), interval) + .seconds(1)) { $0.start() }
        }
    }

    /// Begins a round that somebody waits for. One that is under way begins anew: what it has read may have been whole
    /// then.
    func hurry() {
        isAsked = true
        guard let waiting = pause else { return }
        waiting.cancel()
        pause = nil
        beginHurried()
    }

    private func beginHurried() {
        guard let host = transfers.host else { return }
        isAsked = false
        let snapshots = host.snapshots
        host.loop.offload(to: .content) {
            try snapshots.read { try ChunkIndex.totalLength(in: $0) }
        } then: { [weak self] result in
            guard let self, let host = transfers.host else { return }
            isHurried = true
            hurried = Hurried(rounds: hurried.rounds, totalBytes: (try? result.get()) ?? 0)
            hurried.tell(host)
            begin(ScrubPlace(segment: nil, began: host.loop.wallClock.now), hurried.totalBytes)
        }
    }

    private func begin(_ place: ScrubPlace, _ bytes: Int) {
        self.place = place
        let configuration = transfers.configuration
        let seconds = configuration.scrubInterval / .seconds(1) * Self.part
        rate = min(
            max(Double(bytes) / max(1, seconds), Double(configuration.scrubBytesASecondLeast)),
            Double(max(1, configuration.scrubBytesASecondMax)))
        next()
    }

    private func wait(_ time: Duration, _ then: @escaping (Scrubbing) -> Void) {
        guard !isAsked else { return beginHurried() }
        pause = transfers.host?.loop.schedule(after: time) { [weak self] in
            self?.pause = nil
            if let self { then(self) }
        }
    }

    /// While the disk or the database fails.
    private var patience: Duration { isHurried ? .seconds(5) : Self.patience }

    /// The segment after the last one.
    private func next() {
        guard let host = transfers.host, let place else { return }
        let snapshots = host.snapshots
        host.loop.offload(to: .content) {
            try snapshots.read { try ChunkIndex.segments(after: place.segment, limit: 1, in: $0).first?.segment }
        } then: { [weak self] result in
            guard let self else { return }
            switch result {
            case .failure: wait(patience) { $0.next() }
            case .success(let segment?):
                scrub = SegmentScrub(segment, in: transfers.store)
                (failures, busySince) = (0, nil)
                step()
            case .success(nil): end(place)
            }
        }
    }

    private func end(_ place: ScrubPlace) {
        told = []
        guard isHurried else { return begin(after: place) }
        // Whoever waits for it gets the count of what the last step has found, too.
        transfers.damage.count { [weak self] isCounted in
            guard let self, let host = transfers.host else { return }
            // Nothing untrue is said of what was found.
            guard isCounted else { return wait(patience) { $0.end(place) } }
            (hurried.rounds, hurried.bytes) = (hurried.rounds + 1, hurried.totalBytes)
            hurried.isUnderWay = false
            hurried.tell(host)
            isHurried = false
            begin(after: place)
        }
    }

    private func begin(after place: ScrubPlace) {
        transfers.host?.submit {
            try ScrubPlace(segment: nil, began: place.began, isDone: true).write(in: $0)
        } then: { [weak self] failure in
            guard let self else { return }
            wait(failure == nil ? .zero : patience) { $0.start() }
        }
    }

    /// What a step on the pool came to.
    private struct Step: Sendable {
        var scrub: SegmentScrub
        var findings: [SegmentScrub.Finding]
        var isDone: Bool
        var time: Duration
    }

    private func step() {
        guard let host = transfers.host, let scrub else { return }
        let (store, snapshots) = (transfers.store, host.snapshots)
        host.loop.offload(to: .content) {
            let clock = ContinuousClock()
            let began = clock.now
            var scrub = scrub
            let (findings, isDone) = try scrub.step(bytesMax: Self.stepBytes, through: snapshots)
            if findings.contains(where: \.isOfNothing) { try ContentDisk.check(store, snapshots) }
            return Step(scrub: scrub, findings: findings, isDone: isDone, time: clock.now - began)
        } then: { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(let step):
                (failures, busySince) = (0, nil)
                note(step)
            // The pool is full, the disk fails, or is not there: the step is done later.
            case .failure(let error):
                transfers.watch.note(error)
                let reason = CloudError(wrapping: error)
                guard isLastTry(reason), !(error is ContentDisk.Gone), let place else {
                    return wait(patience) { $0.step() }
                }
                passOver(scrub.segment, because: reason, place)
            }
        }
    }

    /// Notes that a step has failed.
    ///
    /// - Returns: Whether the segment is left for that.
    private func isLastTry(_ reason: CloudError) -> Bool {
        guard reason.code != .serviceBusy else {
            let now = transfers.host?.loop.monotonicNow ?? .zero
            busySince = busySince ?? now
            return now - (busySince ?? now) >= Self.busyMax
        }
        failures += 1
        return failures > Self.failuresMax
    }

    /// One that fails again and again would keep all behind it from being read.
    private func passOver(_ segment: SegmentID, because error: CloudError, _ place: ScrubPlace) {
        transfers.host?.report(
            "A segment of content could not be read through, and is left for the next round. Look at the disk",
            details: [
                "partition": "\(segment.partition)", "segment": "\(segment.number)", "error": error.message,
            ])
        hurried.passedOver += 1
        if isHurried, let host = transfers.host { hurried.tell(host) }
        save(ScrubPlace(segment: segment, began: place.began)) { $0.next() }
    }

    private func noteRead(_ step: Step, from former: Int) {
        guard isHurried, let host = transfers.host else { return }
        hurried.bytes = min(hurried.totalBytes, hurried.bytes + max(0, step.scrub.offset - former))
        hurried.tell(host)
    }

    private func note(_ step: Step) {
        let former = scrub?.offset ?? 0
        tell(step.findings)
        let place = place.map { ScrubPlace(segment: step.scrub.segment, began: $0.began) }
        noteNext(step.findings.compactMap(\.noted)[...]) { [weak self] in
            guard let self else { return }
            scrub = step.scrub
            noteRead(step, from: former)
            let pause = isHurried ? step.time : max(.seconds(Double(Self.stepBytes) / rate), step.time * 9)
            guard step.isDone, let place else { return wait(pause) { $0.step() } }
            save(place) { $0.wait(pause) { $0.next() } }
        }
    }

    /// Notes what was found before it goes on, a group at a time.
    private func noteNext(_ findings: ArraySlice<ChunkFinding>, then: @escaping () -> Void) {
        guard !findings.isEmpty, let host = transfers.host else { return then() }
        transfers.damage.note(Array(findings.prefix(DamageNotes.groupMax)), with: host) { _ in
        } then: {
            [weak self] failure in
            guard failure == nil else {
                if let self { wait(patience) { $0.noteNext(findings, then: then) } }
                return
            }
            self?.noteNext(findings.dropFirst(DamageNotes.groupMax), then: then)
        }
    }

    private func save(_ place: ScrubPlace, then: @escaping (Scrubbing) -> Void) {
        self.place = place
        transfers.host?.submit {
            try place.write(in: $0)
        } then: { [weak self] _ in
            // If it failed, a restart reads this segment again.
            if let self { then(self) }
        }
    }

    /// What is damaged and no chunk's: it loses nothing, and the operator should know of the disk.
    private func tell(_ findings: [SegmentScrub.Finding]) {
        for finding in findings {
            let segment: SegmentID
            switch finding {
            case .damagedHeader(let found), .damagedDeadRoom(let found, _): segment = found
            case .damagedRow(_, let id, let place) where ChunkID(bytes: id) == nil: segment = place.segment
            case .damaged, .missing, .recovered, .damagedRow: continue
            }
            guard told.count < Self.toldMax, told.insert(segment).inserted else { continue }
            transfers.host?.report(
                "A segment of content is damaged where no chunk lies. The disk may be failing: look at it",
                details: ["partition": "\(segment.partition)", "segment": "\(segment.number)"])
        }
    }
}

extension SegmentScrub.Finding {
    /// What is noted of it; nil: it is no chunk's.
    fileprivate var noted: ChunkFinding? {
        switch self {
        case .damaged(let chunk): .damaged(DamagedChunk(chunk))
        case .missing(let chunk): .damaged(DamagedChunk(chunk, damage: .gone))
        case .recovered(let chunk): .recovered(RecoveredChunk(chunk, isOpened: false))
        case .damagedRow(let owner, let id, let place):
            ChunkID(bytes: id).map { .damaged(DamagedChunk(owner: owner, id: $0, place: place)) }
        case .damagedHeader, .damagedDeadRoom: nil
        }
    }

    fileprivate var isOfNothing: Bool { noted?.isOfNothing ?? false }
}
