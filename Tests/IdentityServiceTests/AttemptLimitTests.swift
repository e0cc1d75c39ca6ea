import Core
import Testing

@testable import IdentityService

@Suite struct AttemptLimitTests {
    private let start = Timestamp(milliseconds: 1_000_000_000)

    @Test func theDelayStopsGrowingAndIsForgotten() throws {
        var limit = AttemptLimit()
        var now = start
        for _ in 0..<60 {
            try limit.begin([.account("ada")], at: now)
            now = now.advanced(by: limit.delayMax)
        }
        #expect(code { try limit.begin([.account("ada")], at: now.advanced(by: .milliseconds(-1))) } != nil)
        now = now.advanced(by: limit.memory)
        for _ in 0..<5 { try limit.begin([.account("ada")], at: now) }
        #expect(code { try limit.begin([.account("ada")], at: now) } == .requestRateLimited)
    }

    @Test func aFloodOfNamesDoesNotPushOutTheOneUnderAttack() throws {
        var limit = AttemptLimit()
        limit.subjectsMax = 100
        for _ in 0..<5 { try limit.begin([.account("ada")], at: start) }
        for number in 0..<500 { try limit.begin([.account("flood\(number)")], at: start) }
        #expect(code { try limit.begin([.account("ada")], at: start) } == .requestRateLimited)
    }
}
