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
    /// How long nothing may come before it is tried again later.
    var patience: Duration = .seconds(30)

    private unowned let model: DocumentsModel
    private var engine: DeviceEngine { model.engine }
    private var running: [DocumentID: Running] = [:]
    /// Until then nothing is begun: the service is in the way.
    private var pause: (any LoopTimer)?
    /// How often in a row it was.
    private var failures = 0
    /// When the next is due of those that wait for their own sake.
    private var next: (any LoopTimer)?
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
        let handle: FileHandle
        var download: ContentDownload?
        var noted = (percent: 0, at: Duration.zero)

        init(_ root: Data, _ file: DocumentID, _ descriptor: Int32) {
            (self.root, self.file) = (root, file)
            handle = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        }
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
        (pause, failures) = (nil, 0)
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
        for timer in [pause, next] { timer?.cancel() }
        (pause, next, failures) = (nil, nil, 0)
        let all = running
        running = [:]
        for one in all.values { one.download?.cancel() }
        (pins, revision, walks, account) = ([], nil, [], nil)
    }

    /// Nil: somebody else does it, or nobody can.
    private var driver: ScopeDriver? {
        guard !engine.stopped, let driver = model.driver, driver.scope != nil, !driver.isHeld,
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
            if wishes.hasRequests || !running.isEmpty { try begin(driver) }
        } catch {
            engine.logger.error("contents that are to come could not be read", error)
            wake(after: Backoff.pauseMax)
        }
    }

    private func wake(after wait: Duration) {
        next?.cancel()
        next = engine.loop.schedule(after: wait) { [weak self] in
            self?.next = nil
            self?.look()
        }
    }

    // MARK: What is kept downloaded

    /// Looks at what has come to be in a place that is kept downloaded, so many items a step.
    private func heed(_ pins: Set<DocumentID>, _ driver: ScopeDriver) throws(CloudError) {
        let new = pins.subtracting(self.pins)
        self.pins = pins
        guard !pins.isEmpty else { return (revision, walks) = (nil, []) }
        walks += new.sorted().map { ($0, (Data(), "")) }
        let (seen, stack) = (revision, walks)
        let (found, upTo, left, isMore, isMoved) = try driver.read { rows in
            try Self.step(DocumentTransaction(rows), pins, after: seen, stack)
        }
        if !found.isEmpty || isMoved {
            try driver.write { rows in
                let documents = DocumentTransaction(rows)
                for id in found { if let item = try documents.document(id) { try documents.requestDownload(of: item) } }
                if isMoved { try documents.weighCopies() }
            }
        }
        (revision, walks) = (upTo, left)
        if isMore || !found.isEmpty { look() }
    }

    private typealias Walks = [(folder: DocumentID, after: (name: Data, item: String))]

    /// - Returns: What is to come; how far that goes; whether there is more; whether a folder or what is kept has moved.
    private static func step(
        _ documents: DocumentTransaction, _ pins: Set<DocumentID>, after seen: Int64?, _ walks: Walks
    ) throws -> (found: [DocumentID], upTo: Int64, walks: Walks, isMore: Bool, isMoved: Bool) {
        var (found, walks, isMoved) = ([DocumentID](), walks, false)
        func look(at item: HeldDocument) throws {
            guard !item.isTrashed else { return }
            if item.isFolder {
                walks.append((item.id, (Data(), "")))
            } else if try !documents.isHere(item), try documents.request(of: item.id) == nil {
                found.append(item.id)
            }
        }
        let latest = try documents.latestTouch()
        var upTo = latest
        if let seen, let touched = try documents.touched(after: seen, limit: stepMax) {
            upTo = touched.upTo
            for id in touched.items {
                guard let item = try documents.document(id) else { continue }
                if item.isFolder { isMoved = true }
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
        return (found, upTo, walks, !walks.isEmpty || upTo < latest, isMoved)
    }

    // MARK: Beginning

    private func begin(_ driver: ScopeDriver) throws(CloudError) {
        let now = engine.now
        let (due, soonest, gone) = try driver.read { rows in
            let documents = DocumentTransaction(rows)
            let found = try documents.requests(
                at: now, pauseMax: Backoff.askedPauseMax, limit: Self.downloadsMax + running.count)
            let gone = try running.filter {
                try documents.pause(of: $0.key) != nil || documents.request(of: $0.key)?.file != $0.value.file
            }.map(\.key)
            return (found.due, found.soonest, gone)
        }
        // Nobody wants them any more.
        for item in gone { running.removeValue(forKey: item)?.download?.cancel() }
        next?.cancel()
        next = nil
        if let soonest { wake(after: .milliseconds(1 + Int64(clamping: soonest.milliseconds &- now.milliseconds))) }
        guard pause == nil else { return }
        for request in due where running[request.item] == nil && running.count < Self.downloadsMax {
            do throws(CloudError) { try begin(request, driver) } catch { failed(request.item, error, ofItself: true) }
        }
    }

    private func begin(_ request: DocumentTransaction.Request, _ driver: ScopeDriver) throws(CloudError) {
        let folder = try ContentFolder(home: engine.local.home)
        let file = engine.makeDocumentID()
        // The row is first: no sweep takes its file then.
        let (item, former, begun, unneeded) = try driver.write { rows in
            let documents = DocumentTransaction(rows)
            guard let item = try documents.document(request.item), try !documents.isHere(item),
                try documents.path(of: item)?.isInTrash == false
            else {
                let unneeded = try documents.endRequest(of: request.item)
                return (HeldDocument?.none, LocalCopy?.none, file, unneeded)
            }
            let root = item.wire.content.root
            let former = try documents.lastCopy(of: item.id)
            if request.root == root, let begun = request.file { return (item, former, begun, nil) }
            try documents.begin(request, root: root, file: file)
            return (item, former, file, request.file)
        }
        if let unneeded { folder.remove(unneeded) }
        guard let content = item?.wire.content else { return look() }
        guard let root = ChunkID(bytes: [UInt8](content.root)) else { throw ContentReading.damaged }
        let walk = try ContentWalk(root: root, depth: content.depth, length: content.length, range: 0..<content.length)
        let descriptor = folder.create(begun)
        guard descriptor >= 0 else { throw ContentFolder.failure(folder.file(begun)) }
        let one = Running(content.root, begun, descriptor)
        var status = stat()
        fstat(descriptor, &status)
        // What has come of it already has its room.
        try folder.requireRoom(for: max(0, Int(clamping: content.length) - Int(clamping: status.st_blocks * 512)))
        running[request.item] = one
        one.download = ContentDownload(
            engine, app: model.app, container: model.name, walk,
            to: FileSink(descriptor: descriptor, name: folder.file(begun)),
            local: LocalChunks(begun: status.st_size > 0 ? descriptor : nil, former: former, in: folder),
            listMax: ContentFolder.chunksMax, patience: patience,
            onProgress: { [weak self, weak one] done in
                guard let self, let one else { return }
                note(done, of: content.length, request.item, one)
            }
        ) { [weak self] result in
            guard let self, running[request.item] === one else { return }
            running[request.item] = nil
            switch result {
            case .success(let chunks): ended(request.item, content, one, chunks)
            case .failure(let error): failed(request.item, error)
            }
        }
    }

    /// Tells the home's queries how far it is, so seldom that it costs nothing.
    private func note(_ done: Int, of length: UInt64, _ item: DocumentID, _ one: Running) {
        failures = 0
        let percent = length > 0 ? Int(min(99, Double(done) / Double(length) * 100)) : 0
        let now = engine.loop.monotonicNow
        guard percent > one.noted.percent, now - one.noted.at >= Self.notePause, let driver else { return }
        one.noted = (percent, now)
        // A figure for people: where it cannot be kept, the next one may.
        try? driver.write { try DocumentTransaction($0).setPercent(percent, ofDownload: item) }
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
                    return try DocumentTransaction.isNeeded(one.file, rows.database) ? [] : [one.file]
                }
                guard try documents.document(item)?.wire.content.root == content.root else {
                    // The next one is to come; chunks of this one may be in it.
                    return []
                }
                try documents.endRequest(of: item)
                let former = try documents.addCopy(
                    of: content, for: item, file: one.file, chunks: chunks, now: now)
                return try former + ContentCache(database: rows.database, folder: folder).trim()
            }
            for file in unneeded { folder.remove(file) }
        } catch { return failed(item, CloudError(wrapping: error), ofItself: true) }
        look()
    }

    private func failed(_ item: DocumentID, _ error: CloudError, ofItself: Bool = false) {
        guard let driver else { return end() }
        let isOfItself = ofItself || error.code.retry == .never
        failures += isOfItself ? 0 : 1
        let attempts = (try? driver.read { try DocumentTransaction($0).request(of: item)?.attempts }) ?? 0
        let wait = min(
            error.retryAfter ?? engine.backoff(attempts: isOfItself ? attempts + 1 : failures), Backoff.askedPauseMax)
        let next = engine.now.advanced(by: wait)
        do throws(CloudError) {
            try driver.write { try DocumentTransaction($0).setFailure(error, ofDownload: item, next: next) }
        } catch { engine.logger.error("why a content has not come could not be noted", error) }
        guard !isOfItself else { return wake(after: wait) }
        guard pause == nil else { return }
        pause = engine.loop.schedule(after: wait) { [weak self] in
            self?.pause = nil
            self?.look()
        }
    }
}
