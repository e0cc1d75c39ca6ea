internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosWire

extension DeviceEngine {
    /// Asks the service once to end an upload that this device has given up or is done with, so that its room is free at once.
    ///
    /// A service that does not get the request ends the upload an hour after its last chunk. An upload that is ended although it
    /// goes on, because what gave it up could not be saved, is begun again.
    func closeUpload(_ transfer: Data, at place: ContentPlace) {
        guard !transfer.isEmpty else { return }
        // After the transaction that gives it up.
        loop.schedule(after: .zero) { [weak self] in
            guard let self, !stopped, !options.isOffline, session?.signedIn == true else { return }
            var request = WireCloseTransfer()
            request.transferID = transfer
            request.container = place.container
            call(place.service, request, as: WireCloseTransferReply.self, app: place.app) { _, _ in }
        }
    }
}

extension ScopeModel {
    func closeUpload(_ transfer: Data, of container: String) {
        engine.closeUpload(transfer, at: ContentPlace(service: service, app: app, container: container))
    }
}
