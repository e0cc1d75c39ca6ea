internal import Foundation
internal import GRDB
internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosWire

/// Stores the contents that requests need before those are sent. On the loop only.
///
/// Four requests at a time: the one that has waited longest, and beside it the shortest of the short ones, so that a
/// letter does not wait for a film, and of many none waits for the answers to another. What is done is on disk, or in the service's upload: whoever sends for the home
/// goes on with what is left, also in another process.
///
/// What the service is in the way of is tried again for all, after a pause that grows; what is wrong with one request's
/// contents concerns that request alone. Both are told in the row of the request.
final class ContentUploads {
    /// Bytes of manifest nodes that go at a time.
    var nodesBytesMax = DocumentLimits.nodesBytesMax
    /// Ids that are asked about at a time.
    var askedMax = DocumentLimits.missingMax
    /// Bytes of contents of a request that may pass a longer one: as many as are put into one request with others.
    var shortBytesMax: UInt64 = 64 << 20

    unowned let model: any ContentSending
    var engine: DeviceEngine { model.engine }
    /// How many of them there are at most, the first among them.
    static let runningMax = 4
    /// Of those that wait, how many are looked at for the shortest.
    private static let weighedMax = 64
    /// The one that has waited longest, if it is not done, and some that are short.
    private(set) var running: [ContentUpload] = []
    /// A connection that the next one goes on with, for a moment.
    private var spare: (client: BulkClient, account: AccountID?, closing: any LoopTimer)?
    /// How many were made.
    private(set) var connectionCount = 0
    /// Until then nothing is begun: the service is in the way.
    var pause: (any LoopTimer)?
    var retry = Retry()
    /// When the next is due of those that wait for their own sake.
    private var next: (any LoopTimer)?
    var times = AttemptTimes()
    /// What nothing moves for while nothing is running.
    var waiting: CloudError?
    /// What is here, offered again beside what waits; see ``note(_:in:)``.
    var offering: ContentOffering?
    /// When it is begun, or gone on with.
    var nextOffer: (at: Duration, timer: any LoopTimer)?
    var offerRetry = Retry(.offer)
    /// What the service has said last that it has lost, since this began.
    var heardLoss: ContentLoss?

    init(_ model: any ContentSending) { self.model = model }

    /// Of all that are on their way.
    var progress: UploadProgress {
        var all = UploadProgress(waiting: waiting)
        for upload in running {
            all.bytesDone += upload.progress.bytesDone
            all.bytesTotal += upload.progress.bytesTotal
            all.waiting = all.waiting ?? upload.progress.waiting
            all.isPaced = all.isPaced || upload.progress.isPaced
        }
        return all
    }

    /// Whether the contents of the request at this position are on their way.
    func isRunning(_ position: Int64) -> Bool { running.contains { $0.operation.position == position && !$0.isIdle } }

    /// Whether contents of any request are.
    var isBusy: Bool { running.contains { !$0.isIdle } }

    func isOn(_ upload: ContentUpload?) -> Bool {
        guard let upload else { return false }
        return running.contains { $0 === upload } || offering?.upload === upload
    }

    // MARK: Beginning

    /// Begins pending uploads in the next turn of the loop: they read and write by themselves.
    func beginSoon() {
        let account = model.driver?.scope?.account
        engine.loop.schedule(after: .zero) { [weak self] in self?.begin(as: account) }
    }

    /// Begins pending uploads, as far as there are places.
    func begin(as account: AccountID?) {
        guard !engine.stopped, let driver = model.driver, let scope = driver.scope, scope.account == account else {
            return
        }
        next?.cancel()
        next = nil
        do throws(CloudError) {
            while pause == nil, let upload = try takeNext(driver) {
                waiting = nil
                running.append(upload)
                announceLater(upload)
                goOn(upload)
            }
        } catch {
            engine.logger.error("contents that wait could not be read", error)
            wake(after: engine.failed(&retry, error))
        }
    }

    /// Leaves off; what was stored is found again.
    func end() {
        for timer in [pause, next] { timer?.cancel() }
        (pause, next) = (nil, nil)
        let ended = running
        running = []
        for upload in ended { letGo(upload) }
        endOffering()
        closeSpare()
        retry.succeeded()
        waiting = nil
        times = AttemptTimes()
    }

