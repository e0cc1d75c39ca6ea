internal import Foundation
internal import GRDB
internal import Logging
internal import NephosBus
internal import NephosCore

/// A model whose service says how many chunks of its contents it has lost.
protocol ContentKeeping: ContentSending {
    /// The container.
    var name: String { get }
    /// Files of contents that are here whole, and their chunks: those behind this file, in the order of the files.
    func keptContents(after file: Data, in rows: ScopeTransaction) throws -> RowCursor
}

/// A pass over the contents that are here.
struct ContentOffering {
    /// How many chunks the server had lost when it began.
    let lost: Int
    /// The last file that was offered.
    var last = Data()
    /// The contents that are offered now, up to the file `end`; and whether there are no more.
    var upload: ContentUpload?
    var end = Data()
    var isAtEnd = false
    /// No chunk failed that may be sent another time.
    var isComplete = true
}

/// Offers the contents that are here again, once the service has said that it has lost chunks of the container.
///
/// It is asked about their chunks as before any upload (`FindMissing`), and gets those that it names as lost. They need no
/// room, whatever the plan. Each is compared with its hash before it goes. Contents that somebody has put go first, of
/// whichever container: an offer that is under way gives way to them.
extension ContentUploads {
    /// Between two questions: the person's own requests draw on the same budget.
    private static let offerPause: Duration = .seconds(2)
    /// While other contents are on their way.
    private static let busyPause: Duration = .seconds(60)
    /// All devices that are open hear of a loss in the same moment. One of them is first: each waits as after so many
    /// failures, 8 to 16 seconds by chance.
    private static let hearing = Retry(attempts: 5)

    /// The service has said what it has lost.
    func note(_ loss: ContentLoss, in rows: ScopeTransaction) throws {
        let isNews = heardLoss != nil
        // Copies were kept for it that may go now.
        if loss != heardLoss { engine.trimContentsSoon() }
        heardLoss = loss
        let offers = ContentOffers(rows)
        try offers.note(loss)
        guard offering == nil, let wait = try offers.wait(for: loss, at: engine.now) else { return }
        offerSoon(after: max(wait, isNews ? engine.pause(of: Self.hearing) : .zero))
    }

    /// Whether contents are offered now, or in a moment.
    var isOffering: Bool {
        offering?.upload != nil || nextOffer.map { $0.at <= engine.loop.monotonicNow + Self.offerPause } ?? false
    }

    private func offerSoon(after wait: Duration) {
        let time = engine.loop.monotonicNow + wait
        guard nextOffer.map({ time < $0.at }) ?? true else { return }
        nextOffer?.timer.cancel()
        let timer = engine.loop.schedule(after: wait) { [weak self] in
            guard let self else { return }
            nextOffer = nil
            offer()
        }
        nextOffer = (time, timer)
    }

    /// Begins a pass, or goes on with it.
    private func offer() {
        // Nil: another process of the home does it, or nobody can.
        guard !engine.stopped, let keeping = model as? any ContentKeeping, let driver = model.driver,
            let scope = driver.scope, !driver.isDelegated, engine.session?.revoked == false
        else { return endOffering() }
        guard !engine.isSendingContents else { return offerSoon(after: Self.busyPause) }
        let request = ContentRequest(container: keeping.name, transferID: Data(engine.makeOperationID().bytes))
        let upload = ContentUpload(.ofNothing, scope.account, request, isShort: true, isOffer: true)
        do throws(CloudError) {
            let wait = try driver.read { rows -> Duration? in
                let loss = try ContentLoss(in: rows)
                guard loss.isOffered else { return nil }
                if offering == nil {
                    let wait = try ContentOffers(rows).wait(for: loss, at: engine.now)
                    guard wait == .zero else { return wait }
                }
                var pass = offering ?? ContentOffering(lost: loss.lostChunks)
                (pass.upload, pass.end, pass.isAtEnd) = (upload, pass.last, false)
                let contents = try keeping.keptContents(after: pass.last, in: rows)
                while upload.places.count < askedMax, !pass.isAtEnd {
                    if let content = try contents.next() {
                        pass.end = content[0]
                        guard let file = DocumentID(bytes: pass.end) else { continue }
                        upload.place(CutChunk.decode(content[1]), of: file)
                    } else {
                        pass.isAtEnd = true
                    }
                }
                offering = pass
                return .zero
            }
            guard let wait else { return offering = nil }
            guard wait == .zero else { return offerSoon(after: wait) }
        } catch { return putOffOffer(error) }
        upload.containers = [keeping.name]
        upload.unasked[keeping.name] = upload.places.isEmpty ? nil : Array(upload.places.keys)
        goOn(upload)
    }

