internal import Foundation
internal import Logging
internal import NephosBus
internal import NephosCore

/// A model whose service says how many chunks of its contents it has lost.
protocol ContentKeeping: ContentSending {
    /// The container.
    var name: String { get }
    func loss(in rows: ScopeTransaction) throws -> ContentLoss
    /// Contents that are here whole, in the order of their rows, behind this one.
    func keptContents(after row: Int64, limit: Int, in rows: ScopeTransaction) throws -> [(row: Int64, copy: LocalCopy)]
    /// Whether contents are on their way here.
    var isReceiving: Bool { get }
    /// All that is here was offered: what was kept for that may go.
    func endedOffering(in rows: ScopeTransaction) throws
}

/// A pass over the contents that are here.
struct ContentOffering {
    var pass: ContentOffers.Pass
    /// The last content that was offered.
    var row: Int64 = 0
    /// The contents that are offered now, up to this row.
    var upload: ContentUpload?
    var end: Int64 = 0
    /// Those of them that are not as they were put.
    var unreadable: Set<DocumentID> = []
    var hasSent = false
}

/// Offers the contents again that are here, once the service has said that it has lost chunks of the container: it is
/// asked about them as before any upload, and the chunks go that it names as lost. A chunk that is damaged here too the
/// service refuses by its hash.
///
/// The device asks for its own container with its own ticket, and nothing goes but what contents of that container rest on.
extension ContentUploads {
    /// Contents that are asked about together, and chunks of them after which there are no more.
    private static let offeredMax = 32
    private static let offeredChunksMax = 4096
    /// While other contents are on their way.
    private static let busyPause: Duration = .seconds(60)
    private static let failurePause: Duration = .seconds(3600)
    /// All devices that are open hear of a loss in the same moment. One of them is first: each waits as after so many
    /// failures, 8 to 16 seconds by chance.
    private static let hearingAttempts = 5

    private var keeping: (any ContentKeeping)? { model as? any ContentKeeping }

    func isOffer(_ upload: ContentUpload) -> Bool { offering?.upload === upload }

    /// The service has said what it has lost.
    func note(_ loss: ContentLoss, in rows: ScopeTransaction) throws {
        let isNews = hasHeardLoss
        hasHeardLoss = true
        guard loss.lostChunks > 0, !loss.isAllMissing, offering == nil else { return }
        let wait = ContentOffers.wait(for: loss, after: try ContentOffers(rows).last(), at: engine.now)
        offerSoon(after: max(wait, isNews ? engine.backoff(attempts: Self.hearingAttempts) : .zero))
    }

    private func offerSoon(after wait: Duration) {
        let time = engine.loop.monotonicNow + wait
        guard nextOffer.map({ time < $0.at }) ?? true else { return }
        nextOffer?.timer.cancel()
        let timer = engine.loop.schedule(after: wait) { [weak self] in
            guard let self else { return }
            nextOffer = nil
            if offering == nil { beginOffering() } else { offerNext() }
        }
        nextOffer = (time, timer)
    }

    /// Nil: another process of the home does it, or nobody can.
    private var offerDriver: ScopeDriver? {
        guard !engine.stopped, let driver = model.driver, driver.scope != nil, !driver.isHeld,
            engine.session?.revoked == false
        else { return nil }
        return driver
    }

    private func beginOffering() {
        guard let keeping, let driver = offerDriver else { return }
        guard running.isEmpty, !keeping.isReceiving else { return offerSoon(after: Self.busyPause) }
        do throws(CloudError) {
            let (loss, last) = try driver.read { (try keeping.loss(in: $0), try ContentOffers($0).last()) }
            guard loss.lostChunks > 0, !loss.isAllMissing else { return }
            let wait = ContentOffers.wait(for: loss, after: last, at: engine.now)
            guard wait == .zero else { return offerSoon(after: wait) }
            let pass = ContentOffers.Pass(lost: loss.lostChunks, began: engine.now)
            try driver.write { try ContentOffers($0).save(pass) }
            offering = ContentOffering(pass: pass)
            offerNext()
        } catch { putOffOffer(error) }
    }

