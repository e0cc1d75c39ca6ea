internal import ServiceKit
internal import Storage
internal import Wire

// The account's devices, oldest first: active ones and revoked ones. A device
// that has signed out is gone.
extension IdentityService {
    func listDevices(
        _ request: WireListDevices, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListDevicesReply {
        let account = try requireSubject(request.accountName, context, transaction).account
        var reply = WireListDevicesReply()
        reply.devices = try DeviceStore(transaction: transaction).devices(of: account.id)
            .filter { $0.state != .signedOut }
            .map(WireDevice.init)
        return reply
    }
}
