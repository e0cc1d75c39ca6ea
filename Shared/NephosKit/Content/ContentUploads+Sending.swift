internal import NephosBus
internal import NephosCore
internal import NephosWire

/// The chunks that a service lacks, on their way to it.
extension ContentUploads {
    func send(_ upload: ContentUpload) {
        // What it holds has come to the container another way, and would take room for nothing.
        guard upload.storedBytes == 0 || upload.holdsSome || upload.hasServed else { return takeOtherTransfer(upload) }
        upload.left = upload.missing.filter { upload.places[$0] != nil }.sorted { left, right in
            // The last one goes first.
            guard let left = upload.places[left], let right = upload.places[right] else { return false }
            return (left.version, left.offset) > (right.version, right.offset)
        }
        let bytes = upload.left.reduce(0) { $0 + (upload.places[$1]?.length ?? 0) }
        let counted = upload.left.reduce(0) {
            $0 + (upload.damaged.contains($1) ? 0 : BulkLimits.counted(upload.places[$1]?.length ?? 0))
        }
        upload.progress = UploadProgress(bytesTotal: bytes)
        if !upload.isOffer { engine.yieldOffers() }
        upload.isOpen = true
        do {
            let purpose = BulkClient.Purpose(
                upload: [UInt8](upload.transfer), uploadBytes: upload.storedBytes.addingClamped(UInt64(counted)),
                container: upload.turn)
            let client = try takeClient(for: purpose)
            upload.client = client
            client.onRoom = { [weak self, weak upload] in
                guard let self, let upload, isOn(upload) else { return }
                fill(upload)
            }
            client.onProgress = { [weak self, weak client, weak upload] in
                guard let self, let client, let upload, isOn(upload), upload.client === client else { return }
                upload.progress.bytesDone = client.progress.bytesDone
                if !upload.isOffer {
                    noteProgress(of: upload)
                    if engine.loop.monotonicNow - upload.announced >= Self.announcePause { announce(upload) }
                    tell(client.progress.waiting, of: upload)
                }
                // Without a chunk on its way nobody else would hear of it.
                if let ended = client.ended, upload.storing == 0 { failed(upload, ended) }
            }
        } catch { failed(upload, CloudError(wrapping: error)) }
    }

    private static let notePause: Duration = .seconds(1)

    /// Tells the home's queries how far it is, so seldom that it costs nothing.
    private func noteProgress(of upload: ContentUpload) {
        let (done, total) = (upload.progress.bytesDone, upload.progress.bytesTotal)
        let percent = total > 0 ? min(99, done * 100 / total) : 0
        let now = engine.loop.monotonicNow
        guard percent > upload.noted.percent, now - upload.noted.at >= Self.notePause, let driver = model.driver,
            driver.scope?.account == upload.account
        else { return }
        upload.noted = (percent, now)
        // A figure for people: where it cannot be kept, the next one may.
        try? driver.write { try model.setPercent(percent, at: upload.operation.position, in: $0) }
    }

    /// Bytes, and chunks, that are read and compressed together, beside the loop: some milliseconds of work.
    private static let batchBytesMax = 1 << 20
    private static let batchCountMax = 64
    /// Batches of an upload that are under way: one for each thread.
    private static let batchesMax = 2

    func fill(_ upload: ContentUpload) {
        guard let client = upload.client, !upload.isIdle else { return }
        while upload.batches.count < Self.batchesMax {
            let batch = takeBatch(of: upload, client)
            guard !batch.isEmpty else { return }
            prepare(batch, upload, client)
        }
    }

    /// The next chunks, as far as there is room for them.
    private func takeBatch(of upload: ContentUpload, _ client: BulkClient) -> [ContentUpload.Outgoing] {
        var batch: [ContentUpload.Outgoing] = []
        var bytes = 0
        // Of what is offered each chunk goes by itself: one that cannot be read keeps no other.
        let countMax = upload.isOffer ? 1 : Self.batchCountMax
        while upload.pacing == nil, batch.count < countMax, let chunk = upload.left.last,
            let place = upload.places[chunk], batch.isEmpty || bytes + place.length <= Self.batchBytesMax,
            hasRoom(for: place, behind: bytes, of: upload, client)
        {
            if let wait = engine.uploadRate.take(place.length) {
                upload.progress.isPaced = true
                fill(upload, after: wait)
                break
            }
            bytes += BulkLimits.counted(place.length)
            upload.left.removeLast()
            upload.storing += 1
            batch.append(
                ContentUpload.Outgoing(
                    chunk: chunk, place: place, number: client.nextNumber(),
                    isPlain: upload.mistaken[chunk] != nil))
        }
        return batch
    }

