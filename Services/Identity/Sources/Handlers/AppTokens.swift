internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// What apps ship for devices without an account. The operator makes and revokes it.
extension IdentityService {
    func createAppToken(
        _ request: WireCreateAppToken, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireCreateAppTokenReply {
        let app = try requireApp(request.appID, transaction)
        let named = request.containerID.isEmpty ? app.entitlements.containers.first : ItemName(request.containerID)
        guard let container = named, app.entitlements.include(container, of: .records) else {
            throw Self.noSuchContainer
        }
        guard let key = try requireRunning().refreshKeys.first else {
            throw CloudError(.internalError, "There is no key to derive an app's token with.")
        }
        let secret = AppToken.Secret(madeBy: context.id, key: key)
        let store = AppTokenStore(transaction: transaction)
        var token = AppToken(
            id: secret.id, app: app.id, container: container, hash: secret.hash, created: context.now)
        if let made = try store.token(secret.id) {
            token = made
        } else {
            guard try store.tokens(of: app.id).count < AppToken.ofAppMax else {
                throw CloudError(
                    .limitExceeded, "The app has as many tokens as it may. Revoke one: nephos app token revoke",
                    details: ["maximum": "\(AppToken.ofAppMax)"])
            }
            try store.add(token)
        }
        var reply = WireCreateAppTokenReply()
        reply.token = WireAppToken(token)
        reply.secret = secret.text
        return reply
    }

    private static let noSuchContainer = CloudError(
        .missingEntitlement, "The app lists no such container, or may not use records. See: nephos app list")

    func listAppTokens(
        _ request: WireListAppTokens, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListAppTokensReply {
        var reply = WireListAppTokensReply()
        reply.tokens = try AppTokenStore(transaction: transaction).tokens(of: requireApp(request.appID, transaction).id)
            .map(WireAppToken.init)
        return reply
    }

    func revokeAppToken(
        _ request: WireRevokeAppToken, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRevokeAppTokenReply {
        guard try AppTokenStore(transaction: transaction).token(request.tokenID) != nil else {
            throw CloudError(.unknownItem, "There is no such token of an app. See: nephos app token list")
        }
        try revokeAppToken(request.tokenID, context, transaction)
        return WireRevokeAppTokenReply()
    }

    func revokeAppToken(_ id: String, _ context: RequestContext, _ transaction: any HandlerTransaction) throws {
        try AppTokenStore(transaction: transaction).remove(id)
        try DirectoryEvents.publish([.appTokenRevoked(id)], operation: context.id, in: transaction)
    }
}

extension WireAppToken {
    init(_ token: AppToken) {
        self.init()
        tokenID = token.id
        appID = token.app.rawValue
        containerID = token.container.rawValue
        createdAt = token.created.milliseconds
    }
}
