internal import Core
internal import ServiceKit
internal import Storage
internal import Wire

// Locks a device of the caller's account out for good, its key included. The
// event ends its requests and subscriptions at every service.
extension IdentityService {
    func revokeDevice(
        _ request: WireRevokeDevice, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRevokeDeviceReply {
        let caller = try requireDevice(context, transaction).caller
        guard var device = try DeviceStore(transaction: transaction).device(DeviceID(request.deviceID)),
            // Another account's device answers like none.
            device.account == caller.account
        else { throw CloudError(.unknownItem, "The account has no such device.") }
        if device.state != .revoked {
            device = try end(device, as: .revoked, transaction)
            try DirectoryEvents.publish(
                [.device(device)], operation: context.id, by: caller.device, in: transaction)
        }
        var reply = WireRevokeDeviceReply()
        reply.device = WireDevice(device)
        return reply
    }
}
