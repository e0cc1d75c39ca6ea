internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosWire

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
            request.container = purpose.container
            call(service, request, as: WireOpenTransferReply.self, app: app) { [weak self] result, _ in
                let pass = result.map {
                    BulkClient.Pass(
                        ticket: $0.ticket.withUnsafeBytes { BulkTicket(bytes: $0) } ?? .none,
                        creditBytes: $0.creditBytes)
                }
                // Without a token the answer comes at once.
                self?.loop.schedule(after: .zero) { done(pass) }
            }
        }
    }
}
