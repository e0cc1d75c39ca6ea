internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// Changes an account's password. A device has to know the present one, since
// whoever finds an unlocked device should not get the account with it.
extension IdentityService {
    /// A password that is to be verified off the loop, and what it was when it was read.
    struct PasswordCheck: Sendable {
        var account: AccountID
        /// Nil: the operator need not know it.
        var present: PasswordHash?
        var new: NewPassword
        var attempt: AttemptStore.Subject?
        /// Held until the password is checked.
        var place: PasswordGate.Place?
    }

    struct CheckedPassword: Sendable {
        var check: PasswordCheck
        /// Nil: what was given is not the present one.
        var new: PasswordHash?
    }

    /// To derive a key from a password takes a tenth of a second, as long as reading so many rows.
    static let passwordRows = 1600

    func beginChangePassword(
        _ request: WireChangePassword, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> PasswordCheck {
        try PasswordRule.check(request.newPassword)
        let check = try beginPasswordCheck(request.accountName, request.currentPassword, context, transaction)
        // For the new one; the check has charged for the present one.
        transaction.charge(rows: Self.passwordRows)
        return check
    }

    /// Counts the attempt; guessing here is slowed down as at the sign-in.
    func beginPasswordCheck(
        _ accountName: String, _ password: String, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> PasswordCheck {
        let subject = try requireSubject(accountName, context, transaction)
        var check = PasswordCheck(
            account: subject.account.id, present: nil,
            new: NewPassword(salt: randomBytes(PasswordHash.saltByteCount), cost: configuration.scryptCost))
        guard subject.device != nil else { return check }
        guard password.utf8.count <= PasswordRule.lengthMax else { throw Self.wrongCredentials }
        let attempts = AttemptStore(transaction: transaction)
        let attempt = AttemptStore.Subject.key(context.peer.publicKey)
        let count = try attempts.next(attempt, at: context.now)
        check.place = try gate.enter(.known(subject.account.id))
        transaction.charge(rows: Self.passwordRows)
        try attempts.save(count, of: attempt)
        check.attempt = attempt
        check.present = subject.account.password
        return check
    }

    @Sendable static func checkAndHash(_ request: WireChangePassword, _ check: PasswordCheck) throws -> CheckedPassword
    {
        guard try check.present?.matches(request.currentPassword) != false else {
            return CheckedPassword(check: check, new: nil)
        }
        let new = try PasswordHash(of: request.newPassword, salt: check.new.salt, cost: check.new.cost)
        return CheckedPassword(check: check, new: new)
    }

    func finishChangePassword(
        _ request: WireChangePassword, _ checked: CheckedPassword, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> WireChangePasswordReply {
        let subject = try requireChecked(
            checked.check, matched: checked.new != nil, request.accountName, context, transaction)
        guard let password = checked.new else { throw Self.wrongPassword }
        var account = subject.account
        account.password = password
        try AccountStore(transaction: transaction).save(account)

        var ended: [DeviceRecord] = []
        if request.signOutOthers {
            let devices = try DeviceStore(transaction: transaction).devices(of: account.id)
            for device in devices where device.state == .active && device.id != subject.device?.id {
                ended.append(try end(device, as: .signedOut, transaction))
            }
            try AppPasswordStore(transaction: transaction).removeAll(of: account.id)
        }
        try AuditJournal(transaction: transaction).record(
            .passwordChanged, of: account.id, by: subject.actor, at: context.now,
            details: request.signOutOthers ? ["signed_out": "\(ended.count)"] : [:])
        try DirectoryEvents.publish(
            ended.map { .device($0) }, operation: context.id, by: subject.device?.id, in: transaction)
        var reply = WireChangePasswordReply()
        reply.signedOut = UInt32(clamping: ended.count)
        return reply
    }

    /// The subject as it is now, if the password that was checked is still its own.
    func requireChecked(
        _ check: PasswordCheck, matched: Bool, _ accountName: String, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> Subject {
        let subject = try requireSubject(accountName, context, transaction)
        guard matched, subject.account.id == check.account,
            check.present.map({ $0 == subject.account.password }) != false
        else {
            if let device = subject.device {
                try recordApart(.passwordRefused, of: device.account, by: .device(device), context)
            }
            throw Self.wrongPassword
        }
        if let attempt = check.attempt { try AttemptStore(transaction: transaction).forget(attempt) }
        return subject
    }

    static let wrongPassword = CloudError(.wrongCredentials, "The present password is wrong.")
}
