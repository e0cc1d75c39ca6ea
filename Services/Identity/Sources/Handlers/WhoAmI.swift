internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension IdentityService {
    func whoAmI(
        _ request: WireWhoAmI, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireWhoAmIReply {
        let (caller, device) = try requireDevice(context, transaction)
        guard let account = try AccountStore(transaction: transaction).account(caller.account) else {
            throw CloudError.accountClosed
        }
        var reply = WireWhoAmIReply()
        reply.accountID = account.id.rawValue
        reply.accountName = account.name
        reply.device = WireDevice(device)
        reply.app = WireApp(try requireApp(caller.app.rawValue, transaction))
        return reply
    }
}
