internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// Signs a device in. The password is verified off the loop, between two
// transactions. An unknown account goes the same way as a known one and takes
// as long, so neither the answer nor its time tells which names exist.
//
// Whoever guesses at an account, from however many keys, shares one count of
// attempts with all other strangers. Its own devices have each their own, and a
// new one gets past the strangers with a code from a device or the operator:
// those who come with a device's code share a count of theirs, and so do those
// with the operator's.
extension IdentityService {
    /// What the verification needs, and what the second transaction needs of the first.
    struct SignInAttempt: Sendable {
        /// Nil: no such account.
        var account: AccountRecord?
        /// The app password that was given; nil: none of this account, so its own is verified.
        var appPassword: AppPassword?
        var password: PasswordHash
        /// What new hashes are made with.
        var cost: ScryptCost
        var salt: [UInt8]
        /// Whom the attempt was counted against; nil: it was not counted.
        var subject: AttemptStore.Subject?
        /// Held until the password is checked.
        var place: PasswordGate.Place?
    }

    struct VerifiedAttempt: Sendable {
        var attempt: SignInAttempt
        var matched: Bool
        /// The password's hash at the present cost, where the stored one was made at another.
        var renewed: PasswordHash?
    }

    func beginSignIn(
        _ request: WireSignIn, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> SignInAttempt {
        let name = try AccountNameRule.canonical(request.accountName)
        try TextRule.checkDeviceName(request.deviceName, argument: "device_name")
        try TextRule.check(request.deviceModel, argument: "device_model")
        try TextRule.check(request.devicePlatform, argument: "device_platform")
        guard request.password.utf8.count <= PasswordRule.lengthMax else { throw Self.wrongCredentials }

        let account = try AccountStore(transaction: transaction).account(named: name)
        let enrolments = try DeviceStore(transaction: transaction).enrolments(of: context.peer.publicKey)
        let isKnown = enrolments.contains { $0.account == account?.id }
        if let ended = enrolments.first(where: \.state.isLockedOut) {
            try refuseKey(ended, account, request, context)
            throw ended.ending
        }
        var attempt = SignInAttempt(
            account: account, password: account?.password ?? .unmatchable(configuration.scryptCost),
            cost: configuration.scryptCost, salt: randomBytes(PasswordHash.saltByteCount))
        // An app password cannot be guessed, so a right one need not wait for the attempts of others.
        let appPasswords = AppPasswordStore(transaction: transaction)
        attempt.appPassword = try appPasswords.password(typed: request.password, of: account?.id ?? AccountID(""))
        if attempt.appPassword != nil { return attempt }

        let codes = SignInCodeStore(transaction: transaction)
        // The same questions for a name that is nobody's.
        let id = account?.id ?? AccountID("")
        let maker = isKnown ? nil : try codes.maker(of: request.code, for: id, at: context.now)
        let attempts = AttemptStore(transaction: transaction)
        let subject: AttemptStore.Subject =
            if let maker { .code(id, maker) } else { isKnown ? .key(context.peer.publicKey) : .name(name) }
        let count = try attempts.next(subject, at: context.now)
        attempt.place = try gate.enter(isKnown || maker != nil ? .known(id) : .stranger(context.peer.publicKey))
        attempt.subject = subject
        try attempts.save(count, of: subject)
        if let maker { try codes.remove(of: id, by: maker) }
        return attempt
    }

    /// Notes that a key that was locked out tried again; counted as an attempt, or it could fill the journal.
    private func refuseKey(
        _ ended: DeviceRecord, _ account: AccountRecord?, _ request: WireSignIn, _ context: RequestContext
    ) throws {
        let subject = AttemptStore.Subject.key(context.peer.publicKey)
        try requireRunning().runtime.submit { [self] transaction in
            let attempts = AttemptStore(transaction: transaction)
            guard let count = try? attempts.next(subject, at: context.now) else { return }
            try attempts.save(count, of: subject)
            try refused(account, request, context, "device revoked")
        }
    }

    private func refused(
        _ account: AccountRecord?, _ request: WireSignIn, _ context: RequestContext, _ reason: String
    ) throws {
        guard let account = account?.id else { return }
        try recordApart(
            .signInRefused, of: account, by: .stranger(request.deviceName), context, details: ["reason": reason])
    }

    @Sendable static func verifyPassword(_ request: WireSignIn, _ attempt: SignInAttempt) throws -> VerifiedAttempt {
        guard attempt.appPassword == nil else { return VerifiedAttempt(attempt: attempt, matched: true) }
        var verified = VerifiedAttempt(attempt: attempt, matched: try attempt.password.matches(request.password))
        if verified.matched, attempt.password.cost != attempt.cost {
            verified.renewed = try PasswordHash(of: request.password, salt: attempt.salt, cost: attempt.cost)
        }
        return verified
    }

    func finishSignIn(
        _ request: WireSignIn, _ verified: VerifiedAttempt, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> WireSignInReply {
        let accounts = AccountStore(transaction: transaction)
        guard verified.matched, let id = verified.attempt.account?.id,
            // As it is now: the password may have been changed meanwhile.
            var account = try accounts.account(id), account.password == verified.attempt.password,
            try isStillGood(verified.attempt.appPassword, transaction)
        else {
            try refused(verified.attempt.account, request, context, "wrong password")
            throw Self.wrongCredentials
        }
        guard !account.isLocked else {
            try refused(account, request, context, "account locked")
            throw CloudError.accountLocked
        }

        let devices = DeviceStore(transaction: transaction)
        let app = try requireApp(request.appID, transaction)
        let enrolments = try devices.enrolments(of: context.peer.publicKey)
        guard
            case .enrol(let known, var ending) = EnrolmentRule.decide(
                enrolments: enrolments, account: account.id, appPassword: verified.attempt.appPassword?.id ?? "")
        else { throw enrolments.first(where: \.state.isLockedOut)?.ending ?? Self.deviceRevoked }

        if known == nil {
            try EnrolmentRule.checkPace(
                recent: devices.count(of: account.id, enrolledWithin: .seconds(3600), before: context.now))
            let active = try devices.active(of: account.id)
            if let browser = try EnrolmentRule.makeRoom(among: active, at: context.now) { ending.append(browser) }
        }

        // Decided; from here on it writes.
        if let subject = verified.attempt.subject { try AttemptStore(transaction: transaction).forget(subject) }
        if let password = verified.attempt.appPassword {
            try AppPasswordStore(transaction: transaction).noteUse(of: password.id, at: context.now)
        }
        if let renewed = verified.renewed {
            account.password = renewed
            try accounts.save(account)
        }
        // Of a device that is new nobody has to hear: its token says all there is to know.
        let states = try ending.map { DirectoryEvents.State.device(try end($0, as: .signedOut, transaction)) }
        let device = DeviceRecord(
            id: known?.id ?? randomDeviceID(of: account.id), account: account.id,
            key: context.peer.publicKey, name: request.deviceName, model: request.deviceModel,
            platform: request.devicePlatform,
            policyClass: request.policyClass == .smallDevice ? .smallDevice : .computer,
            enrolled: known?.enrolled ?? context.now, lastSeen: context.now,
            state: .active, appPassword: verified.attempt.appPassword?.id ?? "")
        try devices.save(device)
        if known == nil {
            let forgotten = try devices.forgetSignedOut(
                of: account.id, but: EnrolmentRule.signedOutMax,
                seenBefore: requireRunning().runtime.purgeTimeOfWallStamps
                    .advanced(by: .zero - EnrolmentRule.signedOutRetention))
            try DirectoryEvents.forget(forgotten, in: transaction)
        }
        try AuditJournal(transaction: transaction).record(
            .signIn, of: account.id, by: .device(device), at: context.now,
            details: known == nil ? ["device": "new"] : [:])
        try DirectoryEvents.publish(states, operation: context.id, by: device.id, in: transaction)

        var reply = WireSignInReply()
        reply.accountID = account.id.rawValue
        reply.accountName = account.name
        reply.device = try told(device, transaction)
        reply.accessToken = try accessToken(for: device, app: app, at: context.now, transaction)
        reply.refreshToken = try signInRefreshToken(for: device, context, transaction).text
        reply.services = try requireRunning().addresses
        reply.identityToken = IdentityToken.token(
            deployment: try requireRunning().runtime.roster.deployment, account: account.id)
        return reply
    }

    private func isStillGood(_ password: AppPassword?, _ transaction: any HandlerTransaction) throws -> Bool {
        guard let password else { return true }
        return try AppPasswordStore(transaction: transaction).password(password.id) != nil
    }

    /// A new family; for a repeat of the sign-in that began the present one, its token.
    private func signInRefreshToken(
        for device: DeviceRecord, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> RefreshSecret {
        if let family = try RefreshFamilyStore(transaction: transaction).family(of: device.id),
            family.issuedBy == context.id,
            let secret = RefreshSecret(newestOf: family, keys: try requireRunning().refreshKeys)
        {
            return secret
        }
        return try newRefreshToken(for: device.id, after: nil, context: context, transaction)
    }

    static let wrongCredentials = CloudError(.wrongCredentials, "The account name or the password is wrong.")
}
