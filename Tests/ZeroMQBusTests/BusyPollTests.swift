import Testing

@testable import NephosZeroMQ

@Suite struct BusyPollTests {
    @Test func itLooksOnlyAfterAShortWait() {
        var poll = BusyPoll(longest: .microseconds(200))
        #expect(poll.window == .zero)
        poll.note(waited: .microseconds(199))
        #expect(poll.window == .microseconds(200))
        poll.note(waited: .microseconds(200))
        #expect(poll.window == .zero)
        poll.note(waited: .seconds(1))
        #expect(poll.window == .zero)
    }

    @Test func itNeverLooksWhereItMayNot() {
        var poll = BusyPoll(longest: .zero)
        poll.note(waited: .zero)
        #expect(poll.window == .zero)
    }
}
