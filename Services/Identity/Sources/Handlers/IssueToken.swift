internal import NephosServiceKit
internal import NephosWire

extension IdentityService {
    func issueToken(
        _ request: WireIssueToken, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireIssueTokenReply {
        let (caller, device) = try requireDevice(context, transaction)
        let app = try requireApp(request.appID, transaction)
        var reply = WireIssueTokenReply()
        // No longer than the caller's own: only the refresh token, which is in one place at a time, lengthens a stay.
        reply.accessToken = try accessToken(
            for: device, app: app, at: context.now, until: caller.expires, transaction)
        return reply
    }
}
