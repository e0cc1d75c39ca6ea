internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// Locks a device of the caller's account out for good, its key included, and revokes the app password that it has signed in
// with: else its program would sign in again. The event ends its requests and subscriptions at every service.
extension IdentityService {
    func revokeDevice(
        _ request: WireRevokeDevice, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRevokeDeviceReply {
        let subject = try requireSubject(request.accountName, context, transaction)
        var device = try requireDevice(request.deviceID, of: subject, transaction)
        if !device.state.isLockedOut {
            (device.ended, device.endedBy) = (context.now, subject.device?.name ?? "")
            device = try end(device, as: .revoked, transaction)
            try AuditJournal(transaction: transaction).record(
                .deviceRevoked, of: device.account, by: subject.actor, at: context.now,
                details: ["device": device.name, "device_id": device.id.rawValue])
            try DirectoryEvents.publish(
                [.device(device)], operation: context.id, by: subject.device?.id, in: transaction)
            if let password = try AppPasswordStore(transaction: transaction).password(device.appPassword) {
                try revoke(password, by: subject, context, transaction)
            }
        }
        var reply = WireRevokeDeviceReply()
        reply.device = try told(device, transaction)
        return reply
    }

    /// - Throws: ``CloudError`` `.unknownItem`; another account's device answers like none.
    func requireDevice(
        _ id: String, of subject: Subject, _ transaction: any HandlerTransaction
    ) throws -> DeviceRecord {
        guard let device = try DeviceStore(transaction: transaction).device(DeviceID(id)),
            device.account == subject.account.id
        else { throw CloudError(.unknownItem, "The account has no such device. See: nephos devices") }
        return device
    }
}
