internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// Passwords for programs that cannot keep the account's own: each is shown once, may do what its scope says, and is
// revoked alone.
extension IdentityService {
    func createAppPassword(
        _ request: WireCreateAppPassword, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireCreateAppPasswordReply {
        let subject = try requireSubject(request.accountName, context, transaction)
        try TextRule.checkDeviceName(request.name, argument: "name")
        guard let scope = AppPassword.Scope(request.scope) else {
            throw CloudError(.invalidArguments, "There is the scope webdav.", details: ["argument": "scope"])
        }
        guard let key = try requireRunning().refreshKeys.first else {
            throw CloudError(.internalError, "There is no key to derive an app password with.")
        }
        let secret = AppPassword.Secret(madeBy: context.id, key: key)
        let store = AppPasswordStore(transaction: transaction)
        var password = AppPassword(
            id: secret.id, account: subject.account.id, name: request.name, scope: scope, hash: secret.hash,
            created: context.now)
        if let made = try store.password(secret.id) {
            // Request ids are not secret, so another account's id must not give its password.
            guard made.account == subject.account.id else {
                throw CloudError(.invalidArguments, "The request's id is another's.", details: ["argument": "id"])
            }
            password = made
        } else {
            let others = try store.passwords(of: subject.account.id)
            guard !others.contains(where: { $0.name == request.name }) else {
                throw CloudError(.alreadyExists, "The account has an app password of this name. Choose another name.")
            }
            guard others.count < AppPassword.ofAccountMax else {
                throw CloudError(
                    .limitExceeded,
                    "The account has as many app passwords as it may. Revoke one: nephos account app-password revoke",
                    details: ["maximum": "\(AppPassword.ofAccountMax)"])
            }
            try store.add(password)
            try AuditJournal(transaction: transaction).record(
                .appPasswordCreated, of: subject.account.id, by: subject.actor, at: context.now,
                details: ["name": request.name])
        }
        var reply = WireCreateAppPasswordReply()
        reply.appPassword = WireAppPassword(password)
        reply.secret = secret.text
        return reply
    }

    func listAppPasswords(
        _ request: WireListAppPasswords, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListAppPasswordsReply {
        let account = try requireSubject(request.accountName, context, transaction).account.id
        var reply = WireListAppPasswordsReply()
        reply.appPasswords = try AppPasswordStore(transaction: transaction).passwords(of: account)
            .map(WireAppPassword.init)
        return reply
    }

    func revokeAppPassword(
        _ request: WireRevokeAppPassword, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireRevokeAppPasswordReply {
        let subject = try requireSubject(request.accountName, context, transaction)
        let store = AppPasswordStore(transaction: transaction)
        guard let password = try store.password(request.passwordID), password.account == subject.account.id else {
            throw CloudError(
                .unknownItem, "The account has no such app password. See: nephos account app-password list")
        }
        try revoke(password, by: subject, context, transaction)
        return WireRevokeAppPasswordReply()
    }

    /// Removes an app password, and ends its devices.
    func revoke(
        _ password: AppPassword, by subject: Subject, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws {
        try AppPasswordStore(transaction: transaction).remove(password.id)
        let devices = try DeviceStore(transaction: transaction).devices(of: password.account)
        let ended = try devices.filter { $0.appPassword == password.id && $0.state == .active }.map { device in
            var device = device
            (device.ended, device.endedBy) = (context.now, subject.device?.name ?? "")
            return DirectoryEvents.State.device(try end(device, as: .revoked, transaction))
        }
        try AuditJournal(transaction: transaction).record(
            .appPasswordRevoked, of: password.account, by: subject.actor, at: context.now,
            details: ["name": password.name])
        try DirectoryEvents.publish(ended, operation: context.id, by: subject.device?.id, in: transaction)
    }
}
