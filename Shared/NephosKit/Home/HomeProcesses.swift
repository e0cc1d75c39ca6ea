import Foundation
import Logging
import NephosBus
import NephosCore
import Synchronization

/// This process among those of its home: one of them speaks with the server for all.
///
/// All that they must know of each other is in the home's database: what each wants (``Want``), and how its scopes stand
/// (``LeaderStanding``). They say nothing to each other but that there is something to look at, and a look that is lost
/// costs a second.
final class HomeProcesses {
    /// Raised when what the processes leave for each other means something else: those that do not understand each
    /// other do not rely on each other.
    static let format = 1
    /// How often a process that has others looks without being rung.
    static let beat: Duration = .seconds(1)
    /// Without a sign of the leader for so long, each does for itself until there is one.
    static let silenceMax: Duration = .milliseconds(2500)
    /// How much less often a process looks that has no others: those that come ring.
    private static let rungPolls = 8
    /// The place of the last notice of the account's plan, among the standings.
    static let storageKey = ScopeID(app: AppID(""), service: .identity)
    /// So much later the others are rung again, at the earliest.
    private static let pause: Duration = .milliseconds(10)

    private unowned let engine: DeviceEngine
    private var way: (any HomeWay)?
    private(set) var role: HomeRole
    private(set) lazy var leader = HomeLeader(engine) { [weak self] in self?.plan() }
    private(set) lazy var client = HomeClient(engine)
    private var others: Set<String> = []
    private let writes = WriteFlag()
    /// The others have something to look at that no write has said.
    private var hasNews = false
    private var timer: (any LoopTimer)?
    private var lastTold: Duration = .zero
    private var hasFailed = false
    /// What the leader has left beside its lock, and since when that is there.
    private var note = ""
    private var noteSince: Duration = .zero
    private var beats = 0
    private var isChanging = false
    /// What the app was told last, of whom.
    private var notice: StorageState?

    init(_ engine: DeviceEngine) {
        self.engine = engine
        role = engine.options.foreignPoll == nil ? .leader : .alone
    }

    /// Whether another process keeps the scope in step.
    func isDelegated(_ key: ScopeID) -> Bool { role == .client && client.isLed(key) }

    /// How long to wait with the next look.
    ///
    /// - Parameter poll: How long where no process rings.
    func interval(_ poll: Duration) -> Duration {
        role == .alone ? poll : others.isEmpty ? poll * Self.rungPolls : Self.beat
    }

    // MARK: Life

    /// Finds this process's part.
    func begin(by way: (any HomeWay)?) {
        // No other process could see what is written to a copy, nor this one what others write.
        guard let way, engine.local.identity != nil else { return }
        self.way = way
        way.onLook = { [weak self] in self?.look() }
        let (writes, handle) = (writes, engine.loop.handle)
        let own = LoopBound(Weak(self), to: engine.loop)
        engine.local.whenWritten {
            guard writes.raise() else { return }
            handle.execute { loop in own.withValue(on: loop) { $0.value?.plan() } }
        }
        others = way.others
        writes.isHeard = !others.isEmpty
        role = found(way)
        if role == .leader { renew(way) }
        hasNews = true
        plan()
        // What is opened for others then has its beginning by itself.
        engine.loop.schedule(after: .zero) { [weak self] in self?.read() }
    }

    func end() {
        engine.local.whenWritten(nil)
        timer?.cancel()
        leader.stop()
        // What this process wanted goes with it: the others hear that it is gone.
        way?.leave()
        way = nil
    }

    /// Something may have changed: in the database, or in who is there.
    func look() {
        guard !engine.stopped else { return }
        if let way {
            let before = others
            others = way.others
            writes.isHeard = !others.isEmpty
            // What was written before they were known.
            if !others.isSubset(of: before) { hasNews = true }
            become(found(way))
            if role == .leader, !others.isEmpty { renew(way) }
            if others != before, role == .leader { read() }
            if hasNews || hasFailed { plan() }
        }
        engine.checkForeign()
    }

    private func found(_ way: any HomeWay) -> HomeRole {
        switch way.lock() {
        case .taken: return .leader
        case .impossible: return .alone
        case .held(let note):
            let now = engine.loop.monotonicNow
            if note != self.note { (self.note, noteSince) = (note, now) }
            // There is none yet where a process has just begun to lead.
            let isUnderstood = note.isEmpty || note.hasPrefix(mark)
            return isUnderstood && now - noteSince < Self.silenceMax ? .client : .alone
        }
    }

    /// Of a process that this one understands, and that has the same database open: the folder's may have been replaced.
    private var mark: String { "\(Self.format) \(engine.local.identity ?? "") " }

