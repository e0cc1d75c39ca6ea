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

    /// Each waits behind something else of its connection, and has its turn after those that arrived later.
    @Test func attemptsThatArrivedBeforeTheLastWaitToo() {
        var count: AttemptRule.Count?
        for _ in 0..<AttemptRule.free { #expect(begin(&count, at: start) == nil) }
        for milliseconds in [-1, -2, -3, -1000, -300_000] as [Int64] {
            let before = start.advanced(by: .milliseconds(milliseconds))
            #expect(begin(&count, at: before)?.retryAfter == AttemptRule.delay)
        }
    }

    @Test(arguments: [-301, -86_400])
    func aClockThatIsSetBackDoesNotLengthenTheWait(_ seconds: Int) {
        var count: AttemptRule.Count?
        for _ in 0..<AttemptRule.free { #expect(begin(&count, at: start) == nil) }
        let before = start.advanced(by: .seconds(seconds))
        // One is free, and counts.
        #expect(begin(&count, at: before) == nil)
        #expect(begin(&count, at: before)?.retryAfter == AttemptRule.delay * 2)
    }
}
