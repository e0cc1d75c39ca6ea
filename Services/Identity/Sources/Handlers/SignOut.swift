internal import NephosServiceKit
internal import NephosWire

// Ends the calling device. Its key may sign in again, unlike that of a revoked one.
extension IdentityService {
    func signOut(
        _ request: WireSignOut, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireSignOutReply {
        let device = try requireDevice(context, transaction).device
        let ended = try end(device, as: .signedOut, transaction)
        try AuditJournal(transaction: transaction).record(
            .signOut, of: device.account, by: .device(device), at: context.now)
        try DirectoryEvents.publish([.device(ended)], operation: context.id, by: device.id, in: transaction)
        return WireSignOutReply()
    }
}
