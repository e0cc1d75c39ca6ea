internal import CNephosZeroMQ
internal import Foundation
internal import NephosBus
public import NephosCore
internal import Synchronization

/// One thread that owns sockets and runs everything that is attached to them.
///
/// A turn: what other threads gave, each socket's messages, then timers that
/// are due. It waits only when a whole turn found nothing to do, and then
/// perhaps looks about for a while before it sleeps (``BusyPoll``).
final class ZeroMQLoop: BusLoop {
    let context: ZeroMQContext
    var encoder = FrameEncoder()
    private let mailbox: LoopMailbox
    private var timers = TimerHeap()
    /// In the order in which they were opened, so that turns are alike.
    private var sockets: [any LoopSocket] = []
    private var polled: [pollfd] = []
    private var serials: UInt32 = 0
    /// Turns in which busy sockets go on before the others are looked at again, unless they take long.
    private static let turnsBetweenPolls = 2
    private static let timeBetweenPolls: Duration = .microseconds(500)
    private let pools: [WorkPool: OffloadPool]
    private var busyPoll: BusyPoll
    let wallClock: any WallClock = SystemClock()

    private init(context: ZeroMQContext, mailbox: LoopMailbox, work: LoopWork, busyPollMax: Duration) {
        self.context = context
        busyPoll = BusyPoll(longest: busyPollMax)
        self.mailbox = mailbox
        func pool(_ threadCount: Int, waitingMax: Int) -> OffloadPool {
            OffloadPool(threadCount: threadCount, waitingMax: waitingMax, mailbox: mailbox, besideLoopFor: work)
        }
        pools = [
            .computing: pool(2, waitingMax: 64),
            // One processor is left to the loop.
            .reading: pool(
                max(1, min(4, ProcessInfo.processInfo.activeProcessorCount - 1)), waitingMax: 1024),
            // One thread seals while another waits for the disk.
            .content: pool(2, waitingMax: 64),
        ]
        rebuildPolled()
    }

    var handle: any LoopHandle { mailbox }

    var monotonicNow: Duration { monotonicTime() }

    /// Starts the thread; returns once `setUp` has run on it.
    static func start(
        named name: String, for work: LoopWork, ioThreads: Int, busyPollMax: Duration, linger: Duration,
        room: ConnectionRoom,
        _ setUp: @escaping @Sendable (any BusLoop) throws -> Void
    ) throws -> any LoopHandle {
        let mailbox = try LoopMailbox()
        let result = Mutex<Result<Void, any Error>?>(nil)
        let started = DispatchSemaphore(value: 0)
        let thread = Thread {
            // Before libzmq starts its threads, which take after this one.
            ThreadTurns.begin(for: work)
            let context: ZeroMQContext
            do { context = try ZeroMQContext(ioThreads: ioThreads, linger: linger, room: room) } catch {
                result.withLock { $0 = .failure(error) }
                started.signal()
                return mailbox.finish()
            }
            let loop = ZeroMQLoop(context: context, mailbox: mailbox, work: work, busyPollMax: busyPollMax)
            let outcome = Result { try setUp(loop) }
            result.withLock { $0 = outcome }
            started.signal()
            // The loop holds the handlers and is held by this frame alone; without
            // this the optimiser may release it after its last visible use.
            withExtendedLifetime(loop) {
                if case .success = outcome { loop.run() }
                loop.closeAll()
            }
            mailbox.finish()
        }
        thread.name = name
        thread.stackSize = 8 << 20
        thread.start()
        started.wait()
        try result.withLock { $0 }?.get()
        return mailbox
    }

