import Foundation
import GRDB
import NephosBus
import NephosCore

/// Writes down what this process wants of the home's leader, and reads what that has left for it.
final class HomeClient {
    private unowned let engine: DeviceEngine
    /// What is written down.
    private var declared: [Want.ID: Want] = [:]
    private var standings: [ScopeID: LeaderStanding] = [:]

    init(_ engine: DeviceEngine) { self.engine = engine }

    /// Whether the leader keeps the scope in step, as far as is known.
    func isLed(_ key: ScopeID) -> Bool { standings[key]?.isKnown ?? true }

    /// What the leader says of it, if that is so of the sign-in that is this process's too.
    func standing(of key: ScopeID) -> LeaderStanding? {
        standings[key].flatMap { $0.session == engine.session?.secrets ? $0 : nil }
    }

    /// Another process may lead, and say it.
    func forget() { standings = [:] }

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
        let kept = declared.filter { id, want in wants[id].map { $0.session == want.session } ?? false }
        let outdated = declared.filter { kept[$0.key] == nil }.values
        let new = wants.filter { kept[$0.key] == nil }.values
        guard !(outdated.isEmpty && new.isEmpty) else { return false }
        try engine.local.note { database in
            for want in outdated { try want.delete(database) }
            for want in new { try want.insert(database, onConflict: .replace) }
        }
        declared = wants
        return true
    }

    // MARK: Answers

    /// Takes in what the leader has written down.
    func read(as process: String) throws(CloudError) {
        let (now, answered, written) = try engine.local.read { database in
            (
                try LeaderStanding.fetchAll(database),
                try Want.answered(to: process, session: engine.session?.secrets, database),
                try Want.all(of: process, database)
            )
        }
        // A leader that took this process for one that has ended has removed its wants.
        if Set(written.map(\.id)) != Set(declared.keys) {
            declared = Dictionary(written.map { ($0.id, $0) }) { $1 }
            engine.home.wantsChanged()
        }
        let before = standings
        standings = Dictionary(now.map { ($0.scope, $0) }) { $1 }
        for key in Set(before.keys).union(standings.keys).sorted() where before[key] != standings[key] {
            changed(key, from: before[key])
        }
        for want in answered {
            engine.scopes.first { $0.reader == want.reader }?.endWaiter(want.waiter, want.result)
        }
    }

    private func changed(_ key: ScopeID, from before: LeaderStanding?) {
        let drivers = engine.scopes.filter { $0.key == key }
        if isLed(key) != before?.isKnown ?? true { return drivers.forEach { $0.restart() } }
        guard let standing = standing(of: key) else { return }
        engine.serverTime.adopt(
            .milliseconds(standing.clockOffset), by: engine.loop.wallClock, monotonic: engine.loop.monotonicNow)
        if let notice = standing.storage { engine.home.hear(notice) }
        for driver in drivers {
            driver.perform([.changed])
            if let before, standing.fetches > 0, standing.fetches != before.fetches { driver.perform([.fetched]) }
        }
    }
}
