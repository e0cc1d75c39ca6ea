internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// A way in for the owner while somebody guesses at the account: a code, made by
// one of its devices or the operator, lets a new device try once without
// waiting for the guesser's attempts to run off.
extension IdentityService {
    func allowSignIn(
        _ request: WireAllowSignIn, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireAllowSignInReply {
        let subject = try requireSubject(request.accountName, context, transaction)
        var reply = WireAllowSignInReply()
        reply.code = try SignInCodeStore(transaction: transaction).make(
            for: subject.account.id, by: subject.device == nil ? .operator : .device, random: randomBytes(16),
            at: context.now)
        reply.lifetimeMilliseconds = UInt64(clamping: SignInCodeStore.lifetime.milliseconds)
        try AuditJournal(transaction: transaction).record(
            .signInAllowed, of: subject.account.id, by: subject.actor, at: context.now)
        return reply
    }
}
