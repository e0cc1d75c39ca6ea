internal import Foundation
internal import GRDB
internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// How far the contents of a container are that are sent.
struct UploadProgress: Sendable {
    var bytesDone = 0
    var bytesTotal = 0
    /// Why nothing moves; nil: it does, or there is nothing to move.
    var waiting: CloudError?
}

/// Stores the contents that requests need, one request after the other, before those are sent. On the loop only.
///
/// What is done is on disk: whoever sends for the home goes on with what is left, also in another process.
final class ContentUploads {
    /// Bytes of manifest nodes of one request.
    var nodesBytesMax = DocumentLimits.nodesBytesMax

    private unowned let model: DocumentsModel
    private var engine: DeviceEngine { model.engine }
    private var current: Upload?
    private var retry: (any LoopTimer)?
    private var failures = 0
    private(set) var progress = UploadProgress()

    init(_ model: DocumentsModel) { self.model = model }

    /// One request's contents on their way.
    private final class Upload {
        let operation: OutboxOperation
        let account: AccountID?
        var request: WireApplyChanges
        /// Where each chunk is, by its id: file and place in it.
        var places: [ChunkID: (file: String, offset: Int, length: Int)] = [:]
        /// What was not asked about yet, and what the container lacks.
        var unasked: [ChunkID] = []
        var missing: Set<ChunkID> = []
        var left: [ChunkID] = []
        var storing = 0
        var nodes: [ChunkID: Data] = [:]
        var client: BulkClient?
        var files: [String: FileHandle] = [:]
        /// What the home was told last of how far it is, and when.
        var noted: (percent: Int, at: Duration)

        init(_ operation: OutboxOperation, _ account: AccountID?, _ request: WireApplyChanges, at now: Duration) {
            noted = (0, now)
            self.operation = operation
            self.account = account
            self.request = request
        }
    }

    /// Goes on with what waits, unless that is done already.
    func begin(as account: AccountID?) {
        guard current == nil, retry == nil, !engine.stopped, let driver = model.driver, driver.scope?.account == account
        else { return }
        do throws(CloudError) {
            guard let upload = try next(driver) else { return }
            current = upload
            askNext()
        } catch { engine.logger.error("contents that wait could not be read", error) }
    }

    /// Leaves off; what was stored is found again.
    func end() {
        retry?.cancel()
        retry = nil
        current?.client?.cancel()
        current = nil
        progress = UploadProgress()
    }

    private func next(_ driver: ScopeDriver) throws(CloudError) -> Upload? {
        let folder = try ContentFolder(home: engine.local.home)
        return try driver.read { rows in
            let documents = DocumentTransaction(rows)
            guard let first = try documents.unstoredPositions().min(),
                let operation = try rows.operations(limit: 1, where: "position = \(first)").first
            else { return nil }
            let request = try WireApplyChanges(serializedBytes: operation.payload)
            let upload = Upload(operation, rows.scope.account, request, at: engine.loop.monotonicNow)
            for content in try documents.waitingContents(at: operation.position) {
                var offset = 0
                for chunk in content.chunks {
                    if upload.places[chunk.id] == nil { upload.unasked.append(chunk.id) }
                    upload.places[chunk.id] = (folder.file(content.version), offset, chunk.length)
                    offset += chunk.length
                }
            }
            for node in request.nodes {
                let id = node.withUnsafeBytes { ChunkID(hashing: $0) }
                if upload.nodes.updateValue(node, forKey: id) == nil { upload.unasked.append(id) }
            }
            return upload
        }
    }

    // MARK: What is missing

    private func askNext() {
        guard let upload = current else { return }
        guard !upload.unasked.isEmpty else { return send() }
        let asked = Array(upload.unasked.prefix(DocumentLimits.missingMax))
        var request = WireFindMissing()
        request.container = model.name
        request.ids = asked.map { Data($0.bytes) }
        engine.call(.documents, request, as: WireFindMissingReply.self, app: model.app) {
            [weak self, weak upload] result, _ in
            guard let self, let upload, upload === current else { return }
            switch result {
            case .failure(let error): failed(error)
            case .success(let reply):
                upload.unasked.removeFirst(asked.count)
                for index in reply.missing where Int(index) < asked.count { upload.missing.insert(asked[Int(index)]) }
                askNext()
            }
        }
    }

    // MARK: Sending