    private func renew(_ way: any HomeWay) {
        beats += 1
        let count = String(beats)
        way.renew(mark + "\(way.name) " + String(repeating: "0", count: max(0, 20 - count.utf8.count)) + count)
    }

    private func become(_ role: HomeRole) {
        guard self.role != role else { return }
        leader.stop()
        client.forget()
        self.role = role
        isChanging = true
        engine.restartScopes()
        isChanging = false
        read()
        hasNews = true
        if role == .leader, let way { renew(way) }
    }

    // MARK: What the others have written

    /// The database has changed.
    func read() {
        guard let way, !isChanging, !engine.stopped else { return }
        do throws(CloudError) {
            switch role {
            case .leader: try leader.serve(way)
            case .client: try client.read(as: way.name) { if let notice = StorageState(encoded: $0) { hear(notice) } }
            case .alone: break
            }
        } catch {
            engine.logger.error("what the home's processes want could not be read", error)
            // It is read when it is looked next.
            engine.foreignVersion = -1
        }
    }

    // MARK: What this process writes

    /// The app, or whoever tests it, has opened the scope in this process.
    func opened(_ key: ScopeID) {
        leader.opened(key)
        wantsChanged()
    }

    /// The app opens the scope itself.
    func giveUp(_ key: ScopeID) {
        guard leader.giveUp(key) else { return }
        engine.loop.schedule(after: .zero) { [weak self] in self?.read() }
    }

    /// Another scope is open than before, or somebody begins or ends to wait, or another is signed in.
    func wantsChanged() { if role == .client { plan() } }

    private func plan() {
        guard timer == nil, way != nil, !engine.stopped else { return }
        timer = engine.loop.schedule(after: max(.zero, lastTold + Self.pause - engine.loop.monotonicNow)) {
            [weak self] in
            self?.timer = nil
            self?.tell()
        }
    }

    /// Writes down what the others do not know yet, and rings them.
    private func tell() {
        guard let way, !engine.stopped else { return }
        lastTold = engine.loop.monotonicNow
        hasFailed = false
        do throws(CloudError) {
            if try client.declare(as: way.name) { hasNews = true }
            if role == .leader, try leader.publish(storage: others.isEmpty ? nil : notice?.encoded) { hasNews = true }
        } catch {
            engine.logger.error("what the home's processes want could not be written", error)
            hasFailed = true
        }
        if writes.take() || hasNews { way.ring() }
        hasNews = false
    }

    // MARK: The plan

    /// What the app was told last of the account's plan.
    var storageNotice: StorageNotice? {
        let account = engine.session?.accountID
        return notice.flatMap { $0.account == account ? $0.notice : nil }
    }

    /// Tells this process's app, and all others.
    func tell(_ notice: StorageNotice) {
        let state = StorageState(account: engine.session?.accountID, notice)
        if hear(state) { plan() }
    }

    /// Tells this process's app, unless it knows: several may have said it.
    @discardableResult
    private func hear(_ state: StorageState) -> Bool {
        let (told, notice) = (storageNotice, state.notice)
        guard state.account == engine.session?.accountID,
            notice.level != told?.level ?? 0
                || notice.planBytes != told?.planBytes ?? notice.planBytes
        else { return false }
        self.notice = state
        engine.onEvent(.storage(notice))
        return true
    }
}

/// A notice of an account's plan, as the leader writes it down.
private struct StorageState: Codable {
    var account: AccountID?
    var planBytes: UInt64
    var usedBytes: UInt64
    var level: Int

    init(account: AccountID?, _ notice: StorageNotice) {
        self.account = account
        (planBytes, usedBytes, level) = (notice.planBytes, notice.usedBytes, notice.level)
    }

    init?(encoded: Data) {
        guard let state = try? JSONDecoder().decode(Self.self, from: encoded) else { return nil }
        self = state
    }

    var encoded: Data {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        return (try? encoder.encode(self)) ?? Data()
    }

    var notice: StorageNotice { StorageNotice(planBytes: planBytes, usedBytes: usedBytes, level: level) }
}

/// Whether the home's database was written since the others were rung. Safe to use from any thread.
private final class WriteFlag: Sendable {
    private let isRaised = Atomic<Bool>(false)
    private let heard = Atomic<Bool>(false)

    /// Whether there is another process.
    var isHeard: Bool {
        get { heard.load(ordering: .sequentiallyConsistent) }
        set { heard.store(newValue, ordering: .sequentiallyConsistent) }
    }

    /// - Returns: Whether somebody has to be rung who is not about to be.
    func raise() -> Bool { isHeard && !isRaised.exchange(true, ordering: .acquiringAndReleasing) }
    func take() -> Bool { isRaised.exchange(false, ordering: .acquiringAndReleasing) }
}
