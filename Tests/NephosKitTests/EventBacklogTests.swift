import Foundation
import NephosCore
import NephosWire
import Synchronization
import Testing

@testable import NephosKit

/// What is kept for somebody who listens and does not read.
@Suite struct EventBacklogTests {
    private let own = ScopeID(app: AppID("one"), service: .keyValue)

    @Test func whoLagsBehindIsToldWhatHasChangedAndNotAllOfItsValues() async throws {
        let events = EventBroadcast()
        let (all, few) = (events.subscribe { _ in true }, events.subscribe { _ in true })
        let (bytes, count) = (900_000, 12)
        let value = PropertyValue.string(String(repeating: "a", count: bytes))
        for number in 1...count {
            let item = KeyValueItem(
                key: "k", value: value, timestamp: HybridTimestamp(rawValue: UInt64(number)), deviceID: DeviceID("d"))
            events.send(.change(own, ChangeNotification(reason: .serverChange, changedKeys: ["k"], items: [item])))
        }
        _ = few
        events.finish()
        var told: [ChangeNotification] = []
        for await case .change(_, let change) in all { told.append(change) }
        #expect(told.count == count && told.allSatisfy { $0.changedKeys == ["k"] })
        let whole = told.filter { !$0.items.isEmpty }
        #expect(whole.count > 1 && whole.count * bytes <= 8 << 20)
        #expect(told.first?.items.first?.value == value)
    }

    @Test func eachListenerIsToldOfItsOwnAlone() async throws {
        let events = EventBroadcast()
        let stream = events.subscribe { $0.scope == own }
        let change = ChangeNotification(reason: .serverChange, changedKeys: ["k"])
        events.send(.change(own, change))
        for _ in 0..<20_000 { events.send(.change(ScopeID(app: AppID("other"), service: .keyValue), change)) }
        events.finish()
        #expect(await keys(stream) == ["k"])
    }

    @Test func ofVeryManyTheNewestAreKept() async throws {
        let events = EventBroadcast()
        let stream = events.subscribe { _ in true }
        for number in 0..<20_000 {
            events.send(.change(own, ChangeNotification(reason: .serverChange, changedKeys: [ItemName("\(number)")])))
        }
        events.finish()
        let keys = await keys(stream)
        #expect(keys.count == 10_000 && keys.first == "10000" && keys.last == "19999")
    }

    private final class Count: Sendable {
        let number = Mutex(0)
    }

    /// A thread of its own: what else runs keeps it waiting for nothing.
    private final class OwnThread: TaskExecutor {
        private let queue = DispatchQueue(label: "reader")

        func enqueue(_ job: consuming ExecutorJob) {
            let job = UnownedJob(job)
            queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
        }
    }

    /// Each comes just when the reader has read the one before, and begins to wait.
    @Test func whatComesWhileSomebodyBeginsToWaitIsToldAtOnce() async {
        let events = EventBroadcast()
        let stream = events.subscribe { _ in true }
        let read = Count()
        let rounds = 20_000
        let reader = Task(executorPreference: OwnThread()) {
            for await _ in stream { read.number.withLock { $0 += 1 } }
        }
        let told = await withCheckedContinuation { continuation in
            Thread.detachNewThread {
                let event = DeviceEvent.change(
                    own, ChangeNotification(reason: .serverChange, changedKeys: ["k"]))
                for number in 1...rounds {
                    events.send(event)
                    let end = ContinuousClock.now + .seconds(60)
                    while read.number.withLock({ $0 }) < number {
                        guard ContinuousClock.now < end else { return continuation.resume(returning: number - 1) }
                    }
                }
                continuation.resume(returning: rounds)
            }
        }
        #expect(told == rounds)
        events.finish()
        await reader.value
    }

    private func keys(_ stream: AsyncStream<DeviceEvent>) async -> [ItemName] {
        var keys: [ItemName] = []
        for await event in stream { if case .change(_, let change) = event { keys += change.changedKeys } }
        return keys
    }
}
