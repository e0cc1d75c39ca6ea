import NephosCore
import Synchronization

/// The server's time, as far as the server has said that this device's clock is wrong.
///
/// A server that finds an operation id too old or too far ahead says its own time with that; and one that cuts a
/// timestamp back gives it the time of its arrival. From then on ids and timestamps are made by that. It is kept in
/// memory, as a distance from the wall clock, for as long as that only moves on: when somebody has set it, it is
/// believed again, until the server finds it wrong once more.
final class ServerTime: Sendable {
    /// How far the wall clock may run apart from the monotonic one before somebody must have set it.
    private static let driftMax: Duration = .seconds(30)
    private let offsetMilliseconds = Atomic<Int64>(0)
    /// How far the wall clock was ahead of the monotonic one when the offset was learned.
    private let baseMilliseconds = Atomic<Int64>(0)

    func now(by clock: any WallClock) -> Timestamp {
        clock.now.advanced(by: .milliseconds(offsetMilliseconds.load(ordering: .relaxed)))
    }

    /// Forgets what was learned of a wall clock that has been set since.
    func check(_ clock: any WallClock, monotonic: Duration) {
        guard offsetMilliseconds.load(ordering: .relaxed) != 0 else { return }
        let moved = Self.base(clock, monotonic) - baseMilliseconds.load(ordering: .relaxed)
        if Duration.milliseconds(moved.magnitude) > Self.driftMax { offsetMilliseconds.store(0, ordering: .relaxed) }
    }

    private static func base(_ clock: any WallClock, _ monotonic: Duration) -> Int64 {
        Int64(clamping: clock.now.milliseconds) - monotonic.milliseconds
    }

    /// Takes the time that the error brings, if it brings one.
    func learn(from error: CloudError, by clock: any WallClock, monotonic: Duration) {
        guard error.code == .operationExpired, let text = error.details[CloudError.serverTimeDetail],
            let milliseconds = UInt64(text), milliseconds < 1 << 48
        else { return }
        store(Timestamp(milliseconds: milliseconds).since(clock.now), clock, monotonic)
    }

    /// The server has just cut a timestamp back to this time, or to one that is at most
    /// ``HybridClock/driftMax`` before it.
    func learn(cutTo time: Timestamp, by clock: any WallClock, monotonic: Duration) {
        let offset = time.since(clock.now)
        // A clock that is right may give what is far ahead, after what it said before it was put right.
        let isRight = offset > .zero - HybridClock.driftMax && offset < HybridClock.driftMax
        store(isRight ? .zero : offset, clock, monotonic)
    }

    /// How far the server's time is ahead of the wall clock, as far as it has said so.
    var offset: Duration { .milliseconds(offsetMilliseconds.load(ordering: .relaxed)) }

    /// What another process of this machine has learned.
    func adopt(_ offset: Duration, by clock: any WallClock, monotonic: Duration) {
        if offset != self.offset { store(offset, clock, monotonic) }
    }

    private func store(_ offset: Duration, _ clock: any WallClock, _ monotonic: Duration) {
        baseMilliseconds.store(Self.base(clock, monotonic), ordering: .relaxed)
        offsetMilliseconds.store(offset.milliseconds, ordering: .relaxed)
    }

    /// Whether an id made now would say another time than this one, which was refused: else it fares no better.
    static func isOutdated(_ id: OperationID, now: Timestamp) -> Bool {
        let age = now.since(id.time)
        return age > .seconds(1800) || age < .seconds(-1800)
    }
}
