import Core
import Synchronization

/// The server's time, as far as the server has said that this device's clock is wrong.
///
/// A server that finds an operation id too old or too far ahead says its own time with that. From then on ids and
/// timestamps are made by it. It is kept in memory, as a distance from the wall clock: when that is corrected, the
/// next refusal corrects this.
final class ServerTime: Sendable {
    private let offsetMilliseconds = Atomic<Int64>(0)

    func now(by clock: any WallClock) -> Timestamp {
        clock.now.advanced(by: .milliseconds(offsetMilliseconds.load(ordering: .relaxed)))
    }

    /// Takes the time that the error brings, if it brings one.
    func learn(from error: CloudError, by clock: any WallClock) {
        guard error.code == .operationExpired, let text = error.details[CloudError.serverTimeDetail],
            let milliseconds = UInt64(text), milliseconds < 1 << 48
        else { return }
        let offset = Timestamp(milliseconds: milliseconds).since(clock.now)
        offsetMilliseconds.store(offset.milliseconds, ordering: .relaxed)
    }

    /// Whether an id made now would say another time than this one, which was refused: else it fares no better.
    static func isOutdated(_ id: OperationID, now: Timestamp) -> Bool {
        let age = now.since(id.time)
        return age > .seconds(1800) || age < .seconds(-1800)
    }
}
