import NephosCore
import NephosSimulation
import Synchronization
import Testing

/// Whatever a service goes through, its containers are what a plain model says after every batch: what is acknowledged is
/// there, what is refused is refused for the reason that the model has, what counts is what lies there, and nothing that
/// is used is missing.
///
/// `NEPHOS_SEEDS=N` sets how many histories are tried, `NEPHOS_FIRST_SEED=S` where they begin, `NEPHOS_SEED=S` tries one.
@Suite struct ModelTests {
    /// In each a copy comes back that identity has granted room to since: before the first room of all, and under the same
    /// number as before. A plan that is made smaller then is heeded all the same.
    @Test(arguments: [61, 162, 168]) func aPlanIsHeededAfterACopyCameBack(seed: UInt64) throws {
        _ = try DocumentModelHistory(seed: seed).run()
    }

    @Test func containersAreWhatTheModelSays() async {
        let outcomes = Mutex<[DocumentModelHistory.Outcome]>([])
        let count = 12
        let failures = await SeededHistories.failures(of: count) { seed in
            let outcome = try DocumentModelHistory(seed: seed).run()
            outcomes.withLock { $0.append(outcome) }
        }
        for failure in failures.prefix(5) {
            Issue.record(
                "\(failure.error)\nAgain with: NEPHOS_SEED=\(failure.seed) swift test --filter containersAreWhatTheModelSays"
            )
        }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong: \(failures.map(\.seed))")
        let all = outcomes.withLock { $0 }
        guard all.count >= count else { return }
        let struck = all.reduce(into: [:]) { $0.merge($1.struck, uniquingKeysWith: +) }
        let places = FaultPoint.all.map(\.name).filter { $0.hasPrefix("documents.") }
        #expect(places.filter { struck[$0, default: 0] == 0 } == [], "places where nothing went wrong")
        let happened = all.reduce(into: [:]) { $0.merge($1.happened, uniquingKeysWith: +) }
        let rare = DocumentModelHistory.places.filter { happened[$0, default: 0] == 0 }
        #expect(rare == [], "what never happened: \(happened)")
        let codes = all.reduce(into: [:]) { $0.merge($1.outcomes, uniquingKeysWith: +) }
        let expected: [CloudError.Code?] = [
            nil, .unknownItem, .alreadyExists, .constraintViolation, .invalidArguments, .quotaExceeded,
        ]
        #expect(expected.filter { codes[$0, default: 0] < 5 } == [], "outcomes that hardly came: \(codes)")
    }
}