    /// Leaves off with what was paused, or went to another request for that; what was stored of a request that is still
    /// there is found again. And begins with what was resumed.
    func heedPauses() {
        guard !running.isEmpty, let driver = model.driver else { return }
        let held = try? driver.read { rows in
            let paused = try model.pausedPositions(in: rows)
            return try running.filter { upload in
                let position = upload.operation.position
                return try paused.contains(position) || rows.operation(at: position)?.id != upload.operation.id
            }
        }
        for upload in held ?? [] { drop(upload) }
    }

    /// Tries now what would be tried later by itself: what failed may succeed by now.
    func hasten() {
        retry.succeeded()
        times.release()
        for upload in running { upload.client?.hasten() }
        resume()
    }

    /// The service may be there again.
    func resume() {
        pause?.cancel()
        pause = nil
        for upload in running where upload.isIdle {
            upload.isIdle = false
            goOn(upload)
        }
        if let driver = model.driver { begin(as: driver.scope?.account) }
    }

    private func wake(after wait: Duration) {
        next?.cancel()
        next = engine.loop.schedule(after: wait) { [weak self] in
            guard let self else { return }
            next = nil
            if let driver = model.driver { begin(as: driver.scope?.account) }
        }
    }

    /// What is to be begun now; nil: nothing, or all places are taken. Then somebody looks again when something is due.
    private func takeNext(_ driver: ScopeDriver) throws(CloudError) -> ContentUpload? {
        guard running.count < Self.runningMax else { return nil }
        let onlyShort = running.contains { !$0.isShort }
        let moment = driver.moment
        return try driver.read { rows in
            let unstored = try model.unstored(in: rows)
            times.keep(Set(unstored.map(\.position)))
            var due: [UnstoredRequest] = []
            var soonest: Duration?
            for request in unstored where !running.contains(where: { $0.operation.position == request.position }) {
                let wait = times.wait(for: request.position, until: request.nextAttempt, at: moment)
                if wait > .zero {
                    soonest = min(soonest ?? wait, wait)
                } else {
                    due.append(request)
                }
            }
            // What has failed before is behind what has not.
            let chosen =
                onlyShort
                ? try shortest(of: due, rows)
                : due.min { ($0.attempts, $0.position) < ($1.attempts, $1.position) }
            guard let chosen,
                let operation = try rows.operation(at: chosen.position)
            else {
                if let soonest { wake(after: max(soonest, .milliseconds(1))) }
                return nil
            }
            return try read(operation, isShort: onlyShort, rows)
        }
    }

    /// - Returns: Nil: none is short.
    private func shortest(of due: [UnstoredRequest], _ rows: ScopeTransaction) throws -> UnstoredRequest? {
        try due.prefix(Self.weighedMax)
            .map { (request: $0, bytes: try model.unstoredBytes(at: $0.position, in: rows)) }
            .filter { $0.bytes <= shortBytesMax }
            .min { ($0.bytes, $0.request.position) < ($1.bytes, $1.request.position) }?.request
    }

    private func read(
        _ operation: OutboxOperation, isShort: Bool, _ rows: ScopeTransaction
    ) throws -> ContentUpload {
        let request = try model.contentRequest(of: operation, in: rows)
        let upload = ContentUpload(operation, rows.scope.account, request, isShort: isShort)
        upload.request.nodes = []
        var known: [String: Set<ChunkID>] = [:]
        for content in try model.waitingContents(at: operation.position, in: rows) {
            guard content.source == nil else {
                if content.chunks.isEmpty { upload.unread.append(content) }
                upload.borrow(content.chunks, of: content)
                continue
            }
            if !model.requestsTakeNodes { upload.add(try CutChunk.nodes(of: content.chunks), to: content.container) }
            for chunk in content.chunks where known[content.container, default: []].insert(chunk.id).inserted {
                upload.unasked[content.container, default: []].append(chunk.id)
            }
            upload.place(content.chunks, of: content.version)
        }
        upload.add(request.nodes, to: request.container)
        upload.containers = Set(upload.unasked.keys).union([request.container]).sorted()
        return upload
    }

