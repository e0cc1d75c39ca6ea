internal import Foundation
internal import GRDB
internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosWire

/// Ends uploads that are over here, and which the service would keep for a day, with the room that is reserved for them.
/// On the loop only.
///
/// What is to be ended is a row of the home from the transaction on that has given the upload up, until the service has
/// answered: whatever ends the process between the two, the next one asks again. To ask twice changes nothing.
///
/// Each service and app has a turn of its own, so that one which does not answer keeps no other waiting; and in a turn
/// what has failed is behind what has not been asked about yet.
final class UploadClosings {
    private struct Place: Hashable, Comparable {
        var service: ServiceName
        var app: AppID

        static func < (one: Place, other: Place) -> Bool {
            (one.service.rawValue, one.app) < (other.service.rawValue, other.app)
        }
    }

    private final class Turn {
        /// Requests that are not answered.
        var running = 0
        /// Rows that the service has answered, which are removed together: each transaction flushes the disk.
        var answered: [Int64] = []
        /// Those of which it has not.
        var unanswered: [Int64] = []
        var failure: CloudError?
        var failures = 0
        /// The last row that was asked about.
        var after: Int64 = 0
        var pause: (any LoopTimer)?
    }

    /// Requests of a turn at a time.
    private static let askedMax = 8
    /// The service has ended by itself what is older. It is asked about it once all the same: the clock may have been wrong
    /// when it was noted.
    private static let keptFor: Duration = .seconds(2 * 86_400)

    private unowned let engine: DeviceEngine
    private var turns: [Place: Turn] = [:]

    init(_ engine: DeviceEngine) { self.engine = engine }

    /// Looks for what is to be ended once whatever is under way on the loop is over.
    func beginSoon() {
        engine.loop.schedule(after: .zero) { [weak self] in self?.begin() }
    }

    /// Asks for all that nobody asks for yet.
    func begin() {
        guard !engine.stopped, !engine.options.isOffline, let account else { return }
        do throws(CloudError) {
            let places = try engine.local.read { try Self.places(of: account, $0) }
            for place in places.sorted() where turns[place] == nil {
                let turn = Turn()
                turns[place] = turn
                ask(place, turn, account)
            }
        } catch { engine.logger.error("uploads that are over could not be read", error) }
    }

    /// Whose uploads can be ended.
    private var account: AccountID? {
        engine.session.flatMap { $0.signedIn && !$0.isPublic ? $0.accountID : nil }
    }

    /// What failed may succeed by now, and another process may have left something.
    func hasten() {
        for (place, turn) in turns where turn.pause != nil {
            turn.pause?.cancel()
            turns[place] = nil
        }
        begin()
    }

    func stop() {
        for turn in turns.values { turn.pause?.cancel() }
        turns = [:]
    }

    private func ask(_ place: Place, _ turn: Turn, _ account: AccountID) {
        // Whoever is signed in now has what is to be ended of their own.
        guard self.account == account else {
            turns[place] = nil
            return
        }
        let rows: [(position: Int64, request: WireCloseTransfer)]
        do throws(CloudError) {
            rows = try engine.local.read { database in
                let next = try Self.rows(of: account, place, after: turn.after, database)
                return next.isEmpty ? try Self.rows(of: account, place, after: 0, database) : next
            }
        } catch {
            engine.logger.error("uploads that are over could not be read", error)
            return pause(place, turn, account, for: Backoff.pauseMax)
        }
        guard let last = rows.last else {
            turns[place] = nil
            return
        }
        (turn.after, turn.running) = (last.position, rows.count)
        for row in rows {
            engine.call(place.service, row.request, as: WireCloseTransferReply.self, app: place.app) {
                [weak self, weak turn] result, _ in
                guard let self, let turn, turns[place] === turn else { return }
                turn.running -= 1
                if let error = Self.failure(of: result) {
                    turn.failure = error
                    turn.unanswered.append(row.position)
                } else {
                    turn.answered.append(row.position)
                }
                if turn.running == 0 { end(place, turn, account) }
            }
        }
    }

    /// Nil: there is nothing to ask for any more, whether the upload is closed or the service will never close it.
    private static func failure(of result: Result<WireCloseTransferReply, CloudError>) -> CloudError? {
        guard case .failure(let error) = result,
            PushRules.outcome(of: error, pause: .zero, isOutdated: false) != .refuse
        else { return nil }
        return error
    }

