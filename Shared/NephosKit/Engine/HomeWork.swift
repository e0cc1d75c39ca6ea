import Foundation
import Logging
import NephosBus
import NephosCore
import Synchronization

/// What a process does for the other processes of its home, or has done by the one that holds it: see ``HomeRole``.
///
/// What all of them must know is on disk: the copies, what waits to be sent, what has to be told. Here they tell each
/// other when to look, and a guest learns what its holder alone knows.
final class HomeWork {
    /// So much later the others are told again, at the earliest, that something has changed.
    private static let pause: Duration = .milliseconds(10)
    /// Scopes that are kept in step for guests.
    private static let scopesMax = 1000
    /// Those of one guest who wait.
    private static let waitersMax = 10_000

    private unowned let engine: DeviceEngine
    private var line: HomeLine?
    private let writes = WriteFlag()
    private var timer: (any LoopTimer)?
    private var lastTold: Duration = .zero

    // As the holder
    private var guests: [Int: Guest] = [:]
    /// What changed since the guests were told.
    private var changed: Set<ScopeID> = []
    /// What this process has open itself.
    private var own: Set<ScopeID> = []
    /// What the app was told last, of whom.
    private var notice: (account: AccountID?, notice: StorageNotice)?

    private struct Guest {
        var open: Set<ScopeID> = []
        /// By the guest's numbers.
        var waiters: [Int: Waiter] = [:]
    }

    private struct Waiter {
        var driver: ScopeDriver
        var number: Int
    }

    // As a guest
    /// The role in which the scopes have begun.
    private var begunAs: HomeRole = .guest
    /// What the holder cannot keep in step.
    private var unheld: Set<ScopeID> = []
    /// Those who were handed over, by numbers that no other has.
    private var waiters: [Int: Waiter] = [:]
    private var waiterCount = 0
    /// What the app has hastened while there was nobody to be told.
    private var hastened: Set<ScopeID> = []

    init(_ engine: DeviceEngine) { self.engine = engine }

    /// This process's part.
    var role: HomeRole { line?.role ?? (engine.options.foreignPoll == nil ? .holder : .alone) }

    /// Whether another process keeps the scope in step.
    func isHeld(_ key: ScopeID) -> Bool { role == .guest && !unheld.contains(key) }

    // MARK: Life

    /// Finds this process's part.
    func begin(by way: (any HomeWay)?) {
        // Nobody could see what is written to a copy, or hear from it what others write.
        guard let way, let identity = engine.local.identity else { return }
        let line = HomeLine(way, identity, engine.loop)
        self.line = line
        line.onMessage = { [weak self] in self?.heard($0, from: $1) }
        line.onGuestLeft = { [weak self] in self?.left($0) }
        let (writes, handle) = (writes, engine.loop.handle)
        let own = LoopBound(Weak(self), to: engine.loop)
        engine.local.whenWritten {
            guard writes.raise() else { return }
            handle.execute { loop in own.withValue(on: loop) { $0.value?.tellSoon() } }
        }
        line.start()
        begunAs = line.role
        line.onRole = { [weak self] in self?.roleChanged() }
    }

    func end() {
        engine.local.whenWritten(nil)
        timer?.cancel()
        line?.stop()
        line = nil
    }

    private func roleChanged() {
        guard let line, !engine.stopped else { return }
        writes.isHeard = line.hasPeers
        waiters = [:]
        for scope in engine.scopes {
            scope.handedOver = []
            // Another one may say it.
            scope.held = nil
        }
        let before = unheld
        unheld = []
        if begunAs != line.role {
            begunAs = line.role
            engine.restartScopes()
        } else if line.role == .guest {
            for scope in engine.scopes where before.contains(scope.key) { scope.restart() }
        }
        let hastened = hastened.sorted()
        self.hastened = []
        guard line.role == .guest, line.isWelcome else { return }
        // What was written before there was anybody to be told.
        line.sendToHolder(.written)
        for scope in engine.scopes {
            line.sendToHolder(.open(scope.key))
            scope.handOverWaiters()
        }
        for key in hastened { line.sendToHolder(.hasten(key)) }
    }

    /// The app, or whoever tests it, has opened the scope in this process.
    func opened(_ key: ScopeID) {
        if own.insert(key).inserted { handOver(.open(key)) }
    }

    // MARK: Telling the others

    /// Where the scope stands may have changed.
    func changed(_ driver: ScopeDriver) {
        guard guests.values.contains(where: { $0.open.contains(driver.key) }) else { return }
        changed.insert(driver.key)
        plan()
    }

    /// A fetch has ended.
    func fetched(_ driver: ScopeDriver) {
        let listeners = guests.filter { $0.value.open.contains(driver.key) }.keys.sorted()
        guard !listeners.isEmpty else { return }
        tellNow()
        for guest in listeners { line?.send(.fetched(driver.key), to: guest) }
    }

