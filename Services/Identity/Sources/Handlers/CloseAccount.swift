internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// Closes an account for good. What identity knows of the person goes with this
// transaction; the other services follow the event, destroy the account's keys
// and remove what they stored, and report it.
extension IdentityService {
    struct CheckedClosure: Sendable {
        var check: PasswordCheck
        var matched: Bool
    }

    func beginCloseAccount(
        _ request: WireCloseAccount, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> PasswordCheck {
        try beginPasswordCheck(request.accountName, request.password, context, transaction)
    }

    @Sendable static func checkForClosure(_ request: WireCloseAccount, _ check: PasswordCheck) throws -> CheckedClosure
    {
        CheckedClosure(check: check, matched: try check.present?.matches(request.password) != false)
    }

    func finishCloseAccount(
        _ request: WireCloseAccount, _ checked: CheckedClosure, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> WireCloseAccountReply {
        let account = try requireChecked(
            checked.check, matched: checked.matched, request.accountName, context, transaction
        ).account.id
        try close(account, context, transaction)
        var reply = WireCloseAccountReply()
        reply.accountID = account.rawValue
        return reply
    }

    /// Removes what identity knows of the account, and tells the others.
    func close(_ account: AccountID, _ context: RequestContext, _ transaction: any HandlerTransaction) throws {
        let devices = DeviceStore(transaction: transaction)
        var states: [DirectoryEvents.State] = [.account(account, .closed, version: .max)]
        for device in try devices.devices(of: account) {
            try RefreshFamilyStore(transaction: transaction).remove(of: device.id)
            if device.state == .active {
                var ended = device
                ended.state = .signedOut
                states.append(.device(ended))
            }
        }
        try devices.removeAll(of: account)
        try SignInCodeStore(transaction: transaction).removeAll(of: account)
        try AppPasswordStore(transaction: transaction).removeAll(of: account)
        try AccountStore(transaction: transaction).remove(account)
        try AuditJournal(transaction: transaction).removeAll(of: account)
        try AllotmentStore(transaction: transaction).removeAll(of: Owner(account))
        try ClosureStore(transaction: transaction).insert(account, at: context.now)
        try requireRunning().runtime.closeAccount(account, in: transaction)
        try DirectoryEvents.publish(states, operation: context.id, in: transaction)
    }

    func reportClosure(
        _ request: WireReportClosure, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireReportClosureReply {
        let service = try requireService(context)
        let account = AccountID(request.accountID)
        let closures = ClosureStore(transaction: transaction)
        guard try closures.closedAt(account) != nil else {
            throw CloudError(.unknownItem, "This account was not closed.")
        }
        try closures.report(account, by: service, at: context.now)
        return WireReportClosureReply()
    }

    func readClosure(
        _ request: WireReadClosure, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireReadClosureReply {
        let account = AccountID(request.accountID)
        let closures = ClosureStore(transaction: transaction)
        guard let closed = try closures.closedAt(account) else {
            throw CloudError(.unknownItem, "No account with this id was closed.")
        }
        let reports = try closures.reports(of: account)
        var reply = WireReadClosureReply()
        reply.closedAt = closed.milliseconds
        reply.services = try requireRunning().runtime.roster.services.map { entry in
            var service = WireReadClosureReply.Service()
            service.service = entry.service
            service.doneAt = reports[ServiceName(entry.service)]?.milliseconds ?? 0
            return service
        }
        return reply
    }
}
