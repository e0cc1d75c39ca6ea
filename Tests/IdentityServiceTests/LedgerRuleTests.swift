import NephosCore
import Testing

@testable import NephosIdentity

/// How a plan is divided among the services.
@Suite struct LedgerRuleTests {
    private let documents = ServiceName.documents
    private let records = ServiceName.records

    private func settle(
        _ service: ServiceName, revision: UInt64 = 1, allotted: UInt64 = 0, wanted: UInt64, used: UInt64 = 0,
        plan: UInt64, _ book: [Allotment] = []
    ) -> (allotted: UInt64, isShort: Bool)? {
        let request = LedgerRule.Request(revision: revision, allotted: allotted, wanted: wanted, used: used)
        guard
            case .settled(let allotment, let isShort) = LedgerRule.settle(request, of: service, plan: plan, book: book)
        else { return nil }
        return (allotment.allotted, isShort)
    }

    private func entry(_ service: ServiceName, revision: UInt64 = 1, _ allotted: UInt64, used: UInt64) -> Allotment {
        Allotment(service: service, revision: revision, allotted: allotted, used: used)
    }

    @Test func whatIsWantedComesWithSomethingToSpare() throws {
        let granted = try #require(settle(documents, wanted: 100, plan: 1000))
        // An eighth of what is free then.
        #expect(granted == (212, false))
        let large = try #require(settle(documents, wanted: 100, plan: 1 << 40))
        #expect(large.allotted == 100 + LedgerRule.spareMax)
    }

    @Test func theSumNeverExceedsThePlan() throws {
        let book = [entry(records, 900, used: 900)]
        #expect(try #require(settle(documents, wanted: 500, plan: 1000, book)) == (100, false))
        // The other holds more than it uses: it is asked for that.
        #expect(try #require(settle(documents, wanted: 500, plan: 1000, [entry(records, 900, used: 1)])) == (100, true))
        #expect(try #require(settle(documents, wanted: .max, plan: 1000)) == (1000, false))
    }

    @Test func whatWasGrantedUnderARevisionIsNotTakenBackUnderIt() throws {
        // The answer may have been lost: the service asks as if it held nothing.
        let book = [entry(documents, 700, used: 0), entry(records, 300, used: 300)]
        #expect(try #require(settle(documents, wanted: 10, plan: 1000, book)) == (700, false))
        // Under the next revision it has lowered it by itself.
        #expect(try #require(settle(documents, revision: 2, allotted: 10, wanted: 10, plan: 1000, book)) == (10, false))
    }

    @Test func anOlderSettlementIsOutdated() {
        let book = [entry(documents, revision: 3, 10, used: 0)]
        #expect(settle(documents, revision: 2, allotted: 500, wanted: 500, plan: 1000, book) == nil)
    }

    @Test func aSmallerPlanTakesNothingAwayAndGivesNothing() throws {
        let book = [entry(documents, 800, used: 800), entry(records, 100, used: 100)]
        let granted = try #require(settle(documents, allotted: 800, wanted: 900, used: 800, plan: 500, book))
        #expect(granted == (800, false))
    }

    @Test(
        arguments: [
            (0, 0), (1, 0), (79, 0), (80, 80), (89, 80), (90, 90), (94, 90), (95, 95), (99, 95), (100, 100), (170, 100),
        ] as [(UInt64, UInt32)])
    func warningsComeAtEightyNinetyAndNinetyFivePercent(_ used: UInt64, _ level: UInt32) {
        #expect(LedgerRule.level(used: used, plan: 100) == level)
        #expect(LedgerRule.level(used: used * 50_000_000, plan: 5_000_000_000) == level)
        #expect(LedgerRule.level(used: used, plan: 0) == 100)
    }
}
