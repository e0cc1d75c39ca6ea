internal import NephosServiceKit
internal import NephosWire

extension IdentityService {
    func getDirectory(
        _ request: WireGetDirectory, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireGetDirectoryReply {
        var reply = WireGetDirectoryReply()
        reply.services = try requireRunning().addresses
        return reply
    }
}
