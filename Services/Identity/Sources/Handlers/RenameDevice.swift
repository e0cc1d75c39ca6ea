internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension IdentityService {
    func renameDevice(
        _ request: WireRenameDevice, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRenameDeviceReply {
        try TextRule.checkDeviceName(request.name, argument: "name")
        let subject = try requireSubject(request.accountName, context, transaction)
        var device = try requireDevice(request.deviceID, of: subject, transaction)
        let former = device.name
        if former != request.name {
            device.name = request.name
            try DeviceStore(transaction: transaction).save(device)
            try AuditJournal(transaction: transaction).record(
                .deviceRenamed, of: device.account, by: subject.actor, at: context.now,
                details: ["device": device.name, "device_id": device.id.rawValue, "former_name": former])
        }
        var reply = WireRenameDeviceReply()
        reply.device = try told(device, transaction)
        return reply
    }
}