    /// This process's app opens the scope itself: what was kept in step for guests gives way, and they ask anew.
    func giveUp(_ key: ScopeID) {
        guard !own.contains(key) else { return }
        for (guest, known) in guests.sorted(by: { $0.key < $1.key }) where known.open.contains(key) {
            line?.drop(guest)
        }
    }

    /// What the app was told last of the account's plan.
    var storageNotice: StorageNotice? {
        let account = engine.session?.accountID
        return notice.flatMap { $0.account == account ? $0.notice : nil }
    }

    /// Tells this process's app, and all others.
    func tell(_ notice: StorageNotice) {
        guard hear(notice) else { return }
        tellNow()
        line?.broadcast(.storage(HomeMessage.StorageState(notice)))
    }

    /// Tells this process's app, unless it knows: several may have said it.
    private func hear(_ notice: StorageNotice) -> Bool {
        let told = storageNotice
        guard notice.level != told?.level ?? 0 || notice.planBytes != told?.planBytes ?? notice.planBytes else {
            return false
        }
        self.notice = (engine.session?.accountID, notice)
        engine.onEvent(.storage(notice))
        return true
    }

    private func plan() {
        guard timer == nil else { return }
        timer = engine.loop.schedule(after: max(.zero, lastTold + Self.pause - engine.loop.monotonicNow)) {
            [weak self] in
            self?.timer = nil
            self?.tellNow()
        }
    }

    private func tellSoon() {
        if timer == nil, engine.loop.monotonicNow - lastTold >= Self.pause { tellNow() } else { plan() }
    }

    /// What the others do not know yet, in the order that holds: what is on disk, then how it stands.
    private func tellNow() {
        guard let line, !engine.stopped else { return }
        lastTold = engine.loop.monotonicNow
        if writes.take() { line.broadcast(.written) }
        for key in changed.sorted() {
            guard let driver = engine.scopes.first(where: { $0.key == key }) else { continue }
            do throws(CloudError) {
                let standing = HomeMessage.standing(key, try driver.standingForGuests())
                for guest in guests.keys.sorted() where guests[guest]?.open.contains(key) == true {
                    line.send(standing, to: guest)
                }
            } catch { engine.logger.error("where a scope stands could not be read", error) }
        }
        changed = []
    }

    // MARK: As a guest

    /// Has the holder do something, after it knows of all that was written here.
    func handOver(_ message: HomeMessage) {
        guard let line, line.isWelcome else {
            switch message {
            case .hasten(let key), .pull(let key): hastened.insert(key)
            // The others are said to whoever comes.
            default: break
            }
            return
        }
        tellNow()
        line.sendToHolder(message)
    }

    /// A number for one who is handed over.
    func number(of waiter: Int, _ driver: ScopeDriver) -> Int {
        waiterCount += 1
        waiters[waiterCount] = Waiter(driver: driver, number: waiter)
        return waiterCount
    }

    /// One who was handed over waits no more.
    func takeBack(_ waiter: Int, _ driver: ScopeDriver) {
        for (number, handed) in waiters where handed.driver === driver && handed.number == waiter {
            waiters[number] = nil
            handOver(.endWait(number))
        }
    }

    private func heardHolder(_ message: HomeMessage) {
        switch message {
        case .written: engine.checkForeign()
        case .standing(let key, let standing):
            engine.serverTime.adopt(
                .milliseconds(standing.clockOffset), by: engine.loop.wallClock, monotonic: engine.loop.monotonicNow)
            for driver in engine.scopes where driver.key == key && isHeld(key) {
                driver.held = standing
                driver.perform([.changed])
            }
        case .unknown(let key):
            guard unheld.insert(key).inserted else { return }
            for driver in engine.scopes where driver.key == key { driver.restart() }
        case .fetched(let key):
            for driver in engine.scopes where driver.key == key && isHeld(key) { driver.perform([.fetched]) }
        case .waited(let number, let session, let error):
            guard let waiter = waiters.removeValue(forKey: number) else { return }
            waiter.driver.handedOver.remove(waiter.number)
            guard session == engine.session?.secrets else { return askAgain(waiter.driver) }
            waiter.driver.endWaiter(
                waiter.number, error.map { .failure(StoredError.decode($0) ?? Self.unreadable) } ?? .success(()))
        case .storage(let state): _ = hear(StorageNotice(state))
        default: break
        }
    }

    /// One of the two has not seen yet who is signed in, and answers for another account: that is no answer.
    private func askAgain(_ driver: ScopeDriver) {
        engine.loop.schedule(after: .seconds(1)) { [weak self, weak driver] in
            guard let self, let driver, !engine.stopped else { return }
            engine.checkForeign()
            if driver.isHeld { driver.handOverWaiters() }
        }
    }

    private static let unreadable = CloudError(.internalError, "Another process of this home failed.")

    // MARK: As the holder