    private func send() {
        guard let upload = current else { return }
        upload.left = upload.missing.filter { upload.places[$0] != nil }.sorted { left, right in
            // The last one goes first.
            guard let left = upload.places[left], let right = upload.places[right] else { return false }
            return (left.file, left.offset) > (right.file, right.offset)
        }
        guard !upload.left.isEmpty else { return finish(upload, transfer: nil) }
        let bytes = upload.left.reduce(0) { $0 + (upload.places[$1]?.length ?? 0) }
        let counted = upload.left.reduce(0) { $0 + BulkLimits.counted(upload.places[$1]?.length ?? 0) }
        progress = UploadProgress(bytesTotal: bytes)
        // The same each time: an upload that was broken off is gone on with.
        let transfer = upload.operation.id.bytes
        do {
            let client = try makeClient(BulkClient.Purpose(upload: transfer, uploadBytes: UInt64(counted)))
            upload.client = client
            client.onRoom = { [weak self, weak upload] in
                guard let self, let upload, upload === current else { return }
                fill(upload, transfer: transfer)
            }
            client.onProgress = { [weak self, weak client, weak upload] in
                guard let self, let client, let upload, upload === current else { return }
                progress.bytesDone = client.progress.bytesDone
                progress.waiting = client.ended ?? client.progress.waiting?.reason
                noteProgress(of: upload)
                // Without a chunk on its way nobody else would hear of it.
                if let ended = client.ended, upload.storing == 0 { failed(ended) }
            }
        } catch { failed(CloudError(wrapping: error)) }
    }

    private static let notePause: Duration = .seconds(1)

    /// Tells the home's queries how far it is, so seldom that it costs nothing.
    private func noteProgress(of upload: Upload) {
        let percent = progress.bytesTotal > 0 ? min(99, progress.bytesDone * 100 / progress.bytesTotal) : 0
        let now = engine.loop.monotonicNow
        guard percent > upload.noted.percent, now - upload.noted.at >= Self.notePause, let driver = model.driver,
            driver.scope?.account == upload.account
        else { return }
        upload.noted = (percent, now)
        // A figure for people: where it cannot be kept, the next one may.
        try? driver.write { try DocumentTransaction($0).setPercent(percent, at: upload.operation.position) }
    }

    private func makeClient(_ purpose: BulkClient.Purpose) throws -> BulkClient {
        try engine.makeBulkClient(of: .documents, app: model.app, purpose)
    }

    private func fill(_ upload: Upload, transfer: [UInt8]) {
        guard let client = upload.client else { return }
        while let chunk = upload.left.last, let place = upload.places[chunk],
            client.room >= BulkLimits.counted(place.length)
        {
            upload.left.removeLast()
            upload.storing += 1
            do {
                try client.store(bytes: place.length) { room in
                    try read(place, of: upload, into: room)
                    return chunk
                } then: { [weak self, weak upload] result in
                    guard let self, let upload, upload === current else { return }
                    upload.storing -= 1
                    switch result {
                    case .failure(let error): failed(error)
                    case .success where upload.left.isEmpty && upload.storing == 0: finish(upload, transfer: transfer)
                    case .success: break
                    }
                }
            } catch { return failed(CloudError(wrapping: error)) }
        }
    }

