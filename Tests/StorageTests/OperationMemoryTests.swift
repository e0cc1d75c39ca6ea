import NephosCore
import Testing

@testable import NephosStorage

/// It may send someone to look in vain, and never the other way round.
@Suite struct OperationMemoryTests {
    private static let start = Timestamp(milliseconds: 1_700_000_000_000)

    private func id(_ offset: Duration, _ low: UInt64 = 1) -> OperationID {
        OperationID(high: Self.start.advanced(by: offset).milliseconds << 16, low: low)
    }

    private func memory(newest: OperationID? = nil) -> OperationMemory {
        let memory = OperationMemory(newest: newest)
        memory.advance(to: Self.start)
        return memory
    }

    @Test func aNewOperationNeedNotBeLookedFor() {
        let memory = memory()
        #expect(!memory.mayKnow(id(.zero)))
        memory.note(id(.zero))
        #expect(memory.mayKnow(id(.zero)))
        #expect(!memory.mayKnow(id(.zero, 2)))
    }

    @Test func whatWasStoredBeforeItBeganIsLookedFor() {
        let memory = memory(newest: id(.seconds(30)))
        #expect(memory.mayKnow(id(.zero)) && memory.mayKnow(id(.seconds(30))))
        #expect(!memory.mayKnow(id(.seconds(30), 2)))
    }

    @Test func anOldOperationIsLookedFor() {
        let memory = memory()
        #expect(memory.mayKnow(id(.seconds(-4))))
        #expect(!memory.mayKnow(id(.seconds(-3))))
    }

    /// Against all that was ever noted: any clocks of callers, and a clock here that goes back.
    @Test(arguments: 1...50)
    func nothingThatWasNotedIsEverDenied(_ seed: Int) {
        var generator = SplitMix64(seed: UInt64(seed))
        let memory = memory(newest: seed % 2 == 0 ? id(.seconds(2)) : nil)
        var noted: [OperationID] = []
        var now = Duration.zero
        for step in 0..<600 {
            now += .milliseconds(Int64.random(in: 0...400, using: &generator))
            if step % 97 == 0 { now -= .seconds(Int64.random(in: 0...20, using: &generator)) }
            memory.advance(to: Self.start.advanced(by: now))
            let skew: Duration =
                switch Int.random(in: 0..<10, using: &generator) {
                case 0: .seconds(Int64.random(in: -3600...3600, using: &generator))
                case 1: .milliseconds(Int64.random(in: -6000...6000, using: &generator))
                default: .milliseconds(Int64.random(in: -200...200, using: &generator))
                }
            let fresh = id(now + skew, generator.next())
            memory.note(fresh)
            noted.append(fresh)
            for old in noted.suffix(60) { #expect(memory.mayKnow(old)) }
            if let any = noted.randomElement(using: &generator) { #expect(memory.mayKnow(any)) }
        }
    }
}