    private func heard(_ message: HomeMessage, from peer: Int) {
        guard !engine.stopped else { return }
        if role != .holder { return heardHolder(message) }
        switch message {
        case .hello:
            writes.isHeard = true
            guests[peer] = Guest()
            // What was written before it was known here.
            line?.send(.written, to: peer)
            if let storageNotice { line?.send(.storage(HomeMessage.StorageState(storageNotice)), to: peer) }
        case .written:
            engine.checkForeign()
            // The other guests know from here.
            if guests.count > 1, writes.raise() { tellSoon() }
        case .open(let key): if let driver = open(key, for: peer) { changed(driver) }
        case .wait(let number, let key, let goal, let milliseconds, let isImpatient):
            wait(number, key, goal, .milliseconds(min(max(0, milliseconds), 86_400_000)), isImpatient, peer)
        case .endWait(let number):
            guard let waiter = guests[peer]?.waiters.removeValue(forKey: number) else { return }
            waiter.driver.endWaiter(waiter.number, .failure(Self.given))
        case .hasten(let key): open(key, for: peer)?.synchronize()
        case .pull(let key): open(key, for: peer)?.pull()
        default: break
        }
    }

    private static let given = CloudError(.operationCancelled, "Nobody waits for it any more.")

    @discardableResult
    private func open(_ key: ScopeID, for guest: Int) -> ScopeDriver? {
        guard guests[guest] != nil else { return nil }
        let isOwn = own.contains(key)
        do throws(CloudError) {
            guard engine.scopes.count < Self.scopesMax else {
                throw CloudError(.serviceBusy, "The processes of this home have too many scopes open.")
            }
            let driver = try engine.scope(key)
            // It goes with the guest, unless the app opens it here too.
            if !isOwn { own.remove(key) }
            if guests[guest]?.open.insert(key).inserted == true { changed(driver) }
            return driver
        } catch {
            if error.code != .unknownItem { engine.logger.error("a guest's scope could not be opened", error) }
            line?.send(.unknown(key), to: guest)
            return nil
        }
    }

    private func wait(
        _ number: Int, _ key: ScopeID, _ goal: HomeMessage.WaitGoal, _ timeout: Duration, _ isImpatient: Bool,
        _ peer: Int
    ) {
        guard let driver = open(key, for: peer), guests[peer]?.waiters.count ?? 0 < Self.waitersMax else { return }
        if isImpatient { driver.tryAnew() }
        var hasEnded = false
        let waiter = driver.wait(for: goal.goal, timeout: timeout, isImpatient: isImpatient) { [weak self] result in
            hasEnded = true
            self?.waited(number, driver, result, peer)
        }
        if !hasEnded { guests[peer]?.waiters[number] = Waiter(driver: driver, number: waiter) }
    }

    private func waited(_ number: Int, _ driver: ScopeDriver, _ result: Result<Void, CloudError>, _ peer: Int) {
        guard guests[peer] != nil else { return }
        guests[peer]?.waiters[number] = nil
        // What it waited for is to be seen when it hears of that.
        changed.insert(driver.key)
        tellNow()
        var failure: Data?
        if case .failure(let error) = result { failure = StoredError.encode(error.brief) }
        line?.send(.waited(number, session: engine.session?.secrets, error: failure), to: peer)
    }

    private func left(_ peer: Int) {
        guard let guest = guests.removeValue(forKey: peer) else { return }
        writes.isHeard = line?.hasPeers ?? false
        // It may have ended before it could say what it wrote last.
        if !engine.stopped { engine.checkForeign() }
        for waiter in guest.waiters.values { waiter.driver.endWaiter(waiter.number, .failure(Self.given)) }
        let needed = guests.values.reduce(own) { $0.union($1.open) }
        for key in guest.open.subtracting(needed).sorted() { engine.close(key) }
    }
}

/// Whether the home's database was written since the others were told. Safe to use from any thread.
private final class WriteFlag: Sendable {
    private let isRaised = Atomic<Bool>(false)
    private let heard = Atomic<Bool>(false)

    /// Whether there is anybody to be told.
    var isHeard: Bool {
        get { heard.load(ordering: .sequentiallyConsistent) }
        set { heard.store(newValue, ordering: .sequentiallyConsistent) }
    }

    /// - Returns: Whether somebody has to be told who is not about to be.
    func raise() -> Bool { isHeard && !isRaised.exchange(true, ordering: .acquiringAndReleasing) }
    func take() -> Bool { isRaised.exchange(false, ordering: .acquiringAndReleasing) }
}

extension HomeMessage.StorageState {
    init(_ notice: StorageNotice) {
        self.init(planBytes: notice.planBytes, usedBytes: notice.usedBytes, level: notice.level)
    }
}

extension StorageNotice {
    init(_ state: HomeMessage.StorageState) {
        self.init(planBytes: state.planBytes, usedBytes: state.usedBytes, level: state.level)
    }
}