    // MARK: Ends

    /// The service has what it asked for, as far as it is here.
    func finishOffer() {
        closeOffer()
        guard let pass = offering else { return }
        offering?.last = pass.end
        pass.isAtEnd ? endPass(pass) : offerSoon(after: Self.offerPause)
    }

    private func endPass(_ pass: ContentOffering) {
        // If something failed, again from the beginning.
        offering = pass.isComplete ? nil : ContentOffering(lost: pass.lost)
        guard let driver = model.driver else { return }
        do throws(CloudError) {
            if pass.isComplete {
                let now = engine.now
                try driver.write { rows in
                    try ContentOffers(rows).save(ContentOffers.Pass(lost: pass.lost, ended: now))
                }
                // Copies were kept for it that may go now.
                engine.trimContentsSoon()
                offerRetry.succeeded()
            } else {
                offerSoon(after: engine.failed(&offerRetry))
            }
        } catch { return putOffOffer(error) }
        // The service says what is lost still.
        driver.pull()
    }

    /// A chunk is not here as it was, or the service does not take it: the others go all the same.
    ///
    /// - Parameter isGone: It is of no use another time either.
    func skipOffered(_ outgoing: ContentUpload.Outgoing, _ upload: ContentUpload, isGone: Bool) {
        if !isGone { offering?.isComplete = false }
        settle(outgoing, upload)
        fill(upload)
    }

    /// Something is in the way: it is gone on with later.
    func putOffOffer(_ error: CloudError) {
        engine.logger.debug("contents could not be offered again", metadata: ["code": "\(error.code)"])
        closeOffer()
        offerSoon(after: max(Self.busyPause, engine.failed(&offerRetry, error)))
    }

    /// Contents that somebody has put are to be sent.
    func yieldOffer() {
        guard offering?.upload != nil else { return }
        closeOffer()
        offerSoon(after: Self.busyPause)
    }

    /// Leaves off; what was sent is whole.
    func endOffering() {
        nextOffer?.timer.cancel()
        let upload = offering?.upload
        (offering, nextOffer, heardLoss) = (nil, nil, nil)
        offerRetry.succeeded()
        if let upload { letGo(upload) }
    }

    private func closeOffer() {
        guard let upload = offering?.upload else { return }
        offering?.upload = nil
        letGo(upload)
        if upload.isOpen { model.closeUpload(upload.transfer, of: upload.request.container) }
    }
}

extension DeviceEngine {
    private var uploads: [ContentUploads] { scopes.compactMap { ($0.model as? any ContentSending)?.uploads } }

    /// Whether contents that somebody has put are on their way.
    var isSendingContents: Bool { uploads.contains(where: \.isBusy) }

    /// Contents that somebody has put are to be sent: what is offered again waits.
    func yieldOffers() { for uploads in uploads { uploads.yieldOffer() } }
}

extension OutboxOperation {
    /// Stands for the request of contents that are sent for no request: no row has it.
    fileprivate static let ofNothing = OutboxOperation(
        position: 0, id: OperationID(high: 0, low: 0), head: .zero, state: .unsent, writer: 0,
        created: Timestamp(milliseconds: 0), attempts: 0, nextAttempt: Timestamp(milliseconds: 0))
}