    private func run() {
        var turnsToPoll = 0
        var lastPoll = monotonicNow
        while !mailbox.isStopping {
            var progressed = mailbox.runAll(on: self)
            // Before timers: large work goes on by them, in shares, and what has come meanwhile does not wait for the
            // next one too.
            for socket in sockets where socket.core.isOpen && socket.core.mayHaveMore {
                progressed = socket.receiveReady() || progressed
            }
            progressed = runTimers() || progressed
            encoder.forget()
            turnsToPoll -= 1
            if !progressed, !sockets.contains(where: { $0.core.mayHaveMore }) {
                wait()
            } else if turnsToPoll <= 0 || monotonicNow - lastPoll > Self.timeBetweenPolls {
                poll(milliseconds: 0)
            } else {
                continue
            }
            turnsToPoll = Self.turnsBetweenPolls
            lastPoll = monotonicNow
        }
        // What was given before the stop still runs.
        _ = mailbox.runAll(on: self)
    }

    private func runTimers() -> Bool {
        guard timers.nextDeadline() != nil else { return false }
        // Those that an action adds wait for the next turn, so that sockets get theirs.
        let due = timers.takeDue(now: monotonicNow)
        for timer in due { timer.run() }
        return !due.isEmpty
    }

    /// Waits until there is something to do.
    private func wait() {
        guard busyPoll.longest > .zero else {
            poll(milliseconds: millisecondsToTimer)
            return
        }
        let start = monotonicNow
        let end = start + busyPoll.window
        var hasNews = false
        while !hasNews, monotonicNow < end {
            // Others of this machine come first.
            sched_yield()
            hasNews = poll(milliseconds: 0)
        }
        // A timer that came due meanwhile is late by less than the window.
        if !hasNews { poll(milliseconds: millisecondsToTimer) }
        busyPoll.note(waited: monotonicNow - start)
    }

    /// Finds the sockets that libzmq has news for. Returns whether there is any.
    @discardableResult
    private func poll(milliseconds: Int32) -> Bool {
        guard Foundation.poll(&polled, nfds_t(polled.count), milliseconds) > 0 else { return false }
        if polled[0].revents != 0 { mailbox.acknowledge() }
        for index in sockets.indices where polled[index + 1].revents != 0 { sockets[index].core.mayHaveMore = true }
        return true
    }

    /// Rounded up: waking before a timer is due would spin. -1 without a timer.
    private var millisecondsToTimer: Int32 {
        guard let deadline = timers.nextDeadline() else { return -1 }
        return Int32(clamping: max(0, (deadline - monotonicNow).nanoseconds + 999_999) / 1_000_000)
    }

    func schedule(after delay: Duration, _ action: @escaping () -> Void) -> any LoopTimer {
        timers.add(at: monotonicNow + max(.zero, delay), action)
    }

    func offload<Value: Sendable>(
        to pool: WorkPool, _ work: @escaping @Sendable () throws -> Value,
        then completion: @escaping (Result<Value, any Error>) -> Void
    ) {
        let completion = LoopBound(completion, to: self)
        let accepted = pools[pool]?.run {
            let result = Result { try work() }
            return { loop in completion.withValue(on: loop) { $0(result) } }
        }
        if accepted != true {
            handle.execute { loop in
                completion.withValue(on: loop) {
                    $0(.failure(CloudError(.serviceBusy, "Too much long work waits. Try again later.")))
                }
            }
        }
    }

    func probe(_ endpoint: String, serverKeys: [PublicKey], then completion: @escaping (Presence) -> Void) {
        offload(to: .computing, { ConnectProbe.presence(at: endpoint, serverKeys) }) {
            completion((try? $0.get()) ?? .server)
        }
    }

    func makeReplySocket(
        _ options: ReplySocketOptions, handler: @escaping ([Incoming]) -> Void
    ) throws -> any ReplySocket {
        try add(RouterSocket(loop: self, options, handler))
    }

