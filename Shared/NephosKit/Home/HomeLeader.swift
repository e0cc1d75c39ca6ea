import Foundation
import GRDB
import Logging
import NephosBus
import NephosCore

/// Keeps in step what the other processes of the home have open, and answers those that wait in them.
final class HomeLeader {
    /// Scopes that are kept in step for others.
    private static let scopesMax = 1000
    /// Those that wait at the same time, of all processes.
    private static let waitersMax = 10_000

    private unowned let engine: DeviceEngine
    /// Has what is to be written down written soon.
    private let plan: () -> Void
    /// What this process has open itself.
    private var own: Set<ScopeID> = []
    /// What is kept in step for others; it may be this process's own, too.
    private var lent: Set<ScopeID> = []
    private var isLending = false
    /// What cannot be kept in step.
    private var unknown: Set<ScopeID> = []
    private var serving: [Want.ID: (driver: ScopeDriver, waiter: Int?)] = [:]

    // To be written down
    private var answers: [Want.ID: (session: String?, error: CloudError?)] = [:]
    private var changed: Set<ScopeID> = []
    private var gone: Set<String> = []
    /// What is written down.
    private var standings: [ScopeID: Data] = [:]
    /// Of an earlier leader, or of what is not lent any more.
    private var outdated: Set<ScopeID> = []
    private var fetches: [ScopeID: Int] = [:]

    init(_ engine: DeviceEngine, plan: @escaping () -> Void) {
        self.engine = engine
        self.plan = plan
    }

    /// The app, or whoever tests it, has opened the scope in this process.
    func opened(_ key: ScopeID) { if !isLending { own.insert(key) } }

    /// Where the scope stands may have changed.
    func changed(_ driver: ScopeDriver) {
        guard lent.contains(driver.key) else { return }
        changed.insert(driver.key)
        plan()
    }

    /// A fetch has ended.
    func fetched(_ driver: ScopeDriver) {
        fetches[driver.key, default: 0] += 1
        changed(driver)
    }

    /// This process's app opens the scope itself: what was kept in step for others gives way, and they are served anew.
    ///
    /// - Returns: Whether anything did.
    func giveUp(_ key: ScopeID) -> Bool {
        guard !own.contains(key), lent.remove(key) != nil else { return false }
        for (id, served) in serving where served.driver.key == key { stopServing(id) }
        engine.close(key)
        return true
    }

    /// It does not lead any more, or ends.
    func stop() {
        for id in serving.keys.sorted() { stopServing(id) }
        for key in lent.subtracting(own).sorted() where !engine.stopped { engine.close(key) }
        (lent, unknown, answers, changed, gone, standings, outdated) = ([], [], [:], [], [], [:], [])
    }

    // MARK: Serving

    /// Does what is wanted, and stops what is not any more.
    ///
    /// - Parameter way: Tells which processes live: those that do had a socket before they wanted anything.
    func serve(_ way: any HomeWay) throws(CloudError) {
        let (all, written) = try engine.local.read { (try HomeRows($0).wants(), try HomeRows($0).standings()) }
        let living = way.others
        gone = Set(all.map(\.id.process)).subtracting(living)
        let wants = all.filter { !gone.contains($0.id.process) }
        let ids = Set(wants.map(\.id))
        for id in serving.keys.sorted() where !ids.contains(id) { stopServing(id) }
        let needed = Set(wants.map(\.scope))
        for key in needed.subtracting(lent).sorted() { lend(key) }
        for want in wants where want.goal != .open { serve(want) }
        for key in lent.subtracting(needed).sorted() {
            lent.remove(key)
            if !own.contains(key) { engine.close(key) }
        }
        unknown.formIntersection(needed)
        if living.isEmpty { standings = [:] }
        standings = standings.filter { needed.contains($0.key) || $0.key == HomeProcesses.storageKey }
        outdated = Set(written.keys).subtracting(standings.keys)
        if !(gone.isEmpty && outdated.isEmpty) { plan() }
    }

    private func lend(_ key: ScopeID) {
        isLending = true
        defer { isLending = false }
        do throws(CloudError) {
            guard engine.scopes.count < Self.scopesMax else {
                throw CloudError(.serviceBusy, "The processes of this home have too many scopes open.")
            }
            _ = try engine.scope(key)
            lent.insert(key)
        } catch {
            guard unknown.insert(key).inserted else { return }
            if error.code != .unknownItem { engine.logger.error("another process's scope could not be opened", error) }
        }
        changed.insert(key)
        plan()
    }

    private func serve(_ want: Want) {
        guard want.session == engine.session?.secrets, serving[want.id] == nil, answers[want.id] == nil,
            serving.count < Self.waitersMax, lent.contains(want.scope),
            let driver = engine.scopes.first(where: { $0.key == want.scope })
        else { return }
        serving[want.id] = (driver, nil)
        if want.isImpatient { driver.tryAnew() }
        let waiter = driver.wait(
            for: want.goal.waiterGoal, timeout: max(.zero, min(want.timeout, .seconds(86_400))),
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
    /// - Parameter storage: The last notice of the account's plan; nil: there is none, or no other process.
    /// - Returns: Whether there was anything.
    func publish(storage: Data?) throws(CloudError) -> Bool {
        var new: [ScopeID: Data] = [:]
        for key in changed {
            if unknown.contains(key) { new[key] = Data() }
            guard lent.contains(key), let driver = engine.scopes.first(where: { $0.key == key }) else { continue }
            new[key] = try driver.standingForOthers(fetches: fetches[key] ?? 0).encoded
        }
        if let storage { new[HomeProcesses.storageKey] = storage }
        new = new.filter { standings[$0.key] != $0.value }
        let (answers, gone, outdated) = (answers, gone, outdated.subtracting(new.keys))
        guard !(new.isEmpty && answers.isEmpty && gone.isEmpty && outdated.isEmpty) else {
            changed = []
            return false
        }
        try engine.local.note { database in
            let rows = HomeRows(database)
            for process in gone { try rows.remove(process: process) }
            for key in outdated { try rows.set(nil, of: key) }
            for (key, standing) in new { try rows.set(standing, of: key) }
            for (id, answer) in answers { try rows.answer(id, answer.error, session: answer.session) }
        }
        standings.merge(new) { $1 }
        (self.answers, changed, self.gone, self.outdated) = ([:], [], [], [])
        return true
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
