import NephosCore
import Testing

@testable import NephosIdentity

@Suite struct AttemptRuleTests {
    private let start = Timestamp(milliseconds: 1_000_000_000)

    private func begin(_ count: inout AttemptRule.Count?, at now: Timestamp) -> CloudError? {
        failure { count = try AttemptRule.begin(after: count, at: now) }
    }

    @Test func theWaitStopsGrowingAndIsForgotten() {
        var count: AttemptRule.Count?
        var now = start
        for _ in 0..<60 {
            #expect(begin(&count, at: now) == nil)
            now = now.advanced(by: AttemptRule.delayMax)
        }
        #expect(begin(&count, at: now.advanced(by: .milliseconds(-1)))?.retryAfter == .milliseconds(1))
        now = now.advanced(by: AttemptRule.memory)
        for _ in 0..<AttemptRule.free { #expect(begin(&count, at: now) == nil) }
        #expect(begin(&count, at: now)?.retryAfter == AttemptRule.delay)
    }

    @Test(arguments: [-0.001, -1, -86_400])
    func aClockThatIsSetBackDoesNotLengthenTheWait(_ seconds: Double) {
        var count: AttemptRule.Count?
        for _ in 0..<AttemptRule.free { #expect(begin(&count, at: start) == nil) }
        let before = start.advanced(by: .milliseconds(Int64(seconds * 1000)))
        // One is free, and counts.
        #expect(begin(&count, at: before) == nil)
        #expect(begin(&count, at: before)?.retryAfter == AttemptRule.delay * 2)
    }
}
