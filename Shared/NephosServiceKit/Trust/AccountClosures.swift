internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

/// Carries out the closing of accounts in one service: destroys their keys,
/// removes what is stored, makes sure that neither can be read from the files
/// any more, and tells identity so.
///
/// Each step is in the database, so that a crash repeats one at most.
final class AccountClosures {
    static let migrations = [
        Migration(
            name: "host-003-account-closures",
            statements: ["CREATE TABLE account_closures (account TEXT NOT NULL PRIMARY KEY)"])
    ]

    private static let insert = SQL(
        "INSERT INTO account_closures (account) VALUES (?1) ON CONFLICT (account) DO NOTHING")
    private static let select = SQL("SELECT account FROM account_closures WHERE account > ?1 ORDER BY account LIMIT 1")
    private static let delete = SQL("DELETE FROM account_closures WHERE account = ?1")

    /// Items removed in one group: a few milliseconds.
    private static let step = 500
    private static let pause: Duration = .milliseconds(10)
    private static let retryPause: Duration = .seconds(1)

    private unowned let host: ServiceHost
    private let engine: any StorageEngine
    private var isRunning = false
    /// The last account that could not be carried out in this round: the others do not wait for it.
    private var passed = ""

    init(host: ServiceHost, engine: any StorageEngine) {
        self.host = host
        self.engine = engine
    }

    /// Whether something has to be done.
    static func isPending(in transaction: any Transaction) throws -> Bool {
        try transaction.first(select, [.text("")]) { _ in true } != nil
    }

    /// Destroys the account's keys, and notes that the rest has to be done.
    func begin(_ account: AccountID, in transaction: any HandlerTransaction) throws {
        try host.ownerKeys.destroy(Owner(account), in: transaction)
        try transaction.execute(Self.insert, [.text(account.rawValue)])
    }

    /// Goes on with what has to be done, if that is anything.
    func resume() {
        guard !isRunning else { return }
        isRunning = true
        next(after: .zero)
    }

    private func next(after pause: Duration) {
        host.loop.schedule(after: pause) { [weak self] in self?.run() }
    }

    private func run() {
        guard !host.isClosed else { return }
        var account: AccountID?
        host.run { [self] transaction in
            account = try transaction.first(Self.select, [.text(passed)]) { AccountID($0.text(0)) }
            guard let account else { return false }
            // Again: a request that was under way may have made a key.
            try host.ownerKeys.destroy(Owner(account), in: transaction)
            try host.storage.remove(Owner(account), in: transaction)
            let ownTables = try host.service.removeRemains(of: account, in: transaction)
            let feed = try transaction.removeAll(of: Owner(account), limit: Self.step)
            let quarantined = try QuarantinedItems.removeAll(of: Owner(account), limit: Self.step, in: transaction)
            return ownTables || feed || quarantined
        } then: { [weak self] result in
            guard let self, !host.isClosed else { return }
            switch result {
            case .success(let more): removed(account, more: more)
            case .failure(let failure):
                host.logger.error("What a closed account left could not be removed", failure)
                pass(account)
            }
        }
    }

    private func removed(_ account: AccountID?, more: Bool) {
        guard let account else {
            if passed.isEmpty {
                isRunning = false
            } else {
                passed = ""
                next(after: Self.retryPause)
            }
            return
        }
        if more { return next(after: Self.pause) }
        do {
            // The log still has the pages as they were.
            guard try engine.cutLog() else { return next(after: Self.retryPause) }
        } catch {
            host.logger.error("The log could not be cut after an account was closed", CloudError(wrapping: error))
            return next(after: Self.retryPause)
        }
        report(account)
    }

    private func report(_ account: AccountID) {
        var request = WireReportClosure()
        request.accountID = account.rawValue
        host.call(.identity, "ReportClosure", body: Frame(encoding: request), causeID: nil) { [weak self] result in
            guard let self, !host.isClosed else { return }
            // Unknown to an identity that was restored from before the closing: there is nobody to tell.
            if case .failure(let error) = result, error.code != .unknownItem { return pass(account) }
            host.run {
                try $0.execute(Self.delete, [.text(account.rawValue)])
            } then: { [weak self] result in
                self?.next(after: result.isSuccess ? .zero : Self.retryPause)
            }
        }
    }

    /// Goes on with the next account, and comes back to this one when all others have had their turn.
    private func pass(_ account: AccountID?) {
        if let account { passed = account.rawValue }
        next(after: account == nil ? Self.retryPause : Self.pause)
    }
}