    func makeRequestSocket(
        _ options: RequestSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any RequestSocket {
        try add(DealerSocket(loop: self, options, handler))
    }

    func makePublishSocket(_ options: PublishSocketOptions) throws -> any PublishSocket {
        try add(PubSocket(loop: self, options))
    }

    func makeSubscribeSocket(
        _ options: SubscribeSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any SubscribeSocket {
        try add(SubSocket(loop: self, options, handler))
    }

    func add<Socket: LoopSocket>(_ socket: Socket) -> Socket {
        sockets.append(socket)
        rebuildPolled()
        return socket
    }

    func remove(_ socket: some LoopSocket) {
        sockets.removeAll { $0 === socket }
        rebuildPolled()
    }

    func nextSerial() -> UInt32 {
        serials += 1
        return serials
    }

    private func rebuildPolled() {
        polled = [pollfd(fd: mailbox.descriptor, events: Int16(POLLIN), revents: 0)]
        polled += sockets.map { pollfd(fd: $0.core.descriptor, events: Int16(POLLIN), revents: 0) }
    }

    private func closeAll() {
        for socket in sockets { socket.close() }
        timers = TimerHeap()
        encoder.forget()
        context.terminate()
    }
}

/// Time since some fixed point; never goes back.
func monotonicTime() -> Duration {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
}

/// The system's wall clock.
public struct SystemClock: WallClock {
    public init() {}

    public var now: Timestamp {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Timestamp(milliseconds: UInt64(time.tv_sec) * 1000 + UInt64(time.tv_nsec) / 1_000_000)
    }

    public var timePassed: Duration {
        var time = timespec()
        clock_gettime(CLOCK_BOOTTIME, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }
}

/// What other threads give to a loop, and the eventfd that wakes it.
// Unchecked: the descriptor is set once; the rest is behind a mutex.
final class LoopMailbox: LoopHandle, @unchecked Sendable {
    typealias Job = @Sendable (any BusLoop) -> Void

    private struct State {
        var jobs: [Job] = []
        var isStopping = false
        var isFinished = false
        /// Whether the loop will look at the jobs without another wake-up.
        var isAwake = false
    }

    let descriptor: Int32
    private let state = Mutex(State())
    private let hasJobs = Atomic(false)
    private let finished = DispatchSemaphore(value: 0)

    init() throws {
        descriptor = eventfd(0, Int32(EFD_NONBLOCK) | Int32(EFD_CLOEXEC))
        guard descriptor >= 0 else {
            throw CloudError(.serviceUnavailable, "The process has no file descriptor left.")
        }
    }

    deinit { close(descriptor) }

    func execute(_ work: @escaping @Sendable (any BusLoop) -> Void) {
        let wake = state.withLock { state in
            guard !state.isFinished else { return false }
            state.jobs.append(work)
            defer { state.isAwake = true }
            return !state.isAwake
        }
        hasJobs.store(true, ordering: .releasing)
        if wake { self.wake() }
    }

    func stop() {
        state.withLock { $0.isStopping = true }
        wake()
        finished.wait()
        finished.signal()
    }

    var isStopping: Bool { state.withLock { $0.isStopping } }

    /// Runs what has been given so far. Returns whether there was anything.
    func runAll(on loop: any BusLoop) -> Bool {
        guard hasJobs.exchange(false, ordering: .acquiring) else { return false }
        let jobs = state.withLock { state in
            state.isAwake = false
            return exchange(&state.jobs, with: [])
        }
        for job in jobs { job(loop) }
        return !jobs.isEmpty
    }

    func acknowledge() {
        var count: UInt64 = 0
        _ = read(descriptor, &count, MemoryLayout<UInt64>.size)
    }

    func finish() {
        // Jobs may hold what belongs to the loop: let go of them on its thread.
        let jobs = state.withLock { state in
            state.isFinished = true
            return exchange(&state.jobs, with: [])
        }
        withExtendedLifetime(jobs) {}
        finished.signal()
    }

    private func wake() {
        var one: UInt64 = 1
        _ = write(descriptor, &one, MemoryLayout<UInt64>.size)
    }
}

private func exchange<Value>(_ value: inout Value, with replacement: Value) -> Value {
    let previous = value
    value = replacement
    return previous
}
