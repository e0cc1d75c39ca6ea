internal import Foundation
internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosWire

/// Fetches the contents that are to be here: those that were asked for, and what comes to be in a place that is kept
/// downloaded. On the loop only, in the process that keeps the container in step.
///
/// What there is to do is in rows: whoever keeps it in step goes on with it, also in a later process. A content comes
/// into a file of the home that its row names; what is in it already is not fetched again, since each chunk that is
/// found there, or in an earlier content of the item, is what its hash says.
final class ContentDownloads {
    /// Contents that come at a time. A small one takes the time of its request.
    private static let downloadsMax = 4
    /// Items that are looked at in one go.
    private static let stepMax = 500
    private static let notePause: Duration = .seconds(1)
    private static let beatPause: Duration = .seconds(2)
    /// How long nothing may come before it is tried again later.
    var patience: Duration = .seconds(30)

    private unowned let model: DocumentsModel
    private var engine: DeviceEngine { model.engine }
    private var running: [DocumentID: Running] = [:]
    /// Until then nothing is begun: the service is in the way.
    private var pause: (any LoopTimer)?
    private var retry = Retry()
    /// When the next is due of those that wait for their own sake.
    private var next: (at: Duration, timer: any LoopTimer)?
    private var isLooking = false
    /// Whose rows these are.
    private var account: AccountID?

    // What is kept downloaded
    private var pins: Set<DocumentID> = []
    /// What was touched up to here is heeded.
    private var revision: Int64?
    /// Folders that are still to be looked through, and where in them the next step goes on.
    private var walks: [(folder: DocumentID, after: (name: Data, item: String))] = []

    private final class Running {
        let root: Data
        let file: DocumentID
        var download: ContentDownload?
        var percent = 0
        var noted = (percent: 0, at: Duration.zero)
        /// When somebody was told last that it moves.
        var beaten = Duration.zero

        init(_ root: Data, _ file: DocumentID) { (self.root, self.file) = (root, file) }
    }

    init(_ model: DocumentsModel) { self.model = model }

    // MARK: Life

    /// Something may have changed; not within a transaction.
    func look() {
        guard !isLooking else { return }
        isLooking = true
        engine.loop.schedule(after: .zero) { [weak self] in
            guard let self else { return }
            isLooking = false
            goOn()
        }
    }

    /// Tries now what would be tried later by itself.
    func hasten() {
        pause?.cancel()
        pause = nil
        retry.succeeded()
        guard let driver else { return }
        do throws(CloudError) {
            if try driver.read({ try DocumentTransaction($0).wishes().hasRequests }) {
                try driver.write { try DocumentTransaction($0).hastenDownloads() }
            }
        } catch { engine.logger.error("contents that are to come could not be hastened", error) }
        look()
    }

    /// Leaves off; what has come is found again.
    func end() {
        for timer in [pause, next?.timer] { timer?.cancel() }
        (pause, next) = (nil, nil)
        retry.succeeded()
        let all = running
        running = [:]
        for one in all.values { one.download?.cancel() }
        (pins, revision, walks, account) = ([], nil, [], nil)
    }

    /// Nil: somebody else does it, or nobody can.
    private var driver: ScopeDriver? {
        guard !engine.stopped, !engine.options.isOffline, let driver = model.driver, driver.scope != nil,
            !driver.isDelegated,
            engine.session?.revoked == false
        else { return nil }
        return driver
    }

    private func goOn() {
        guard let driver else { return end() }
        if let account, account != driver.scope?.account { end() }
        account = driver.scope?.account
        do throws(CloudError) {
            let wishes = try driver.read { rows in
                try rows.state().synced ? try DocumentTransaction(rows).wishes() : nil
            }
            guard let wishes else { return }
            try heed(wishes.pins, driver)
            // What is here may not be wanted any more.
            if try driver.read({ try ContentCache.hasUnweighed($0.database) }) { engine.trimContentsSoon() }
            if wishes.hasRequests || !running.isEmpty { try begin(driver) }
        } catch {
            engine.logger.error("contents that are to come could not be read", error)
            wake(after: engine.failed(&retry, error))
        }
    }

    private func wake(after wait: Duration) {
        let time = engine.loop.monotonicNow + wait
        guard next.map({ time < $0.at }) ?? true else { return }
        next?.timer.cancel()
        let timer = engine.loop.schedule(after: wait) { [weak self] in
            self?.next = nil
            self?.look()
        }
        next = (time, timer)
    }

    // MARK: What is kept downloaded

    /// Looks at what has come to be in a place that is kept downloaded, so many items a step.
    private func heed(_ pins: Set<DocumentID>, _ driver: ScopeDriver) throws(CloudError) {
        let new = pins.subtracting(self.pins)
        self.pins = pins
        guard !pins.isEmpty else { return (revision, walks) = (nil, []) }
        walks += new.sorted().map { ($0, (Data(), "")) }
        let (seen, stack) = (revision, walks)
        let (found, here, upTo, left, isMore) = try driver.read { rows in
            try Self.step(DocumentTransaction(rows), pins, after: seen, stack)
        }
        if !found.isEmpty || !here.isEmpty {
            try driver.write { rows in
                let documents = DocumentTransaction(rows)
                for id in found { if let item = try documents.document(id) { try documents.requestDownload(of: item) } }
                for id in here { if let item = try documents.document(id) { try documents.keepCopy(for: item) } }
            }
        }
        (revision, walks) = (upTo, left)
        if isMore || !found.isEmpty { look() }
    }

