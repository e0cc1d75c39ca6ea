import Foundation
import GRDB
import NephosBus
import NephosCore

/// Writes down what this process wants of the home's leader, and reads what that has left for it.
final class HomeClient {
    private unowned let engine: DeviceEngine
    private var declared: Set<Want.ID> = []
    private var declaredSession: String?
    /// As they were written down.
    private var rows: [ScopeID: Data] = [:]
    private var standings: [ScopeID: LeaderStanding] = [:]

    init(_ engine: DeviceEngine) { self.engine = engine }

    /// Whether the leader keeps the scope in step, as far as is known.
    func isLed(_ key: ScopeID) -> Bool { rows[key]?.isEmpty != true }

    /// What the leader says of it, if that is so of the sign-in that is this process's too.
    func standing(of key: ScopeID) -> LeaderStanding? {
        standings[key].flatMap { $0.session == engine.session?.secrets ? $0 : nil }
    }

    /// Another process may lead, and say it.
    func forget() { (rows, standings) = ([:], [:]) }

    // MARK: Wants

    /// Writes down what is wanted now.
    ///
    /// - Parameter process: Names this one.
    /// - Returns: Whether that is another thing than before.
    func declare(as process: String) throws(CloudError) -> Bool {
        let session = engine.session?.secrets
        var wants: [Want.ID: Want] = [:]
        if engine.home.role == .client {
            for driver in engine.scopes {
                // Also of what the leader cannot keep in step: it says so as long as this is wanted.
                for want in driver.wants(of: process, session: session) { wants[want.id] = want }
            }
        }
        let outdated = session == declaredSession ? declared.subtracting(wants.keys) : declared
        let new = session == declaredSession ? wants.filter { !declared.contains($0.key) } : wants
        guard !(outdated.isEmpty && new.isEmpty) else { return false }
        try engine.local.note { database in
            for id in outdated { try HomeRows(database).remove(id) }
            for want in new.values { try HomeRows(database).add(want) }
        }
        (declared, declaredSession) = (Set(wants.keys), session)
        return true
    }

    // MARK: Answers

    /// Takes in what the leader has written down.
    ///
    /// - Parameter hearNotice: Gets the last notice of the account's plan.
    func read(as process: String, hearNotice: (Data) -> Void) throws(CloudError) {
        let (now, answers) = try engine.local.read { database in
            let rows = HomeRows(database)
            return (try rows.standings(), try rows.answers(to: process, session: engine.session?.secrets))
        }
        let before = rows
        rows = now
        for key in Set(before.keys).union(now.keys).sorted() where before[key] != now[key] {
            if key == HomeProcesses.storageKey {
                if let notice = now[key] { hearNotice(notice) }
            } else {
                take(now[key], of: key, wasLed: before[key]?.isEmpty != true)
            }
        }
        for (id, result) in answers {
            engine.scopes.first { $0.reader == id.reader }?.endWaiter(id.waiter, result)
        }
    }

    private func take(_ row: Data?, of key: ScopeID, wasLed: Bool) {
        let before = standings.removeValue(forKey: key)
        let drivers = engine.scopes.filter { $0.key == key }
        if isLed(key) != wasLed { return drivers.forEach { $0.restart() } }
        guard let row, let standing = LeaderStanding(encoded: row) else { return }
        standings[key] = standing
        engine.serverTime.adopt(
            .milliseconds(standing.clockOffset), by: engine.loop.wallClock, monotonic: engine.loop.monotonicNow)
        let hasFetched = standing.fetches > 0 && standing.fetches != before?.fetches
        for driver in drivers {
            driver.perform([.changed])
            if hasFetched, before != nil { driver.perform([.fetched]) }
        }
    }
}
