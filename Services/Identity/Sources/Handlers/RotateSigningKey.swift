internal import Core
internal import ServiceKit
internal import Storage
internal import Wire

extension IdentityService {
    func rotateSigningKey(
        _ request: WireRotateSigningKey, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRotateSigningKeyReply {
        let keys = try requireRunning().runtime.accountKeys
        let id = randomID(SigningKeyID.self, prefix: "key").rawValue
        var reply = WireRotateSigningKeyReply()
        try changeSigningKeys { signingKeys in
            let (rotation, states) = try signingKeys.rotate(
                id: id, at: context.now, tokenLifetime: configuration.accessTokenLifetime, keys, in: transaction)
            try DirectoryEvents.publish(states, operation: context.id, in: transaction)
            reply.keyID = rotation.keyID
            reply.signsFrom = rotation.signsFrom.milliseconds
            reply.previousUntil = rotation.previousUntil.milliseconds
        }
        return reply
    }
}

private struct SigningKeyID: Identifier {
    let rawValue: String
    init(rawValue: String) { self.rawValue = rawValue }
}
