internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension IdentityService {
    func rotateSigningKey(
        _ request: WireRotateSigningKey, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRotateSigningKeyReply {
        let keys = try requireRunning().runtime.ownerKeys
        let id = randomID(SigningKeyID.self, prefix: "key").rawValue
        let (rotation, states) = try signingKeys(transaction).rotate(
            id: id, at: context.now, tokenLifetime: configuration.accessTokenLifetime, keys, in: transaction)
        forgetSigningKeys(transaction)
        try DirectoryEvents.publish(states, operation: context.id, in: transaction)
        var reply = WireRotateSigningKeyReply()
        reply.keyID = rotation.keyID
        reply.signsFrom = rotation.signsFrom.milliseconds
        reply.previousUntil = rotation.previousUntil.milliseconds
        return reply
    }
}

private struct SigningKeyID: Identifier {
    let rawValue: String
    init(rawValue: String) { self.rawValue = rawValue }
}
