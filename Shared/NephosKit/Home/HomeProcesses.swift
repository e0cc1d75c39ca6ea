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
    /// So much later the others are rung again, at the earliest.
    private static let pause: Duration = .milliseconds(10)

    private unowned let engine: DeviceEngine
    private var way: (any HomeWay)?
    private(set) var role: HomeRole
    private(set) lazy var leader = HomeLeader(engine)
    private(set) lazy var client = HomeClient(engine)
    private var others: Set<String> = [] { didSet { if others.isEmpty != oldValue.isEmpty { heedWrites() } } }
    private let isWritten = Flag()
    /// The others have something to look at that no write has said.
    private var hasNews = false
    private var timer: (any LoopTimer)?
    private var lastTold: Duration = .zero
    /// What the leader has left beside its lock, and since when that is there.
    private var note = ""
    private var noteSince: Duration = .zero
    private var isChanging = false
    /// What the app was told last, of whom.
    private var notice: (account: AccountID?, notice: StorageNotice)?

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
        role = found(way)
        others = way.others ?? []
        if role == .leader { renew(way) }
        hasNews = true
        plan()
        // What is opened for others then has its beginning by itself.
        engine.loop.schedule(after: .zero) { [weak self] in self?.read() }
    }

    func end() {
        others = []
        timer?.cancel()
        leader.stop()
        // What this process wanted goes with it: the others hear that it is gone.
        way?.leave()
        way = nil
    }

    /// Where there is no other process, a write costs nothing more.
    private func heedWrites() {
        let (isWritten, handle) = (isWritten, engine.loop.handle)
        let own = LoopBound(Weak(self), to: engine.loop)
        let heed: @Sendable () -> Void = {
            guard !isWritten.value.exchange(true, ordering: .acquiringAndReleasing) else { return }
            handle.execute { loop in own.withValue(on: loop) { $0.value?.plan() } }
        }
        engine.local.whenWritten(others.isEmpty ? nil : heed)
    }

    /// A look is due that no process has rung for.
    func beat() {
        // Those that were killed are found so.
        if role == .leader, !others.isEmpty { way?.ring() }
        look()
    }

    /// Something may have changed: in the database, or in who is there.
    func look() {
        guard !engine.stopped else { return }
        if let way {
            let before = others
            others = way.others ?? before
            // What was written before they were known.
            if !others.isSubset(of: before) { hasNews = true }
            become(found(way))
            if role == .leader, !others.isEmpty { renew(way) }
            if others != before, role == .leader { read() }
            if hasNews { plan() }
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
        way.renew("\(mark)\(way.name) \(engine.loop.monotonicNow)")
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
            case .client: try client.read(as: way.name)
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

    /// Another scope is open than before, or somebody begins or ends to wait, or another is signed in.
    func wantsChanged() { if role == .client { plan() } }

    /// Has what the others do not know yet written down soon.
    func plan() {
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
        var hasFailed = false
        do throws(CloudError) {
            if try client.declare(as: way.name) { hasNews = true }
            if role == .leader, try leader.publish() { hasNews = true }
        } catch {
            engine.logger.error("what the home's processes want could not be written", error)
            hasFailed = true
        }
        if isWritten.value.exchange(false, ordering: .acquiringAndReleasing) || hasNews { way.ring() }
        // What was not written is tried again when it is looked next.
        hasNews = hasFailed
    }

    // MARK: The account's plan

    /// What the app was told last of the account's plan.
    var storageNotice: StorageNotice? {
        let account = engine.session?.accountID
        return notice.flatMap { $0.account == account ? $0.notice : nil }
    }

    /// Tells this process's app, unless it knows, and all others.
    func hear(_ notice: StorageNotice) {
        let told = storageNotice
        guard notice.level != told?.level ?? 0 || notice.planBytes != told?.planBytes ?? notice.planBytes else {
            return
        }
        self.notice = (engine.session?.accountID, notice)
        engine.onEvent(.storage(notice))
        for driver in engine.scopes { leader.changed(driver) }
    }
}

/// Whether the home's database was written since the others were rung. Safe to use from any thread.
private final class Flag: Sendable {
    let value = Atomic<Bool>(false)
}