    /// From where it is.
    func goOn(_ upload: ContentUpload) {
        if let content = upload.unread.first { return readManifest(of: content, upload) }
        guard let container = upload.containers.first else { return note(upload) }
        if let ids = upload.unasked[container] { return ask(about: ids, in: container, for: upload) }
        for chunk in upload.missing where upload.places[chunk] == nil {
            guard let version = upload.borrowed[chunk] else { continue }
            return lose(upload, .gone(version, from: upload.request.sourceContainer))
        }
        if upload.missing.contains(where: { upload.places[$0] != nil }) { send(upload) } else { finish(upload) }
    }

    // MARK: What is missing

    private func ask(about ids: [ChunkID], in container: String, for upload: ContentUpload) {
        let asked = Array(ids.prefix(askedMax))
        var request = WireFindMissing()
        request.container = container
        request.ids = asked.map { Data($0.bytes) }
        request.transferID = upload.transfer
        request.sourceContainer = upload.request.sourceContainer
        engine.call(model.service, request, as: WireFindMissingReply.self, app: model.app) {
            [weak self, weak upload] result, _ in
            guard let self, let upload, isOn(upload) else { return }
            switch result {
            case .failure(let error):
                if error.code == .permissionFailure, model.isRefusedByContainer { return passOver(container, upload) }
                guard error.code == .missingEntitlement else { return failed(upload, error) }
                notBorrowed(upload, Array(upload.borrowed.values), error)
            case .success(let reply):
                let left = Array(ids.dropFirst(asked.count))
                upload.unasked[container] = left.isEmpty ? nil : left
                func chunks(at positions: [UInt32]) -> [ChunkID] {
                    positions.compactMap { Int($0) < asked.count ? asked[Int($0)] : nil }
                }
                upload.damaged.formUnion(chunks(at: reply.damaged))
                // A chunk that no content of the container rests on is not offered.
                for id in chunks(at: upload.isOffer ? reply.damaged : reply.missing) {
                    if upload.places[id] == nil, upload.borrowed[id] == nil {
                        upload.missingNodes.insert(id)
                    } else {
                        upload.missing.insert(id)
                    }
                }
                upload.holdsSome = upload.holdsSome || !reply.held.isEmpty
                upload.storedBytes = reply.storedBytes
                goOn(upload)
            }
        }
    }

    // MARK: Ends

    func finish(_ upload: ContentUpload) {
        guard !upload.isOffer else { return finishOffer() }
        // What it holds may be all that the container lacks.
        let isNeeded = upload.isOpen || upload.storedBytes > 0 || !upload.request.transferID.isEmpty
        upload.request.transferID = isNeeded ? upload.transfer : Data()
        if let container = upload.containers.first {
            upload.nodes[container]?.removeAll { !upload.missingNodes.contains(ContentUpload.id($0)) }
        }
        sendNodesAhead(upload)
    }

    /// Nothing may be stored for this container: the service refuses what the request changes there, and that alone.
    func passOver(_ container: String, _ upload: ContentUpload) {
        (upload.nodes[container], upload.unasked[container]) = (nil, nil)
        // It may be what was to be opened: a request that names an upload which was not would be refused for that.
        if upload.storedBytes == 0, !upload.hasServed { upload.isOpen = false }
        upload.containers.removeFirst()
        turnToNext(upload)
    }

    /// The container has what it is to have, but for what the request brings.
    private func endContainer(_ upload: ContentUpload) {
        let container = upload.containers.removeFirst()
        upload.request.nodes += model.requestsTakeNodes ? upload.nodes[container] ?? [] : []
        upload.hasServed = true
        turnToNext(upload)
    }

    private func turnToNext(_ upload: ContentUpload) {
        guard !upload.containers.isEmpty else { return note(upload) }
        (upload.missing, upload.missingNodes) = ([], [])
        letGo(upload)
        goOn(upload)
    }

