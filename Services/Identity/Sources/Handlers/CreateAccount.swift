internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension IdentityService {
    /// What the password is hashed with.
    struct NewPassword: Sendable {
        var salt: [UInt8]
        var cost: ScryptCost
    }

    func beginCreateAccount(
        _ request: WireCreateAccount, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> NewPassword {
        try PasswordRule.check(request.password)
        _ = try requireFreeName(request.accountName, transaction)
        _ = try requirePlan(request.planID, transaction)
        return NewPassword(salt: randomBytes(PasswordHash.saltByteCount), cost: configuration.scryptCost)
    }

    @Sendable static func hashPassword(_ request: WireCreateAccount, _ new: NewPassword) throws -> PasswordHash {
        try PasswordHash(of: request.password, salt: new.salt, cost: new.cost)
    }

    func finishCreateAccount(
        _ request: WireCreateAccount, _ password: PasswordHash, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> WireCreateAccountReply {
        let name = try requireFreeName(request.accountName, transaction)
        let account = AccountRecord(
            id: randomID(AccountID.self, prefix: "acct"), name: name, password: password, created: context.now,
            plan: try requirePlan(request.planID, transaction).id)
        try AccountStore(transaction: transaction).save(account)
        try AuditJournal(transaction: transaction).record(
            .accountCreated, of: account.id, by: .administrator, at: context.now)
        var reply = WireCreateAccountReply()
        reply.accountID = account.id.rawValue
        return reply
    }

    private func requireFreeName(_ name: String, _ transaction: any HandlerTransaction) throws -> String {
        let name = try AccountNameRule.canonical(name)
        guard try AccountStore(transaction: transaction).account(named: name) == nil else {
            throw CloudError(.alreadyExists, "An account with this name exists.")
        }
        return name
    }
}
