internal import Foundation
internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosWire

/// What is in the way of contents: of one request's, or of all.
extension ContentUploads {
    /// Says in the request's row why nothing moves; nil: it does.
    func tell(_ wait: BulkProgress.Wait?, of upload: ContentUpload) {
        upload.progress.waiting = upload.client?.ended ?? wait?.reason
        let now = engine.loop.monotonicNow
        let isNews = upload.operation.error?.code != wait?.reason.code
        guard upload.client?.ended == nil, isNews || wait != nil && now - upload.told >= Self.tellPause else { return }
        // That there is a ticket again says nothing of what the contents have failed for.
        guard wait != nil || upload.progress.bytesDone > 0 else { return }
        upload.told = now
        upload.operation.error = wait?.reason
        upload.operation.attempts = wait?.attempts ?? 0
        upload.operation.nextAttempt =
            wait.map { engine.now.advanced(by: max(.zero, $0.until - now)) } ?? Timestamp(milliseconds: 0)
        update(upload.operation)
    }

    /// How often at most the row is written while nothing new is in the way.
    private static let tellPause: Duration = .seconds(1)

    private func update(_ operation: OutboxOperation) {
        guard let driver = model.driver else { return }
        do throws(CloudError) {
            try driver.write { if try $0.isWaiting(operation) { try $0.update(operation) } }
        } catch { engine.logger.error("why contents wait could not be noted", error) }
        driver.perform([.changed])
    }

    /// - Parameter ofItself: It is the home, or this content, that is in the way; not the service.
    func failed(_ upload: ContentUpload, _ error: CloudError, ofItself: Bool = false) {
        guard isOn(upload) else { return }
        guard !upload.isOffer else { return putOffOffer(error) }
        guard !engine.stopped, let driver = model.driver, driver.scope?.account == upload.account else {
            return drop(upload)
        }
        if error.isOfEndedUpload { return takeOtherTransfer(upload, after: error) }
        if !ofItself, error.code == .permissionFailure, model.isRefusedByContainer,
            let container = upload.containers.first
        {
            return passOver(container, upload)
        }
        let outcome = PushRules.outcome(of: error)
        if !ofItself, outcome == .refuse { return refuse(upload, error, driver) }
        if ofItself || error.code == .internalError { return putOff(upload, error, driver) }
        let wait = engine.failed(&retry, error)
        letGo(upload)
        upload.isIdle = true
        upload.progress = UploadProgress(waiting: error)
        upload.operation.error = error
        upload.operation.attempts += 1
        // What a person can cure may be cured when the next process begins.
        upload.operation.nextAttempt = outcome == .block ? Timestamp(milliseconds: 0) : engine.now.advanced(by: wait)
        update(upload.operation)
        guard pause == nil else { return }
        pause = engine.loop.schedule(after: wait) { [weak self] in self?.resume() }
    }

    /// It has a pause of its own; the others go on.
    private func putOff(_ upload: ContentUpload, _ error: CloudError, _ driver: ScopeDriver) {
        drop(upload)
        waiting = error
        upload.operation.error = error
        let wait = engine.failed(&upload.operation.retry, error)
        times.putOff(&upload.operation, by: wait, at: driver.moment)
        // What cannot be written on disk neither.
        times.hold(upload.operation.position, for: wait, at: driver.moment)
        update(upload.operation)
        begin(as: upload.account)
    }

    func refuse(
        _ upload: ContentUpload, _ error: CloudError, _ driver: ScopeDriver, losing version: DocumentID? = nil
    ) {
        guard !upload.isOffer else { return putOffOffer(error) }
        do throws(CloudError) {
            try driver.write { rows in
                guard var operation = try rows.operation(at: upload.operation.position),
                    operation.id == upload.operation.id
                else { return }
                let goesOn = upload.isOpen || upload.storedBytes > 0
                if goesOn {
                    // Whatever becomes of the request goes on with it, or closes it.
                    var request = try model.contentRequest(of: operation, in: rows)
                    request.transferID = upload.transfer
                    try model.keep(request, with: &operation, in: rows)
                }
                if let version { try model.forgetContent(version, in: rows) }
                try driver.refuse(operation, error, in: rows)
                // A process that is gone may have begun it, and stored nothing: what goes on does so under another id.
                guard !goesOn, upload.request.transferID.isEmpty else { return }
                model.closeUpload(upload.transfer, of: upload.request.container)
            }
        } catch {
            engine.logger.error("what was refused could not be noted", error)
            return putOff(upload, error, driver)
        }
        drop(upload)
        driver.perform([.tellNews, .changed])
        // The rest of it may go, and what waited behind it.
        driver.push()
        begin(as: upload.account)
    }

    /// What rests on it is given up; what else the request brings is sent.
    func lose(_ upload: ContentUpload, _ failure: ContentUpload.Unreadable) {
        guard isOn(upload), let driver = model.driver, driver.scope?.account == upload.account else { return }
        var error = failure.error
        model.blame(failure.version, of: upload.operation, for: &error)
        refuse(upload, error, driver, losing: failure.isHere ? nil : failure.version)
    }

    /// The upload is of no use any more, and another takes its place: nothing of it was taken.
    ///
    /// - Parameter error: What the service says of it; nil: nothing, it is given up.
    func takeOtherTransfer(_ upload: ContentUpload, after error: CloudError? = nil) {
        guard let driver = model.driver, driver.scope?.account == upload.account else { return end() }
        let id = engine.makeOperationID()
        upload.request.transferID = Data()
        do throws(CloudError) {
            // As it was put: of the nodes some may have gone ahead.
            try save(upload, driver) { request, operation, rows in
                self.model.closeUpload(upload.transfer, of: upload.request.container)
                request.transferID = Data()
                operation.id = id
            }
        } catch { return putOff(upload, error, driver) }
        guard let error else {
            upload.transfer = Data(id.bytes)
            (upload.storedBytes, upload.isOpen) = (0, false)
            return goOn(upload)
        }
        putOff(upload, error, driver)
    }
}