    /// All of the turn's requests are answered, or have failed.
    private func end(_ place: Place, _ turn: Turn, _ account: AccountID) {
        let (answered, unanswered, failure) = (turn.answered, turn.unanswered, turn.failure)
        (turn.answered, turn.unanswered, turn.failure) = ([], [], nil)
        do throws(CloudError) {
            let bound = engine.now.advanced(by: .zero - Self.keptFor)
            try engine.local.write { try Self.remove(answered, andIfBefore: bound, unanswered, $0) }
        } catch {
            engine.logger.error("uploads that are closed could not be noted", error)
            return pause(place, turn, account, for: Backoff.pauseMax)
        }
        if let failure {
            turn.failures += 1
            let wait = failure.retryAfter ?? engine.backoff(attempts: turn.failures)
            return pause(place, turn, account, for: min(wait, Backoff.askedPauseMax))
        }
        turn.failures = 0
        ask(place, turn, account)
    }

    private func pause(_ place: Place, _ turn: Turn, _ account: AccountID, for wait: Duration) {
        turn.pause = engine.loop.schedule(after: wait) { [weak self, weak turn] in
            guard let self, let turn, turns[place] === turn else { return }
            turn.pause = nil
            ask(place, turn, account)
        }
    }

    // MARK: Rows

    /// Keeps, with whatever else the transaction does, that an upload is over.
    static func note(_ transfer: Data, of place: ContentPlace, in rows: ScopeTransaction, now: Timestamp) throws {
        guard !transfer.isEmpty, rows.scope.account != nil else { return }
        try rows.cached(
            "INSERT OR IGNORE INTO upload_closings (account, service, app, transfer, container, noted) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
        ).execute(arguments: [
            rows.account, place.service.rawValue, place.app.rawValue, transfer, place.container,
            Int64(clamping: now.milliseconds),
        ])
    }

    private static func places(of account: AccountID, _ database: Database) throws -> [Place] {
        try Row.fetchAll(
            database.cachedStatement(sql: "SELECT DISTINCT service, app FROM upload_closings WHERE account = ?1"),
            arguments: [account.rawValue]
        ).map { Place(service: ServiceName($0["service"] as String), app: AppID($0["app"] as String)) }
    }

    private static func rows(
        of account: AccountID, _ place: Place, after position: Int64, _ database: Database
    ) throws -> [(position: Int64, request: WireCloseTransfer)] {
        try Row.fetchAll(
            database.cachedStatement(
                sql: "SELECT position, transfer, container FROM upload_closings WHERE account = ?1 AND service = ?2 "
                    + "AND app = ?3 AND position > ?4 ORDER BY position LIMIT \(askedMax)"),
            arguments: [account.rawValue, place.service.rawValue, place.app.rawValue, position]
        ).map { row in
            var request = WireCloseTransfer()
            request.transferID = row["transfer"]
            request.container = row["container"]
            return (row["position"], request)
        }
    }

    private static func remove(
        _ answered: [Int64], andIfBefore bound: Timestamp, _ unanswered: [Int64], _ database: Database
    ) throws {
        let statement = try database.cachedStatement(sql: "DELETE FROM upload_closings WHERE position = ?1")
        for position in answered { try statement.execute(arguments: [position]) }
        let ofOld = try database.cachedStatement(sql: "DELETE FROM upload_closings WHERE position = ?1 AND noted < ?2")
        for position in unanswered {
            try ofOld.execute(arguments: [position, Int64(clamping: bound.milliseconds)])
        }
    }
}

extension ScopeModel {
    /// An upload is over, in this transaction: what it still holds is given back as soon as the service can be asked.
    func closeSoon(_ transfer: Data, of container: String, in rows: ScopeTransaction) throws {
        guard !transfer.isEmpty else { return }
        let place = ContentPlace(service: service, app: app, container: container)
        try UploadClosings.note(transfer, of: place, in: rows, now: engine.now)
        engine.uploadClosings.beginSoon()
    }

    /// The same in a transaction of its own.
    func closeSoon(_ transfer: Data, of container: String) {
        guard let driver else { return }
        do throws(CloudError) {
            try driver.write { try closeSoon(transfer, of: container, in: $0) }
        } catch { engine.logger.error("an upload that is over could not be noted", error) }
    }
}