    private typealias Walks = [(folder: DocumentID, after: (name: Data, item: String))]

    /// - Returns: What is to come; what is here for another item, or not known to be wanted; how far that goes; whether
    ///   there is more.
    private static func step(
        _ documents: DocumentTransaction, _ pins: Set<DocumentID>, after seen: Int64?, _ walks: Walks
    ) throws -> (found: [DocumentID], here: [DocumentID], upTo: Int64, walks: Walks, isMore: Bool) {
        var (found, here, walks) = ([DocumentID](), [DocumentID](), walks)
        func look(at item: HeldDocument) throws {
            guard !item.isTrashed else { return }
            if item.isFolder {
                walks.append((item.id, (Data(), "")))
            } else if try documents.isHere(item) {
                if try documents.isWanted(item.id),
                    try documents.copies.hasUnkept(item.wire.content.root, of: item.id.description)
                {
                    here.append(item.id)
                }
            } else if try documents.request(of: item.id) == nil, try documents.isWanted(item.id) {
                // What a folder has taken into the trash is not fetched, nor what no way leads to.
                found.append(item.id)
            }
        }
        let latest = try documents.latestTouch()
        var upTo = latest
        if let seen, let touched = try documents.touched(after: seen, limit: stepMax) {
            upTo = touched.upTo
            for id in touched.items {
                guard let item = try documents.document(id) else { continue }
                if try documents.pin(over: id) != nil { try look(at: item) }
            }
        } else if seen != nil {
            // Some of it is not known any more.
            walks = pins.sorted().map { ($0, (Data(), "")) }
        }
        var left = stepMax
        while left > 0, let walk = walks.popLast() {
            if let item = try documents.document(walk.folder), !item.isFolder {
                try look(at: item)
                left -= 1
                continue
            }
            let page = try documents.everything(in: walk.folder, named: nil, after: walk.after, limit: left)
            left -= page.items.count + 1
            if let last = page.last { walks.append((walk.folder, last)) }
            if walk.folder == .top, walk.after.item.isEmpty { walks.append((.documents, (Data(), ""))) }
            for item in page.items { try look(at: item) }
        }
        return (found, here, upTo, walks, !walks.isEmpty || upTo < latest)
    }

    // MARK: Beginning

    private func begin(_ driver: ScopeDriver) throws(CloudError) {
        let now = engine.now
        let (due, soonest, gone) = try driver.read { rows in
            let documents = DocumentTransaction(rows)
            let found = try documents.requests(
                at: now, pauseMax: Retry.askedMax, limit: Self.downloadsMax + running.count)
            let gone = try running.filter { item, one in
                try documents.request(of: item)?.file != one.file || !documents.isInPlace(item)
                    || documents.pause(of: item) != nil
            }.map(\.key)
            return (found.due, found.soonest, gone)
        }
        // Nobody wants them any more.
        for item in gone { running.removeValue(forKey: item)?.download?.cancel() }
        next?.timer.cancel()
        next = nil
        if let soonest { wake(after: .milliseconds(1 + Int64(clamping: soonest.milliseconds &- now.milliseconds))) }
        guard pause == nil else { return }
        for request in due where running[request.item] == nil && running.count < Self.downloadsMax {
            do throws(CloudError) { try begin(request, driver) } catch { failed(request.item, error, isHere: true) }
        }
    }

    private func begin(_ request: DocumentTransaction.Request, _ driver: ScopeDriver) throws(CloudError) {
        let folder = try ContentFolder(home: engine.local.home)
        let file = engine.makeDocumentID()
        // The row is first: no sweep takes its file then.
        let (item, former, begun, unneeded) = try driver.write { rows in
            let documents = DocumentTransaction(rows)
            guard let item = try documents.document(request.item), try !documents.isHere(item),
                try documents.isInPlace(item.id)
            else {
                let unneeded = try documents.endRequest(of: request.item)
                return (HeldDocument?.none, LocalCopy?.none, file, unneeded)
            }
            let root = item.wire.content.root
            let former = try documents.copies.lastCopy(heldBy: item.id.description)
            if request.root == root, let begun = request.file { return (item, former, begun, nil) }
            try documents.begin(request, root: root, file: file)
            return (item, former, file, request.file)
        }
        if let unneeded { folder.remove(unneeded) }
        guard let content = item?.wire.content else { return look() }
        guard let root = ChunkID(bytes: [UInt8](content.root)) else { throw ContentReading.damaged }
        let walk = try ContentWalk(root: root, depth: content.depth, length: content.length, range: 0..<content.length)
        let descriptor = try folder.create(begun)
        let open = OpenFile(descriptor)
        let one = Running(content.root, begun)
        var status = stat()
        fstat(descriptor, &status)
        // What has come of it already has its room.
        try folder.requireRoom(for: max(0, Int(clamping: content.length) - Int(clamping: status.st_blocks * 512)))
        guard ftruncate(descriptor, off_t(clamping: content.length)) == 0 else {
            throw ContentFolder.failure(folder.file(begun))
        }
        running[request.item] = one
        one.download = ContentDownload(
            engine, .documents(model.name, app: model.app), walk,
            to: FileSink(file: open, name: folder.file(begun)),
            local: LocalChunks(begun: status.st_size > 0 ? open : nil, former: former, in: folder),
            listMax: ContentFolder.chunksMax, patience: patience,
            onProgress: { [weak self, weak one] done in
                guard let self, let one else { return }
                note(done, of: content.length, request.item, one)
            },
            onPace: { [weak self, weak one] in
                guard let self, let one else { return }
                beat(request.item, one)
            }
        ) { [weak self, weak one] result in
            // Its download holds this, and must not be held by it.
            guard let self, let one, running[request.item] === one else { return }
            running[request.item] = nil
            switch result {
            case .success(let chunks): ended(request.item, content, one, chunks)
            case .failure(let error): failed(request.item, error)
            }
        }
    }