    /// Nodes that the request has no room for go ahead of it, children first, and belong to the upload until then.
    private func sendNodesAhead(_ upload: ContentUpload) {
        guard let container = upload.containers.first else { return note(upload) }
        let rest = upload.nodes[container] ?? []
        let bytesOfRequest = model.requestsTakeNodes ? nodesBytesMax : 0
        guard rest.reduce(0, { $0 + $1.count }) > bytesOfRequest else { return endContainer(upload) }
        guard upload.isOpen else { return openTransfer(upload) }
        upload.request.transferID = upload.transfer
        var ahead = upload.request
        ahead.container = container
        var bytes = 0
        let fitting = rest.prefix {
            bytes += $0.count
            return bytes <= nodesBytesMax
        }
        ahead.nodes = Array(rest.prefix(max(1, fitting.count)))
        let sent = ahead.nodes
        model.storeAhead(ahead) { [weak self, weak upload] result in
            guard let self, let upload, isOn(upload) else { return }
            switch result {
            case .failure(let error): failed(upload, error)
            case .success:
                upload.nodes[container]?.removeFirst(sent.count)
                sendNodesAhead(upload)
            }
        }
    }

    /// All chunks are there, and still the nodes need an upload.
    private func openTransfer(_ upload: ContentUpload) {
        var request = WireOpenTransfer()
        request.transferID = upload.transfer
        request.uploadBytes = upload.storedBytes
        request.container = upload.turn
        upload.isOpen = true
        engine.call(model.service, request, as: WireOpenTransferReply.self, app: model.app) {
            [weak self, weak upload] result, _ in
            guard let self, let upload, isOn(upload) else { return }
            switch result {
            case .failure(let error): failed(upload, error)
            case .success: sendNodesAhead(upload)
            }
        }
    }

    private func note(_ upload: ContentUpload) {
        guard let driver = model.driver, driver.scope?.account == upload.account else { return end() }
        do throws(CloudError) {
            let sent = upload.request
            try save(upload, driver) { request, operation, rows in
                (request.transferID, request.nodes) = (sent.transferID, sent.nodes)
                (operation.attempts, operation.nextAttempt) = (0, Timestamp(milliseconds: 0))
                operation.error = nil
                try self.model.markStored(at: operation.position, in: rows)
                guard sent.transferID.isEmpty, upload.wasBegun else { return }
                // What goes on does so under another id.
                operation.id = self.engine.makeOperationID()
                self.model.closeUpload(upload.transfer, of: sent.container)
            }
        } catch { return failed(upload, error, ofItself: true) }
        retry.succeeded()
        drop(upload)
        driver.push()
        begin(as: upload.account)
    }

    /// Changes the request as it waits now: what is made from another may have been changed since the upload began.
    /// Nothing if another process was quicker.
    func save(
        _ upload: ContentUpload, _ driver: ScopeDriver,
        _ edit: (inout ContentRequest, inout OutboxOperation, ScopeTransaction) throws -> Void
    ) throws(CloudError) {
        let position = upload.operation.position
        let saved: OutboxOperation? = try driver.write { rows in
            guard var operation = try rows.operation(at: position), operation.id == upload.operation.id,
                operation.state == .unsent
            else { return nil }
            var request = try model.contentRequest(of: operation, in: rows)
            try edit(&request, &operation, rows)
            try model.keep(request, with: &operation, in: rows)
            try rows.replace(operation)
            return operation
        }
        if let saved { upload.operation = saved }
    }

    func drop(_ upload: ContentUpload) {
        running.removeAll { $0 === upload }
        letGo(upload)
        for other in running { fill(other) }
    }

    /// Ends its connection, if it has one and the next cannot use it. Nothing that ends with that is heard any more.
    func letGo(_ upload: ContentUpload) {
        upload.pacing?.cancel()
        let client = upload.client
        (upload.client, upload.pacing, upload.storing) = (nil, nil, 0)
        upload.forgetBatches()
        guard let client, spare == nil, !engine.stopped, client.rest() else { client?.cancel(); return }
        let closing = engine.loop.schedule(after: Self.sparePatience) { [weak self] in self?.closeSpare() }
        spare = (client, model.driver?.scope?.account, closing)
    }

    /// How long a connection is kept that nobody uses.
    private static let sparePatience: Duration = .seconds(2)

    private func closeSpare() {
        let client = spare?.client
        spare?.closing.cancel()
        spare = nil
        client?.cancel()
    }

    func takeClient(for purpose: BulkClient.Purpose) throws -> BulkClient {
        guard let spare, spare.account == model.driver?.scope?.account, spare.client.resume(for: purpose) else {
            closeSpare()
            connectionCount += 1
            return try engine.makeBulkClient(of: model.service, app: model.app, purpose)
        }
        self.spare = nil
        spare.closing.cancel()
        return spare.client
    }
}
