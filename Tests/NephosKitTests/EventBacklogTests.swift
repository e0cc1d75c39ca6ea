import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import Synchronization
import Testing

@testable import NephosKit

/// What is kept for somebody who listens and does not read.
@Suite struct EventBacklogTests {
    @Test func whoLagsBehindIsToldWhatHasChangedAndNotAllOfItsValues() async throws {
        try await withSessionCloud { cloud in
            let (writer, reader) = (try await cloud.openSignedIn(), try await cloud.openSignedIn())
            let (written, read) = (try writer.keyValueStore(), try reader.keyValueStore())
            try await cloud.wait { try await read.scope.waitUntilCurrent(timeout: .seconds(30)) }
            let (all, few) = (read.changes, read.changes)
            let (bytes, count) = (900_000, 12)
            for number in 0..<count {
                try written.set(.string(String(repeating: "\(number % 10)", count: bytes)), forKey: "k")
                try await cloud.wait {
                    try await written.scope.waitUntilSent(timeout: .seconds(30))
                    try await read.scope.waitUntilCurrent(timeout: .seconds(30))
                }
            }
            _ = few
            reader.close()
            var told: [ChangeNotification] = []
            for await change in all where change.reason == .serverChange { told.append(change) }
            #expect(told.count == count && told.allSatisfy { $0.changedKeys == ["k"] })
            let whole = told.filter { !$0.items.isEmpty }
            #expect(whole.count > 1 && whole.count * bytes <= 8 << 20)
            #expect(told.first?.items.first?.value != nil)
        }
    }

    @Test func eachListenerIsToldOfItsOwnAlone() async throws {
        let events = EventBroadcast()
        let own = ScopeID(app: AppID("one"), service: .keyValue)
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
        let own = ScopeID(app: AppID("one"), service: .keyValue)
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

    /// Each comes just when the reader has read the one before, and begins to wait.
    @Test func whatComesWhileSomebodyBeginsToWaitIsToldAtOnce() async {
        let events = EventBroadcast()
        let stream = events.subscribe { _ in true }
        let read = Count()
        let reader = Task {
            for await _ in stream { read.number.withLock { $0 += 1 } }
        }
        let told = await withCheckedContinuation { continuation in
            Thread.detachNewThread {
                let event = DeviceEvent.change(
                    ScopeID(app: AppID("one"), service: .keyValue),
                    ChangeNotification(reason: .serverChange, changedKeys: ["k"]))
                for number in 1...50_000 {
                    events.send(event)
                    let end = ContinuousClock.now + .seconds(10)
                    while read.number.withLock({ $0 }) < number {
                        guard ContinuousClock.now < end else { return continuation.resume(returning: number - 1) }
                    }
                }
                continuation.resume(returning: 50_000)
            }
        }
        #expect(told == 50_000)
        events.finish()
        await reader.value
    }

    private func keys(_ stream: AsyncStream<DeviceEvent>) async -> [ItemName] {
        var keys: [ItemName] = []
        for await event in stream { if case .change(_, let change) = event { keys += change.changedKeys } }
        return keys
    }
}