    private func offerNext() {
        guard let keeping, let driver = offerDriver, var offering else { return endOffering() }
        guard running.isEmpty, !keeping.isReceiving else { return offerSoon(after: Self.busyPause) }
        do throws(CloudError) {
            let kept = try driver.read {
                try keeping.keptContents(after: offering.row, limit: Self.offeredMax, in: $0)
            }
            guard !kept.isEmpty else { return try finishOffering(driver, keeping) }
            let request = ContentRequest(
                container: keeping.name, transferID: Data(engine.makeOperationID().bytes))
            let upload = ContentUpload(.ofNothing, driver.scope?.account, request, isShort: true)
            var ids: Set<ChunkID> = []
            for (row, copy) in kept where ids.count < Self.offeredChunksMax {
                offering.end = row
                guard !offering.unreadable.contains(copy.file) else { continue }
                var offset = 0
                for chunk in copy.chunks {
                    ids.insert(chunk.id)
                    upload.places[chunk.id] = ContentUpload.Place(
                        version: copy.file, offset: offset, length: chunk.length)
                    offset += chunk.length
                }
            }
            upload.containers = [keeping.name]
            upload.unasked[keeping.name] = ids.isEmpty ? nil : Array(ids)
            offering.upload = upload
            self.offering = offering
            goOn(upload)
        } catch { putOffOffer(error) }
    }

    // MARK: Ends

    /// The service has what it asked for.
    func finishOffer() {
        closeOffer()
        guard let end = offering?.end else { return }
        (offering?.row, offering?.unreadable) = (end, [])
        // Not within what has called: there may be many with nothing to send.
        offerSoon(after: .zero)
    }

    /// A content is not here as it was put: the others are offered without it.
    func skipOffered(_ version: DocumentID) {
        closeOffer()
        offering?.unreadable.insert(version)
        offerSoon(after: .zero)
    }

    /// Something is in the way: it is gone on with later.
    func putOffOffer(_ error: CloudError) {
        engine.logger.debug("contents could not be offered again", metadata: ["code": "\(error.code)"])
        closeOffer()
        offerSoon(after: min(error.retryAfter ?? Self.failurePause, Self.failurePause))
    }

    /// Other contents are to be sent.
    func yieldOffer() {
        guard offering?.upload != nil else { return }
        closeOffer()
        offerSoon(after: Self.busyPause)
    }

    /// Leaves off; what was sent is whole.
    func endOffering() {
        let upload = offering?.upload
        nextOffer?.timer.cancel()
        (offering, nextOffer, hasHeardLoss) = (nil, nil, false)
        if let upload { letGo(upload) }
    }

    private func closeOffer() {
        guard let upload = offering?.upload else { return }
        offering?.upload = nil
        letGo(upload)
        guard upload.isOpen else { return }
        offering?.hasSent = true
        model.closeSoon(upload.transfer, of: upload.request.container)
    }

    private func finishOffering(_ driver: ScopeDriver, _ keeping: any ContentKeeping) throws(CloudError) {
        guard let offering else { return }
        var pass = offering.pass
        pass.isDone = true
        try driver.write { rows in
            try ContentOffers(rows).save(pass)
            try keeping.endedOffering(in: rows)
        }
        self.offering = nil
        // What is lost still the service has to say anew.
        if offering.hasSent { driver.pull() } else { offerSoon(after: .seconds(24 * 3600)) }
    }
}

extension OutboxOperation {
    /// Stands for the request of contents that are sent for no request: no row has it.
    fileprivate static let ofNothing = OutboxOperation(
        position: 0, id: OperationID(high: 0, low: 0), head: .zero, state: .unsent, writer: 0,
        created: Timestamp(milliseconds: 0), attempts: 0, nextAttempt: Timestamp(milliseconds: 0))
}
