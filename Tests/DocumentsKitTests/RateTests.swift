import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Contents move no faster than was said, and nothing else waits for them.
@Suite struct RateTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        return Data(
            (0..<(count + 7) / 8).flatMap { _ in withUnsafeBytes(of: random.next()) { [UInt8]($0) } }.prefix(count))
    }

    @Test func overTimeTheRateHoldsWhateverIsSent() {
        var random = SplitMix64(seed: 1)
        for rate in [1000, 70_000, 10_000_000] {
            var (now, sent) = (Duration.seconds(5), 0)
            var bucket = TokenBucket(rate: rate, now: now)
            let start = now
            while now - start < .seconds(100_000_000 / rate) {
                let wait = bucket.wait(at: now)
                if wait == .zero {
                    let size = Int.random(in: 1...(1 << 20), using: &random)
                    bucket.take(size)
                    sent += size
                } else {
                    now += wait
                }
            }
            let allowed = Double(rate) * ((now - start) / .seconds(1))
            // A quarter of a second's at the start, and one at the end that leaves a debt.
            #expect(Double(sent) <= allowed + Double(rate) / 4 + Double(1 << 20))
            #expect(Double(sent) >= allowed * 0.9)
        }
    }

    @Test func whatWasNotSentInAPauseIsNotMadeUpFor() {
        var bucket = TokenBucket(rate: 100_000, now: .zero)
        #expect(bucket.wait(at: .seconds(3600)) == .zero)
        bucket.take(125_000)
        let wait = bucket.wait(at: .seconds(3600))
        #expect(wait >= .seconds(1) && wait < .milliseconds(1010))
        // Nor does a clock that steps back make it wait longer.
        #expect(bucket.wait(at: .seconds(3500)) == wait)
        #expect(bucket.wait(at: .seconds(3600) + wait) == .zero)
        #expect(TokenBucket(rate: 0, now: .zero).rate == 1000)
    }

    /// How long something takes by the simulation's clock.
    private func time(_ device: ContainerCloud.Device, _ body: () async throws -> Void) async throws -> Duration {
        func now() async throws -> Duration {
            try await device.session.engine.perform { engine, completion in
                completion(.success(engine.loop.monotonicNow))
            }
        }
        let start = try await now()
        try await body()
        return try await now() - start
    }

    @Test func contentsMoveNoFasterThanWasSaidAndNothingElseWaits() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let content = bytes(3_000_000, seed: 2)
            one.session.setTransferLimits(TransferLimits(upload: 50_000))
            try await one.container.put(content, at: "x")
            // The first chunk may go at once, and the debt of the last is nobody's.
            let sending = try await time(one) {
                try await one.container.makeFolder(at: "small")
                while try await one.container.item(at: "small")?.pending != DocumentEntry.PendingState.none {
                    try? await one.container.scope.waitUntilSent(timeout: .seconds(1))
                }
                let early = try await one.container.item(at: "x")
                #expect(early?.pending == .uploading)
                let progress = try await one.container.outbox.progress()
                #expect(progress.isPaced && progress.waiting == nil)
                try await one.container.scope.waitUntilSent(timeout: .seconds(300))
            }
            #expect(sending > .seconds(36) && sending < .seconds(70), "\(sending)")
            try await two.settle()
            two.session.setTransferLimits(TransferLimits(download: 100_000))
            let fetching = try await time(two) {
                // Though nothing comes for longer than that.
                let got = try await two.container.read("x", timeout: .seconds(2))
                let isSame = got == content
                #expect(isSame)
            }
            #expect(fetching > .seconds(18) && fetching < .seconds(35), "\(fetching)")
            two.session.setTransferLimits(TransferLimits())
            #expect(try await time(two) { _ = try await two.container.read("x") } < .seconds(2))
        }
    }

    @Test func aLimitThatIsLiftedIsHeededAtOnce() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.session.setTransferLimits(TransferLimits(upload: 1000))
            try await one.container.put(bytes(2_000_000, seed: 3), at: "x")
            try? await one.container.scope.waitUntilSent(timeout: .seconds(20))
            #expect(try await one.container.item(at: "x")?.pending == .uploading)
            one.session.setTransferLimits(TransferLimits())
            let rest = try await time(one) { try await one.container.scope.waitUntilSent(timeout: .seconds(60)) }
            #expect(rest < .seconds(5), "\(rest)")
        }
    }
}
