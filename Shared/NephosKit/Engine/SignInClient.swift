import NephosBus
import NephosCore
import SwiftProtobuf

/// A connection to an identity service made for one sign-in, before there is a session.
final class SignInClient {
    private let client: RequestClient

    init(_ engine: DeviceEngine, _ address: SessionRecord.Service, keys secrets: DeviceSecrets) throws {
        guard let keys = secrets.keys else { throw CloudError(.internalError, "A sign-in needs keys.") }
        client = try engine.makeClient(to: address, endpoints: address.requests, keys: keys)
    }

    func call(
        _ request: some SwiftProtobuf.Message, accessToken: String = "", timeout: Duration, id: OperationID,
        _ completion: @escaping (ReplyEnvelope) -> Void
    ) {
        let name = type(of: request).protoMessageName.split(separator: ".").last ?? ""
        client.call(
            String(name), body: Frame(encoding: request), accessToken: accessToken, timeout: timeout, id: id,
            endsWhenRefused: true, completion: completion)
    }

    func close() { client.close() }
}
