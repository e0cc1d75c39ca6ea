import NephosKit
import Testing

/// How fast something goes, and how long it will take.
@Suite struct TransferMeterTests {
    private let start = ContinuousClock.now

    private func at(_ seconds: Double) -> ContinuousClock.Instant { start + .seconds(seconds) }

    @Test func aRateIsOfTheLastSecondsAndTheTimeLeftFollowsFromIt() throws {
        var meter = TransferMeter()
        let first = meter.note(0, of: 100_000, at: at(0))
        #expect(first.rate == nil && first.timeLeft == nil)
        // Too soon to tell.
        #expect(meter.note(5000, of: 100_000, at: at(0.1)).rate == nil)
        for tenth in 1...100 {
            let progress = meter.note(UInt64(tenth) * 1000, of: 200_000, at: at(Double(tenth) / 10))
            guard tenth >= 10 else { continue }
            let rate = try #require(progress.rate)
            #expect(abs(rate - 10_000) < 100)
            let left = try #require(progress.timeLeft)
            #expect(abs(left / .seconds(1) - Double(200 - tenth) / 10) < 0.5)
        }
        // What was fast a while ago is not fast now.
        for second in 11...40 {
            _ = meter.note(100_000 + UInt64(second - 10) * 100, of: 200_000, at: at(Double(second)))
        }
        let slow = meter.note(103_100, of: 200_000, at: at(41))
        #expect(slow.rate.map { abs($0 - 100) < 20 } == true)
    }

    @Test func whatStandsStillHasNoTimeLeftAndWhatIsWholeHasNone() {
        var meter = TransferMeter()
        for second in 0...20 { _ = meter.note(500, of: 1000, at: at(Double(second))) }
        let still = meter.note(500, of: 1000, at: at(21))
        #expect(still.rate == 0 && still.timeLeft == nil)
        let whole = meter.note(1000, of: 1000, at: at(22))
        #expect(whole.timeLeft == .zero)
        // More than was said, and less than before.
        #expect(meter.note(2000, of: 1000, at: at(23)).total == 2000)
        #expect(meter.note(10, of: 1000, at: at(24)).rate == nil)
        #expect(meter.note(.max, of: .max, at: at(30)).timeLeft == .zero)
    }
}
