internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// The account's devices, oldest first: active ones and revoked ones, and those
// that have signed out only if they are asked for.
extension IdentityService {
    private static let devicesPerPage = 256

    func listDevices(
        _ request: WireListDevices, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListDevicesReply {
        let subject = try requireSubject(request.accountName, context, transaction)
        let after = request.after.isEmpty ? nil : try requireDevice(request.after, of: subject, transaction)
        let devices = try DeviceStore(transaction: transaction)
            .page(
                of: subject.account.id, after: after, withSignedOut: request.withSignedOut,
                limit: Self.devicesPerPage + 1)
        var reply = WireListDevicesReply()
        reply.devices = try devices.prefix(Self.devicesPerPage).map { try told($0, transaction) }
        reply.more = devices.count > Self.devicesPerPage
        return reply
    }
}
