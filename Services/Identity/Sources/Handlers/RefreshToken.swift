internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosWire

// Exchanges a refresh token. Each is good for one exchange by the device it was
// given to; a repeat of that exchange gets the same reply, since a reply can be
// lost. Anything else with an old token is a sign of a copy and ends the device:
// its tokens, for all of its apps, are void in every service within seconds, and
// both copies are told why.
extension IdentityService {
    func refreshToken(
        _ request: WireRefreshToken, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRefreshTokenReply {
        let running = try requireRunning()
        let devices = DeviceStore(transaction: transaction)
        let families = RefreshFamilyStore(transaction: transaction)
        let enrolments = try devices.enrolments(of: context.peer.publicKey)
        if let ended = enrolments.first(where: \.state.isLockedOut) { throw ended.ending }
        guard let presented = RefreshSecret(text: request.refreshToken),
            let family = try families.family(presented.family),
            var device = try devices.device(family.device), device.state == .active
        else { throw Self.refreshTokenInvalid }
        let account = try AccountStore(transaction: transaction).account(device.account)
        guard account?.isLocked != true else { throw CloudError.accountLocked }

        let decision = RefreshRule.decide(
            family: family, boundTo: device.key,
            presented: RefreshRule.Presented(
                generation: presented.generation, hash: presented.hash,
                isGenuine: presented.isGenuine(running.refreshKeys)),
            operation: context.id, peer: context.peer.publicKey, now: context.now)
        let secret: RefreshSecret
        switch decision {
        case .notBound:
            throw CloudError(.tokenNotBound, "This sign-in belongs to another device's key. Sign in again.")
        case .expired, .foreign, .late:
            throw Self.refreshTokenInvalid
        case .reused:
            running.runtime.count("refresh_tokens_reused", by: 1)
            endCopied(device.id, running.runtime, context)
            throw CloudError.deviceCopied
        case .answerAgain:
            guard let newest = RefreshSecret(newestOf: family, keys: running.refreshKeys) else {
                throw Self.refreshTokenInvalid
            }
            secret = newest
        case .rotate:
            var family = family
            family.generation = max(family.generation, presented.generation)
            family.tokenHash = presented.hash
            secret = try rotate(family, &device, app: request.appID, context, transaction)
        }
        var reply = WireRefreshTokenReply()
        reply.accessToken = try accessToken(
            for: device, app: try requireApp(request.appID, transaction), at: context.now, transaction)
        reply.refreshToken = secret.text
        reply.services = running.addresses
        return reply
    }

    /// In a transaction of its own: that of the request is rolled back with the error that it ends with.
    private func endCopied(_ id: DeviceID, _ runtime: any ServiceRuntime, _ context: RequestContext) {
        runtime.submit { [self] transaction in
            guard let device = try DeviceStore(transaction: transaction).device(id), device.state == .active else {
                return
            }
            let ended = try end(device, as: .copied, transaction)
            try AuditJournal(transaction: transaction).record(
                .tokenReused, of: device.account, by: .device(device), at: context.now)
            try DirectoryEvents.publish([.device(ended)], operation: context.id, in: transaction)
        }
    }

    private func rotate(
        _ family: RefreshFamily, _ device: inout DeviceRecord, app: String, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> RefreshSecret {
        // Before the first write, so that a wrong app does not use up the token.
        _ = try requireApp(app, transaction)
        device.lastSeen = context.now
        try DeviceStore(transaction: transaction).save(device)
        if !device.appPassword.isEmpty {
            try AppPasswordStore(transaction: transaction).noteUse(of: device.appPassword, at: context.now)
        }
        return try newRefreshToken(for: device.id, after: family, context: context, transaction)
    }

    static let refreshTokenInvalid = CloudError(
        .notAuthenticated,
        "This sign-in has ended: the account may have been closed, or the server replaced. Ask its operator, or sign in again."
    )
}