    /// Has them read and compressed, and stores them then.
    private func prepare(_ batch: [ContentUpload.Outgoing], _ upload: ContentUpload, _ client: BulkClient) {
        do throws(CloudError) {
            let folder = try ContentFolder(home: engine.local.home)
            let ticket = client.ticket
            let (number, isChecked) = (upload.begin(batch), upload.isOffer)
            engine.loop.offload(to: .content) { [fault = engine.options.fault] in
                try fault?("content.read")
                return ContentUpload.make(batch, under: ticket, in: folder, isChecked: isChecked)
            } then: { [weak self, weak upload] result in
                guard let self, let upload, isOn(upload), upload.client === client, upload.end(number) else { return }
                switch result {
                case .success(let made):
                    for (outgoing, chunk) in zip(batch, made.chunks) { store(chunk, outgoing, upload, client) }
                    guard let failure = made.failure else { return fill(upload) }
                    if upload.isOffer, folder.isThere {
                        return skipOffered(batch[0], upload, isGone: failure is ContentUpload.Unreadable)
                    }
                    guard let failure = failure as? ContentUpload.Unreadable else {
                        return failed(upload, CloudError(wrapping: failure), ofItself: true)
                    }
                    lose(upload, failure)
                case .failure(let error): failed(upload, CloudError(wrapping: error), ofItself: true)
                }
            }
        } catch { failed(upload, error, ofItself: true) }
    }

    private func store(
        _ made: BulkClient.MadeChunk, _ outgoing: ContentUpload.Outgoing, _ upload: ContentUpload, _ client: BulkClient
    ) {
        client.store(made) { [weak self, weak upload] result in
            guard let self, let upload, isOn(upload), upload.client === client else { return }
            switch result {
            case .failure(let error): refused(outgoing, upload, client, error)
            case .success:
                retry.succeeded()
                upload.holdsSome = true
                upload.storedBytes = upload.storedBytes.addingClamped(
                    UInt64(BulkLimits.counted(outgoing.place.length)))
                settle(outgoing, upload)
            }
        }
    }

    /// The chunk is sent, or is not to be sent any more.
    func settle(_ outgoing: ContentUpload.Outgoing, _ upload: ContentUpload) {
        upload.storing -= 1
        upload.missing.remove(outgoing.chunk)
        if upload.left.isEmpty, upload.storing == 0 { finish(upload) }
    }

    private func fill(_ upload: ContentUpload, after wait: Duration) {
        upload.pacing = engine.loop.schedule(after: wait) { [weak self, weak upload] in
            guard let self, let upload, isOn(upload) else { return }
            upload.pacing = nil
            upload.progress.isPaced = false
            fill(upload)
        }
    }

    /// The service counts what all of a device's connections have sent: they share it.
    ///
    /// - Parameter bytes: Of chunks before it that are not under way yet.
    private func hasRoom(
        for place: ContentUpload.Place, behind bytes: Int, of upload: ContentUpload, _ client: BulkClient
    ) -> Bool {
        let (room, credit) = (client.room - upload.preparedBytes - bytes, client.creditBytes)
        let sharing = running.count { $0.client != nil }
        guard sharing > 1, room < credit else { return room >= BulkLimits.counted(place.length) }
        return credit - room + BulkLimits.counted(place.length) <= credit / sharing
    }

    /// How often a chunk is sent that the service finds to be another, in one go.
    private static let mistakenMax = 3

    private func refused(
        _ outgoing: ContentUpload.Outgoing, _ upload: ContentUpload, _ client: BulkClient, _ error: CloudError
    ) {
        if upload.isOffer, client.ended == nil { return skipOffered(outgoing, upload, isGone: false) }
        guard error.code == .invalidArguments else { return failed(upload, error) }
        // Either it is another here, too, or it became one on its way.
        do throws(CloudError) {
            let folder = try ContentFolder(home: engine.local.home)
            engine.loop.offload(to: .content) {
                try ContentUpload.check(outgoing, in: folder)
            } then: { [weak self, weak upload] result in
                guard let self, let upload, isOn(upload), upload.client === client else { return }
                switch result {
                case .success: sendAgain(outgoing, upload)
                case .failure(let failure as ContentUpload.Unreadable): lose(upload, failure)
                case .failure(let error): failed(upload, CloudError(wrapping: error), ofItself: true)
                }
            }
        } catch { failed(upload, error, ofItself: true) }
    }

    private func sendAgain(_ outgoing: ContentUpload.Outgoing, _ upload: ContentUpload) {
        upload.storing -= 1
        // While it was read again nobody heard of that.
        if let ended = upload.client?.ended { return failed(upload, ended) }
        let count = upload.mistaken[outgoing.chunk, default: 0] + 1
        upload.mistaken[outgoing.chunk] = count
        guard count < Self.mistakenMax else { return failed(upload, Self.mistaken, ofItself: true) }
        upload.left.append(outgoing.chunk)
        fill(upload)
    }

    private static let mistaken = CloudError(
        .internalError,
        "The server finds a content other than it is in this device's home. It is sent again later; if that goes on, look after the memory of both."
    )
}
