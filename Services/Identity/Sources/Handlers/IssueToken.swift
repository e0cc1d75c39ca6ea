internal import ServiceKit
internal import Wire

extension IdentityService {
    func issueToken(
        _ request: WireIssueToken, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireIssueTokenReply {
        let device = try requireDevice(context, transaction).device
        let app = try requireApp(request.appID, transaction)
        var reply = WireIssueTokenReply()
        reply.accessToken = try accessToken(for: device, app: app, at: context.now)
        return reply
    }
}
