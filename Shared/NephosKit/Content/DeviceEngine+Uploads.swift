internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosWire

/// An upload that this device has given up or is done with.
struct EndedUpload {
    var transfer: Data
    var place: ContentPlace
}

extension DeviceEngine {
    /// Asks the service once to end an upload that this device has given up or is done with, so that its room is free at once.
    ///
    /// A service that does not get the request ends the upload a day after its last chunk. An upload that is ended although it
    /// goes on, because what gave it up could not be saved, is begun again.
    func closeUpload(_ transfer: Data, at place: ContentPlace) {
        guard !transfer.isEmpty else { return }
        endedUploads.append(EndedUpload(transfer: transfer, place: place))
        // After the transaction that gives it up.
        guard endedUploads.count == 1 else { return }
        loop.schedule(after: .zero) { [weak self] in self?.closeUploads() }
    }

    /// Asks for all that have ended; nothing waits for the answers.
    func closeUploads() {
        let ended = endedUploads
        endedUploads = []
        guard !stopped, !options.isOffline, session?.signedIn == true else { return }
        for upload in ended {
            var request = WireCloseTransfer()
            request.transferID = upload.transfer
            request.container = upload.place.container
            call(upload.place.service, request, as: WireCloseTransferReply.self, app: upload.place.app) { _, _ in }
        }
    }
}

extension ScopeModel {
    func closeUpload(_ transfer: Data, of container: String) {
        engine.closeUpload(transfer, at: ContentPlace(service: service, app: app, container: container))
    }
}
