internal import Crypto
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// Lets in a device without an account, by what its app ships: to read and follow one container's public database.
//
// Keys cost nothing, so whoever asks is counted by where they come from: here, and then in every service, where an
// address has the budget that an account has, and a key that of a device.
extension IdentityService {
    func issuePublicToken(
        _ request: WireIssuePublicToken, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireIssuePublicTokenReply {
        let running = try requireRunning()
        let address = AddressBudget.place(of: running.runtime.address(of: context.peer))
        try publicTokens.take(address, now: running.runtime.loop.monotonicNow)
        guard let secret = AppToken.Secret(text: request.secret),
            let token = try AppTokenStore(transaction: transaction).token(secret.id),
            ConstantTime.equal(token.hash, secret.hash)
        else {
            throw CloudError(
                .notAuthenticated, "The app's token is wrong, or was revoked. Update the app.",
                details: ["reason": "app token revoked"])
        }
        guard let app = try AppStore(transaction: transaction).app(token.app),
            app.entitlements.include(token.container, of: .records),
            try ContainerStore(transaction: transaction).definition(of: token.container)?.owner != nil
        else {
            throw CloudError(
                .missingEntitlement, "The app may not use the container's records any more. Update the app.")
        }
        var narrow = app
        narrow.entitlements = Entitlements(
            version: app.entitlements.version, capabilities: .records, store: nil, containers: [token.container])
        let now = context.now
        let expires = now.advanced(by: configuration.accessTokenLifetime)
        var reply = WireIssuePublicTokenReply()
        reply.accessToken.token = try signingKeys(transaction).signer(at: now).sign(
            AccessClaims(
                deployment: running.runtime.roster.deployment, account: AccountID("public_" + hash(address)),
                device: DeviceID("public_" + hash(context.peer.publicKey.z85)), app: app.id,
                entitlements: narrow.entitlements, deviceKey: context.peer.publicKey, issued: now, expires: expires,
                tokenID: Base64URL.encode(randomBytes(16)), appToken: token.id))
        reply.accessToken.lifetimeMilliseconds = UInt64(clamping: expires.since(now).milliseconds)
        reply.accessToken.app = try told(narrow, transaction)
        reply.services = running.addresses
        return reply
    }

    /// Names an address or a key, for whoever has no key of ours alike.
    private func hash(_ text: String) throws -> String {
        guard let key = try requireRunning().refreshKeys.last else {
            throw CloudError(.internalError, "There is no key to name an address with.")
        }
        let code = HMAC<SHA256>.authenticationCode(for: Array("public/".utf8) + Array(text.utf8), using: key)
        return AppToken.Secret.hexadecimal([UInt8](code).prefix(10))
    }
}