    private func read(
        _ place: (file: String, offset: Int, length: Int), of upload: Upload,
        into room: UnsafeMutableRawBufferPointer
    ) throws {
        if upload.files[place.file] == nil {
            upload.files = [place.file: try FileHandle(forReadingFrom: URL(fileURLWithPath: place.file))]
        }
        guard let descriptor = upload.files[place.file]?.fileDescriptor, room.count == place.length else {
            throw Self.lost
        }
        var filled = 0
        while filled < place.length {
            let count = pread(
                descriptor, room.baseAddress.map { $0 + filled }, place.length - filled, off_t(place.offset + filled))
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw Self.lost }
            filled += count
        }
    }

    private static let lost = CloudError(
        .unknownItem, "The content that was to be sent is not in this device's home any more.")

    // MARK: Ends

    private func finish(_ upload: Upload, transfer: [UInt8]?) {
        upload.request.transferID = Data(transfer ?? [])
        upload.request.nodes = upload.request.nodes.filter { node in
            upload.missing.contains(node.withUnsafeBytes { ChunkID(hashing: $0) })
        }
        sendNodesAhead(upload)
    }

    /// Nodes that are too many for one request go ahead of it, children first, and belong to the upload until then.
    private func sendNodesAhead(_ upload: Upload) {
        let rest = upload.request.nodes
        guard rest.reduce(0, { $0 + $1.count }) > nodesBytesMax else { return note(upload) }
        guard !upload.request.transferID.isEmpty else { return openTransfer(upload) }
        var ahead = WireApplyChanges()
        ahead.container = model.name
        ahead.transferID = upload.request.transferID
        var bytes = 0
        ahead.nodes = Array(
            rest.prefix {
                bytes += $0.count
                return bytes <= nodesBytesMax
            })
        engine.call(.documents, ahead, as: WireApplyChangesReply.self, app: model.app) {
            [weak self, weak upload] result, _ in
            guard let self, let upload, upload === current else { return }
            switch result {
            case .failure(let error): failed(error)
            case .success:
                upload.request.nodes.removeFirst(ahead.nodes.count)
                sendNodesAhead(upload)
            }
        }
    }

    /// All chunks are there, and still the nodes need an upload.
    private func openTransfer(_ upload: Upload) {
        var request = WireOpenTransfer()
        request.transferID = Data(upload.operation.id.bytes)
        engine.call(.documents, request, as: WireOpenTransferReply.self, app: model.app) {
            [weak self, weak upload] result, _ in
            guard let self, let upload, upload === current else { return }
            switch result {
            case .failure(let error): failed(error)
            case .success:
                upload.request.transferID = request.transferID
                sendNodesAhead(upload)
            }
        }
    }

    private func note(_ upload: Upload) {
        guard let driver = model.driver, driver.scope?.account == upload.account else { return end() }
        do throws(CloudError) {
            let payload: Data
            do { payload = try upload.request.serializedData() } catch { throw CloudError(wrapping: error) }
            try driver.write { rows in
                // Another process may have been quicker.
                guard try rows.setPayload(payload, at: upload.operation.position) else { return }
                try DocumentTransaction(rows).markStored(at: upload.operation.position)
            }
        } catch { return failed(error) }
        failures = 0
        upload.client?.close()
        current = nil
        progress = UploadProgress()
        driver.push()
        begin(as: upload.account)
    }

    private func failed(_ error: CloudError) {
        guard let upload = current else { return }
        current = nil
        upload.client?.cancel()
        progress = UploadProgress(waiting: error)
        failures += 1
        guard !engine.stopped, let driver = model.driver, driver.scope?.account == upload.account else { return }
        let outcome = PushRules.outcome(
            of: error, pause: engine.backoff(attempts: failures), isOutdated: false)
        if outcome == .refuse {
            do throws(CloudError) {
                try driver.write { try driver.refuse(upload.operation, error, in: $0) }
                failures = 0
                driver.perform([.tellNews, .changed])
                return begin(as: upload.account)
            } catch { engine.logger.error("what was refused could not be noted", error) }
        } else {
            var operation = upload.operation
            operation.error = error
            _ = try? driver.write { rows in
                if try rows.isWaiting(operation) { try rows.update(operation) }
            }
            driver.perform([.changed])
        }
        let pause = error.retryAfter ?? engine.backoff(attempts: failures)
        retry = engine.loop.schedule(after: min(pause, Backoff.askedPauseMax)) { [weak self] in
            self?.retry = nil
            self?.begin(as: upload.account)
        }
    }
}

extension DeviceEngine {
    /// A connection that moves content to and from a service.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` where the deployment has no such service, or it moves none.
    func makeBulkClient(of service: ServiceName, app: AppID, _ purpose: BulkClient.Purpose) throws -> BulkClient {
        guard let address = session?.services.first(where: { $0.service == service.rawValue }),
            let endpoints = address.bulk, !endpoints.isEmpty, let key = PublicKey(z85: address.publicKey)
        else { throw CloudError(.serviceUnavailable, "This deployment has no service that moves content.") }
        guard let keys = try loadSecrets().keys else {
            throw CloudError(.notSignedIn, "This home has no keys. Sign in.")
        }
        return try BulkClient(
            loop: loop, socket: RequestSocketOptions(endpoints: endpoints, serverKey: key, keys: keys),
            purpose: purpose, generator: makeGenerator()
        ) { [weak self] purpose, done in
            guard let self else { return }
            var request = WireOpenTransfer()
            request.transferID = Data(purpose.upload ?? [])
            request.uploadBytes = purpose.uploadBytes
            call(service, request, as: WireOpenTransferReply.self, app: app) { [weak self] result, _ in
                let pass = result.map {
                    BulkClient.Pass(
                        ticket: $0.ticket.withUnsafeBytes { BulkTicket(bytes: $0) } ?? .none,
                        creditBytes: Int(clamping: $0.creditBytes))
                }
                // Without a token the answer comes at once.
                self?.loop.schedule(after: .zero) { done(pass) }
            }
        }
    }
}
