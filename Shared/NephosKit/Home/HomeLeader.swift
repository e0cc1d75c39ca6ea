import Foundation
import GRDB
import Logging
import NephosBus
import NephosCore

/// Keeps in step what the other processes of the home have open, and answers those that wait in them.
final class HomeLeader {
    /// Scopes of this process, with those that are kept in step for others.
    private static let scopesMax = 1000
    /// Those that wait at the same time, of all processes.
    private static let waitersMax = 10_000

    private unowned let engine: DeviceEngine
    /// What this process has open itself.
    private var own: Set<ScopeID> = []
    /// What others want to be kept in step, whether it can be or not.
    private var lent: Set<ScopeID> = []
    private var isLending = false
    private var serving: [Want.ID: (driver: ScopeDriver, waiter: Int?)] = [:]
    private var fetches: [ScopeID: Int] = [:]
    /// Where counting begins: another leader's count must not look like this one's.
    private let firstFetch = Int.random(in: 1..<1 << 32)

    // To be written down
    private var answers: [Want.ID: (session: String?, error: CloudError?)] = [:]
    private var changed: Set<ScopeID> = []
    /// Processes that have ended.
    private var gone: Set<String> = []
    /// What is written down.
    private var standings: [ScopeID: LeaderStanding] = [:]
    /// What a leader before this one has written down is still there.
    private var hasOld = false

    init(_ engine: DeviceEngine) { self.engine = engine }

    /// The app, or whoever tests it, has opened the scope in this process.
    func opened(_ key: ScopeID) { if !isLending { own.insert(key) } }

    /// Where the scope stands may have changed.
    func changed(_ driver: ScopeDriver) {
        guard lent.contains(driver.key) else { return }
        changed.insert(driver.key)
        engine.home.plan()
    }

    /// A fetch has ended.
    func fetched(_ driver: ScopeDriver) {
        fetches[driver.key, default: firstFetch] += 1
        changed(driver)
    }

    /// This process's app opens the scope itself: what was kept in step for others gives way, and they are served anew.
    func giveUp(_ key: ScopeID) {
        guard !own.contains(key), lent.remove(key) != nil else { return }
        for (id, served) in serving where served.driver.key == key { stopServing(id) }
        engine.close(key)
        let home = engine.home
        engine.loop.schedule(after: .zero) { [weak home] in home?.read() }
    }

    /// This process leads no more, or ends.
    func stop() {
        for id in serving.keys { stopServing(id) }
        for key in lent.subtracting(own).sorted() where !engine.stopped { engine.close(key) }
        (lent, answers, changed, gone, standings, hasOld) = ([], [:], [], [], [:], false)
    }

    // MARK: Serving

    /// Does what is wanted, and stops what is not any more.
    ///
    /// - Parameter way: Tells which processes live: those that do had a socket before they wanted anything.
    func serve(_ way: any HomeWay) throws(CloudError) {
        let (all, count) = try engine.local.read { (try Want.open($0), try LeaderStanding.fetchCount($0)) }
        if count > standings.count {
            hasOld = true
            standings = [:]
            changed.formUnion(lent)
        }
        // Those of which it is not known stay.
        gone = way.others.map { Set(all.map(\.process)).subtracting($0) } ?? []
        let wants = all.filter { !gone.contains($0.process) }
        let (ids, needed) = (Set(wants.map(\.id)), Set(wants.map(\.scope)))
        for id in serving.keys where !ids.contains(id) { stopServing(id) }
        for key in needed.subtracting(lent).sorted() { lend(key) }
        for want in wants where want.goal != .open { serve(want) }
        for key in lent.subtracting(needed).sorted() {
            lent.remove(key)
            if !own.contains(key) { engine.close(key) }
        }
        if hasOld || !gone.isEmpty || !lent.isSuperset(of: standings.keys) { engine.home.plan() }
    }

    private func lend(_ key: ScopeID) {
        isLending = true
        defer { isLending = false }
        do throws(CloudError) {
            guard engine.scopes.count < Self.scopesMax else {
                throw CloudError(.serviceBusy, "The processes of this home have too many scopes open.")
            }
            _ = try engine.scope(key)
        } catch {
            if error.code != .unknownItem { engine.logger.error("another process's scope could not be opened", error) }
        }
        lent.insert(key)
        changed.insert(key)
        engine.home.plan()
    }

    private func serve(_ want: Want) {
        guard want.session == engine.session?.secrets, serving[want.id] == nil, answers[want.id] == nil,
            serving.count < Self.waitersMax, let driver = engine.scopes.first(where: { $0.key == want.scope })
        else { return }
        serving[want.id] = (driver, nil)
        if want.isImpatient { driver.tryAnew() }
        let waiter = driver.wait(
            for: want.goal.waiterGoal, timeout: .milliseconds(max(0, min(want.milliseconds, 86_400_000))),
            isImpatient: want.isImpatient
        ) { [weak self] in self?.waited(want.id, driver, $0) }
        serving[want.id]?.waiter = waiter
    }

    private func waited(_ id: Want.ID, _ driver: ScopeDriver, _ result: Result<Void, CloudError>) {
        guard serving.removeValue(forKey: id) != nil else { return }
        var failure: CloudError?
        if case .failure(let error) = result { failure = error }
        answers[id] = (engine.session?.secrets, failure)
        // What it waited for is to be seen when it hears of that.
        changed(driver)
    }

    private func stopServing(_ id: Want.ID) {
        guard let (driver, waiter) = serving.removeValue(forKey: id), let waiter else { return }
        driver.endWaiter(waiter, .failure(CloudError(.operationCancelled, "Nobody waits for it any more.")))
    }

    // MARK: Writing down

    /// Writes down what the others do not know yet: how scopes stand, and what came of waiting.
    ///
    /// - Returns: Whether there was anything.
    func publish() throws(CloudError) -> Bool {
        var new: [LeaderStanding] = []
        for key in changed.intersection(lent).sorted() {
            let driver = engine.scopes.first { $0.key == key }
            let standing =
                try driver?.standingForOthers(fetches: fetches[key] ?? 0) ?? LeaderStanding(scope: key, isKnown: false)
            if standing != standings[key] { new.append(standing) }
        }
        let (answers, gone, hasOld) = (answers, gone, hasOld)
        let outdated = Set(standings.keys).subtracting(lent)
        if hasOld || !(new.isEmpty && answers.isEmpty && gone.isEmpty && outdated.isEmpty) {
            try engine.local.note { database in
                try Want.filter(gone.contains(Column("process"))).deleteAll(database)
                if hasOld { try LeaderStanding.deleteAll(database) }
                for key in outdated { try standings[key]?.delete(database) }
                for standing in new { try standing.insert(database, onConflict: .replace) }
                for (id, answer) in answers { try Want.answer(id, answer.error, session: answer.session, database) }
            }
            for standing in new { standings[standing.scope] = standing }
            for key in outdated { standings[key] = nil }
            self.hasOld = false
        }
        (self.answers, changed, self.gone) = ([:], [], [])
        return hasOld || !(new.isEmpty && answers.isEmpty)
    }
}

extension Want.Goal {
    init(_ goal: ScopeWaiter.Goal) {
        switch goal {
        case .pulled: self = .current
        case .downloaded: self = .downloaded
        case .sent: self = .sent
        }
    }

    fileprivate var waiterGoal: ScopeWaiter.Goal? {
        switch self {
        case .open, .current: nil
        case .downloaded: .downloaded
        case .sent: .sent
        }
    }
}
