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
        reply.device = try told(device, transaction)
        reply.app = WireApp(try narrowed(requireApp(caller.app.rawValue, transaction), to: device, transaction))
        return reply
    }
}
