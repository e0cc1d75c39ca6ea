internal import NephosBus
package import NephosCore
package import SwiftProtobuf

extension Session {
    /// Calls any service's method as this device: the way to what has no call of its own yet.
    ///
    /// - Parameters:
    ///   - id: Pass an earlier call's id to repeat it; a repeat is answered with the first reply.
    ///   - account: As which account alone it is called; nil: as whichever is signed in.
    /// - Throws: ``CloudError``, the service's own; `.notSignedIn` where another account is; `.networkUnavailable` within a second where nobody listens at
    ///   the service's address; `.networkFailure` and `.serverResponseLost` when the time is up.
    package func call<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ service: ServiceName, _ request: Request, as type: Response.Type, app: AppID? = nil, id: OperationID? = nil,
        timeout: Duration? = nil, account: AccountID? = nil
    ) async throws(CloudError) -> Response {
        try await engine.perform { engine, completion in
            if let error = engine.session?.refusal(of: account) { return completion(.failure(error)) }
            guard let app = app ?? engine.session?.defaultApp else {
                return completion(
                    .failure(CloudError(.notSignedIn, "This home has no account signed in. Sign in.")))
            }
            engine.call(service, request, as: type, app: app, id: id, timeout: timeout, endsWhenRefused: true) {
                result, _ in
                completion(result)
            }
        }
    }
}