    /// Tells the home's queries how far it is, so seldom that it costs nothing.
    private func note(_ done: Int, of length: UInt64, _ item: DocumentID, _ one: Running) {
        retry.succeeded()
        one.percent = length > 0 ? Int(min(99, Double(done) / Double(length) * 100)) : 0
        beat(item, one)
    }

    /// Tells whoever waits for it that it moves, or only waits because of the rate: a percent of a long one takes its
    /// time.
    private func beat(_ item: DocumentID, _ one: Running) {
        let (now, percent) = (engine.loop.monotonicNow, one.percent)
        let isFurther = percent > one.noted.percent && now - one.noted.at >= Self.notePause
        guard isFurther || now - one.beaten >= Self.beatPause, let driver else { return }
        one.beaten = now
        if isFurther { one.noted = (percent, now) }
        // Figures for people: where one cannot be kept, the next one may.
        try? driver.write { rows in
            let documents = DocumentTransaction(rows)
            if isFurther { try documents.setPercent(percent, ofDownload: item) }
            try documents.beat(ofDownload: item)
        }
    }

    // MARK: Ends

    private func ended(
        _ item: DocumentID, _ content: WireDocumentContent, _ one: Running, _ chunks: [CutChunk]
    ) {
        guard let driver else { return }
        let now = engine.now
        do {
            try engine.fault("download.keep")
            let folder = try ContentFolder(home: engine.local.home)
            guard !chunks.isEmpty, try CutChunk.root(of: chunks).isRoot(of: content) else {
                throw ContentReading.damaged
            }
            let unneeded = try driver.write { rows in
                let documents = DocumentTransaction(rows)
                guard let request = try documents.request(of: item), request.file == one.file else {
                    // Another process was quicker, or nobody wants it any more.
                    return try engine.neededContents.has(one.file, rows.database) ? [] : [one.file]
                }
                guard let held = try documents.document(item) else { return [] }
                if held.wire.content.root == content.root {
                    try documents.endRequest(of: item)
                } else {
                    // The next one is to come, and most chunks of this one may be in it.
                    try documents.beginAnew(item)
                }
                let former = try documents.addCopy(
                    of: content, for: item, file: one.file, chunks: chunks, now: now)
                return try former + ContentCache.trim(rows.database, folder)
            }
            for file in unneeded { folder.remove(file) }
        } catch { return failed(item, CloudError(wrapping: error), isHere: true) }
        look()
    }

    /// - Parameter isHere: Whether what failed is on this device.
    private func failed(_ item: DocumentID, _ error: CloudError, isHere: Bool = false) {
        guard let driver else { return end() }
        let isLost = !isHere && Self.isLost(error)
        let isOfItself = isHere || isLost || error.code.retry == .never
        let attempts = try? driver.read { try DocumentTransaction($0).request(of: item)?.attempts }
        var own = Retry(isLost ? .lostContent : .scope, attempts: attempts ?? 0)
        let ownPause = engine.failed(&own, error)
        let wait = isOfItself ? ownPause : engine.failed(&retry, error)
        let next = engine.now.advanced(by: wait)
        do throws(CloudError) {
            try driver.write {
                try DocumentTransaction($0).setFailure(error, ofDownload: item, own, next: next)
            }
        } catch { engine.logger.error("why a content has not come could not be noted", error) }
        // One that cannot be written here is as good as all; one that the server has not is in nobody's way.
        if isOfItself { return isHere ? wake(after: wait) : look() }
        guard self.pause == nil else { return }
        self.pause = engine.loop.schedule(after: wait) { [weak self] in
            self?.pause = nil
            self?.look()
        }
    }

    /// Whether the server has this content no more as it was, which says nothing of others.
    private static func isLost(_ error: CloudError) -> Bool {
        error.code == .storageFailure && error.details["file"] == nil && !LocalFailure.isHere(error)
    }
}
