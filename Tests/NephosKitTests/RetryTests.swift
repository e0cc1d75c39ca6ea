import NephosBus
import NephosCore
import Testing

@testable import NephosKit

@Suite struct RetryTests {
    private static let kinds: [Retry.Pauses] = [
        .scope, .subscription, .comparison, .lostContent, .offer, .chunk, .ticket,
    ]

    private func busy(_ retryAfter: Duration?) -> CloudError {
        CloudError(.serviceBusy, "Busy.", retryAfter: retryAfter)
    }

    @Test(arguments: kinds) func pausesDoubleUpToTheLongest(_ pauses: Retry.Pauses) {
        var (retry, generator) = (Retry(pauses), SplitMix64(seed: 1))
        var full = pauses.first
        for attempts in 1...100 {
            let pause = retry.failed(busy(nil), using: &generator)
            #expect(pause >= full / 2 && pause <= full && retry.attempts == attempts)
            full = min(full * 2, pauses.longest)
        }
        retry.succeeded()
        #expect(retry.failed(using: &generator) <= pauses.first)
    }

    @Test func twoThatFailTogetherComeBackApart() {
        var generators = [SplitMix64(seed: 1), SplitMix64(seed: 2)]
        let pauses = generators.indices.map { Retry(attempts: 5).pause(using: &generators[$0]) }
        #expect(pauses[0] != pauses[1])
    }

    @Test(arguments: kinds) func theServersPauseIsKept(_ pauses: Retry.Pauses) {
        var generator = SplitMix64(seed: 1)
        for asked: Duration in [.milliseconds(10), pauses.first, pauses.longest, .seconds(3600)] {
            #expect(Retry(pauses, attempts: 1).pause(after: busy(asked), using: &generator) == asked)
            #expect(Retry(pauses, attempts: 9).pause(after: busy(asked), using: &generator) >= asked)
        }
        let forYears = Retry(pauses, attempts: 1).pause(after: busy(.seconds(1 << 30)), using: &generator)
        #expect(forYears == Retry.askedMax)
    }

    @Test func aShortPauseAskedForAgainAndAgainGrows() {
        var (retry, generator) = (Retry(), SplitMix64(seed: 1))
        let pauses = (1...20).map { _ in retry.failed(busy(.milliseconds(10)), using: &generator) }
        #expect(pauses.first == .milliseconds(10))
        #expect(pauses.last.map { $0 >= .seconds(30) && $0 <= .seconds(60) } == true)
    }
}
